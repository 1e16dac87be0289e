"""A private copy of an installation: its extension folder is ours, and the server's account may read it.

PostgreSQL finds its files relative to its own program. So a tree with a real copy of ``postgres`` and links
to the rest is an installation of its own, in which the extension folder can hold more than the original's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pgflow_migrate.errors import PgflowMigrateError


@dataclass(frozen=True)
class Tree:
    """A private tree.

    Attributes:
        postgres: the server program.
        initdb: initdb that runs under the server's account.
        libraries: the folder to add to the search path for shared libraries, when they had to be copied.
    """

    postgres: Path
    initdb: Path
    libraries: Path | None = None


def grow(bin_dir: Path, folder: Path, extensions: Path, *, copy: bool) -> Tree | None:
    """Make a private tree in ``folder``.

    Args:
        bin_dir: the original's programs.
        folder: where to make it; it must not exist.
        extensions: a folder of control files and scripts to add.
        copy: copy everything (35 MB) instead of linking; needed when the original cannot be read by all.

    Returns:
        None when the installation lacks pg_config, so that its files are not found, and need not be copied.

    Raises:
        PgflowMigrateError: it has to be copied and does not tell where its files are.
    """
    places = _places(bin_dir)
    if places is None:
        if copy:
            raise PgflowMigrateError(
                f"{bin_dir} is not readable by every user, and without its pg_config it cannot be copied.",
                "Run this as another user than root, or install PostgreSQL where everyone can read it.",
            )
        return None
    bin_dir, share, libraries = places
    top = Path(os.path.commonpath([bin_dir, share, libraries]))
    take = _copy if copy else _link

    own_bin = folder / bin_dir.relative_to(top)
    own_bin.mkdir(parents=True)
    # The program has to be a copy: PostgreSQL follows links before it looks for its files.
    for program in ("postgres", "initdb"):
        shutil.copy(bin_dir / program, own_bin / program)

    own_share = folder / share.relative_to(top)
    (own_share / "extension").mkdir(parents=True)
    for entry in share.iterdir():
        if entry.name != "extension":
            take(entry, own_share / entry.name)
    for entry in (share / "extension").iterdir():
        take(entry, own_share / "extension" / entry.name)
    for entry in extensions.iterdir():
        (own_share / "extension" / entry.name).unlink(missing_ok=True)
        shutil.copy(entry, own_share / "extension" / entry.name)

    # Programs find their own libraries in ../lib; server modules are in pkglibdir, often the same or below.
    for original in (bin_dir.parent / "lib", libraries):
        own = folder / original.relative_to(top)
        if original.is_dir() and not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            take(original, own)

    return Tree(
        own_bin / "postgres",
        own_bin / "initdb" if copy else bin_dir / "initdb",
        _wheel_libraries(bin_dir, folder, copy=copy),
    )


def _places(bin_dir: Path) -> tuple[Path, Path, Path] | None:
    """The folders of programs, shared files and server modules."""
    try:
        printed = subprocess.run(
            [bin_dir / "pg_config", "--bindir", "--sharedir", "--pkglibdir"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    places = [Path(line) for line in printed.splitlines()]
    if len(places) != 3 or not all(place.is_dir() for place in places):
        return None
    return places[0], places[1], places[2]


def _wheel_libraries(bin_dir: Path, folder: Path, *, copy: bool) -> Path | None:
    """Copy the libraries that a repaired wheel keeps beside its package, in ``<package>.libs``."""
    package = bin_dir.parents[1]
    libraries = package.with_name(f"{package.name}.libs")
    if not copy or not libraries.is_dir():
        return None
    _copy(libraries, folder / "wheel_libraries")
    return folder / "wheel_libraries"


def _link(original: Path, own: Path) -> None:
    own.symlink_to(original)


def _copy(original: Path, own: Path) -> None:
    if original.is_dir():
        shutil.copytree(original, own)
    else:
        shutil.copy(original, own)
