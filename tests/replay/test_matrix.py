"""All scenarios with PGMQ as plain SQL on 16; with the extension, test_run.py runs them on 18.

The workflow's upgrade matrix has all four.
"""

from __future__ import annotations

import json
import subprocess
import sys

NEED_THE_EXTENSION = {"camel_case_extension_members", "queue_partly_member"}


def test_every_scenario_comes_out_as_expected() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pgflow_migrate", "replay"),
            *("--server", "embedded:16", "--pgmq", "sql", "--format", "json"),
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
