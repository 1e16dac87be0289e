"""Building an old core from a folder of released pgflow migrations instead of from our own revisions."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from pgflow_migrate import database
from pgflow_migrate.errors import PgflowMigrateError

# The release's last migration, by the time stamp in its name.
LAST_MIGRATION = {
    "core_0_15_0": "20260607175525",
    "core_0_15_1": "20260904095427",
    "core_0_16_0": "20260907082520",
}

# pgflow's installer puts a time stamp of its own in front: the one next to "_pgflow_" is the migration's.
_NAME = re.compile(r"(?:^|_)(\d{14})_pgflow_.*\.sql$")


def files(folder: Path, revision: str) -> tuple[Path, ...]:
    """The migrations that make up ``revision``, in the order of their names.

    Raises:
        PgflowMigrateError: the folder does not reach that release.
    """
    last = LAST_MIGRATION[revision]
    stamped = sorted(
        (match[1], path) for path in folder.glob("*_pgflow_*.sql") if (match := _NAME.search(path.name))
    )
    chosen = tuple(path for stamp, path in stamped if stamp <= last)
    if not any(stamp == last for stamp, _ in stamped):
        raise PgflowMigrateError(
            f"{folder} holds no migration {last}_pgflow_*.sql, with which the release ends.",
            "Give a folder of pgflow's released migrations that reaches it.",
        )
    return chosen


def build(dsn: str, folder: Path, revision: str) -> None:
    """Run the migrations of ``revision`` in an empty database, each file as one batch.

    Raises:
        PgflowMigrateError: the folder does not reach that release, or a file fails.
    """
    with database.connect(dsn, autocommit=True) as connection:
        for path in files(folder, revision):
            connection.execute("reset all")  # a file's settings end with it, as under Supabase's tool
            try:
                connection.execute(path.read_bytes())
            except psycopg.Error as error:
                raise PgflowMigrateError(
                    f"{path.name} failed: {error.diag.message_primary or error}."
                ) from error
