"""The account that a server runs under: our own, or nobody when we are root, as PostgreSQL refuses root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from pgflow_migrate.errors import PgflowMigrateError


class _As(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def become() -> _As:
    """The arguments with which :class:`subprocess.Popen` starts a server program.

    Raises:
        PgflowMigrateError: we are root and there is no unprivileged account.
    """
    if os.geteuid() != 0:
        return {}
    import pwd

    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise PgflowMigrateError(
            "PostgreSQL does not run as root, and there is no account nobody to run it as.",
            "Run this as another user.",
        ) from None
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def give(path: Path) -> None:
    """Make a file, or a folder with all that is in it, belong to the server's account."""
    account = become()
    if not account:
        return
    inside = (Path(folder, name) for folder, folders, files in os.walk(path) for name in folders + files)
    for one in (path, *inside):
        os.chown(one, account["user"], account["group"], follow_symlinks=False)


def can_run(program: Path) -> bool:
    """Whether the server's account may execute ``program``."""
    if not become():
        return True
    return can_enter(program.resolve().parent) and program.stat().st_mode & 0o005 == 0o005


def can_enter(folder: Path) -> bool:
    """Whether the server's account may reach what is in ``folder``."""
    if not become():
        return True
    return all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents))


def environment(libraries: Path | None = None) -> dict[str, str]:
    """Our environment without what would change a server program's behaviour or language."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    kept["LC_ALL"] = "C"
    if libraries is not None:
        kept["LD_LIBRARY_PATH"] = str(libraries)
    return kept


def run(command: Sequence[str | Path], *, cwd: Path, libraries: Path | None = None) -> None:
    """Run a server program to its end under the server's account.

    Raises:
        PgflowMigrateError: it could not be started or failed; the message has its last line.
    """
    arguments: dict[str, Any] = {**become(), "cwd": cwd, "env": environment(libraries)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **arguments)
    except OSError as error:
        raise PgflowMigrateError(f"{command[0]} could not be started: {error}") from error
    if done.returncode != 0:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        reason = said[-1] if said else f"exit status {done.returncode}"
        raise PgflowMigrateError(f"{command[0]} failed: {reason}")
