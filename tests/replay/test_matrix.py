"""Scenarios about queues, with PGMQ as plain SQL on 16; on 18, with the extension, test_run.py runs all.

The workflow's upgrade matrix has every scenario in all four ways.
"""

from __future__ import annotations

import json
import subprocess
import sys

NEEDS_THE_EXTENSION = "queue_partly_member"


def test_scenarios_about_queues_come_out_as_expected() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pgflow_migrate", "replay"),
            *("--server", "embedded:16", "--pgmq", "sql", "--format", "json"),
            *("--release", "0.16.0", "--scenario", "*queue*"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    scenarios = json.loads(done.stdout)["scenarios"]
    assert {one["name"] for one in scenarios if one["outcome"] == "skipped"} == {NEEDS_THE_EXTENSION}
    assert {one["outcome"] for one in scenarios} == {"as expected", "skipped"}
    assert len(scenarios) > 10
