"""The workflow and the snippets of docs/replay.md: YAML of the right form, and commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped,unused-ignore]

from pgflow_migrate.cli import main

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "upgrade-matrix.yml"
DOCUMENT = ROOT / "docs" / "replay.md"
SNIPPETS = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def steps(document: Any) -> list[dict[str, Any]]:
    """Every step in a workflow, in a composite action, or in a list of steps."""
    if isinstance(document, list):
        return document
    if "runs" in document:
        return list(document["runs"]["steps"])
    return [step for job in document["jobs"].values() for step in job.get("steps", [])]


TEXTS = [WORKFLOW.read_text(encoding="utf-8"), *SNIPPETS]


@pytest.mark.parametrize("text", TEXTS)
def test_its_commands_have_the_options_that_they_are_given(text: str) -> None:
    found = [step["run"] for step in steps(yaml.safe_load(text)) if "run" in step]
    for script in found:
        assert "${{" not in script  # an expression in a script would be run by the shell
        for line in re.findall(r"(?:pgflow-migrate|set --) (?:.*)", script):
            words = [word for word in shlex.split(line.partition(";")[0]) if word not in ("$@", ">")]
            name = words[1] if words[0] == "pgflow-migrate" else "replay"
            command = main.get_command(click.Context(main), name)
            assert command is not None
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words[1:] if word.startswith("--") and len(word) > 2} <= known


def test_there_are_as_many_snippets_as_are_looked_at() -> None:
    assert [("jobs" in text, "composite" in text, text.startswith("- ")) for text in SNIPPETS] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    called = yaml.safe_load(SNIPPETS[0])["jobs"]["upgrade"]
    inputs = yaml.safe_load(TEXTS[0])[True]["workflow_call"]["inputs"]  # YAML reads the key "on" as true
    assert called["uses"] == f"./{WORKFLOW.relative_to(ROOT)}"
    assert called["with"].keys() <= inputs.keys()
    assert (
        steps(yaml.safe_load(SNIPPETS[2]))[1]["with"].keys() <= yaml.safe_load(SNIPPETS[1])["inputs"].keys()
    )
