"""The demonstration keeps its promises, says so, and says when it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgflow_migrate.cli import main
from pgflow_migrate.errors import BlockedError
from pgflow_migrate.replay import demo as story


class Silent:
    """An audience that only counts the chapters."""

    def __init__(self) -> None:
        self.chapters: list[str] = []

    def chapter(self, title: str) -> None:
        self.chapters.append(title)

    def populated(self, flows: object) -> None:
        self.flows = flows

    def audited(self, report: object) -> None:
        pass

    def statements(self, text: str) -> None:
        pass

    def refused(self, error: BlockedError) -> None:
        self.refusal = error

    def progress(self, event: object) -> None:
        pass

    def upgraded(self, result: object, routed: object) -> None:
        pass

    def verified(self, verification: story.Verification) -> None:
        pass


def test_the_story_goes_from_findings_to_work_that_goes_on(database_at: Callable[[str], str]) -> None:
    audience = Silent()
    told = story.demonstrate(database_at("core_0_16_0"), audience)
    assert [verification for verification in told.verifications if not verification.kept] == []
    assert told.kept
    assert {finding.code for finding in told.first_audit.blocking} == {
        "message-without-task",
        "slug-trailing-underscore",
    }
    assert audience.flows == (
        story.Busy("newsletter", 4, 8, 6),
        story.Busy("orderIntake", 30, 135, 60),
        story.Busy("thumbnails", 1, 400, 300),
    )
    assert "Schema pgflow is exactly that of release dirty_runs" in [v.promise for v in told.verifications]
    assert told.refused
    assert {finding.code for finding in audience.refusal.findings} == {
        "message-without-task",
        "slug-trailing-underscore",
    }
    assert list(told.second_audit.blocking) == []
    assert told.upgrade.from_release == "0.16.0"
    assert told.routed == (
        story.Routed("newsletter", "newsletter", 8, 6),
        story.Routed("orderIntake", "orderintake", 135, 60),
        story.Routed("thumbnails", "thumbnails", 400, 300),
    )
    assert len(audience.chapters) == 7


def test_a_broken_promise_is_told(database_at: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "work_off", lambda connection, flow: 0)
    told = story.demonstrate(database_at("core_0_16_0"), Silent())
    assert not told.kept
    broken = [verification for verification in told.verifications if not verification.kept]
    assert [verification.promise for verification in broken] == [
        "All runs of orderIntake complete",
        "Its queue is empty, its messages are archived",
    ]
    assert broken[1].found == "60 messages are left"


def test_a_stale_snapshot_is_told(database_at: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    dsn = database_at("core_0_16_0")
    monkeypatch.setattr(story, "release_differences", lambda connection: ("column steps.x is missing",))
    told = story.demonstrate(dsn, Silent())
    assert [(v.promise, v.found) for v in told.verifications if not v.kept] == [
        ("Schema pgflow is exactly that of release dirty_runs", "column steps.x is missing")
    ]


def test_the_operators_statements_fit_on_a_terminal() -> None:
    mend = (Path(story.__file__).parent / "story" / "mend.sql").read_text(encoding="utf-8")
    assert max(len(f"   {line}") for line in mend.splitlines()) <= 80


def test_the_command_shows_the_story_and_exits_0() -> None:
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    assert "slug-trailing-underscore" in result.stdout
    assert "BROKEN" not in result.stdout
    assert "promises kept" in result.stdout


def test_json_is_all_of_stdout() -> None:
    result = CliRunner().invoke(main, ["demo", "--format", "json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["kept"] is True
    assert all(verification["kept"] for verification in document["verifications"])
