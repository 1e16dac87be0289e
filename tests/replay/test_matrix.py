"""All scenarios with PGMQ as plain SQL; with the extension, other tests run them on 18 and on 16."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

NEED_THE_EXTENSION = {"camel_case_extension_members", "queue_partly_member"}


@pytest.mark.parametrize("server", ["embedded:18", "embedded:16"])
def test_every_scenario_comes_out_as_expected(server: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pgflow_migrate", "replay"),
            *("--server", server, "--pgmq", "sql", "--format", "json"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    scenarios = json.loads(done.stdout)["scenarios"]
    assert {one["name"] for one in scenarios if one["outcome"] == "skipped"} == NEED_THE_EXTENSION
    assert {one["outcome"] for one in scenarios} == {"as expected", "skipped"}
    assert len(scenarios) > 40
