"""Where tests put their servers and files: in memory, where there is room.

Creating a database copies a thousand small files. On a disk's file system that was a third of the processor
time of all tests, and it is what made two test processes wait for each other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - only folders of mkdtemp are made in it
ENOUGH = 4 * 2**30
"""Bytes that have to be free: a run of all tests with four processes needs 1 GiB."""


def use_it() -> None:
    """Make it the folder of temporary files, for child processes too, unless TMPDIR names another."""
    if "TMPDIR" not in os.environ and _suits():
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def _suits() -> bool:
    try:
        return shutil.disk_usage(MEMORY).free >= ENOUGH and _runs_programs()
    except OSError:
        return False


def _runs_programs() -> bool:
    """Containers mount it noexec; some servers are started from a copy in the temporary folder."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        program = Path(folder) / "program"
        program.write_text("#!/bin/sh\n", encoding="utf-8")
        program.chmod(0o700)
        return subprocess.run([program], check=False).returncode == 0
