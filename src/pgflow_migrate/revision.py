"""What a revision's Python file calls: run SQL files of the revision's own folder.

The files are plain SQL, sent as they are: no bind parameters, no templates. So ``%`` and ``:name`` mean
what they mean to PostgreSQL, online and in the script that ``--sql`` prints.
"""

from __future__ import annotations

import psycopg
import sqlalchemy as sa
from alembic import context, op

from pgflow_migrate import resources
from pgflow_migrate.errors import SqlFileError
from pgflow_migrate.upgrade.progress import FileDone, FileStarted, Listener, ignore


def run_sql(revision: str, *names: str) -> None:
    """Execute files of ``alembic/sql/<revision>/``, in the order given.

    Args:
        revision: the revision's id, which is also the folder's name.
        names: paths below that folder; the ending ``.sql`` may be left out.

    Raises:
        FileNotFoundError: a file is missing from the installation.
        SqlFileError: a statement failed; names revision and file.
    """
    folder = resources.revision_sql(revision)
    for name in names:
        path = folder / (name if name.endswith(".sql") else f"{name}.sql")
        _run_file(revision, path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))


def run_folder(revision: str, folder: str) -> None:
    """Execute every file of ``alembic/sql/<revision>/<folder>/``, in name order."""
    for path in sorted((resources.revision_sql(revision) / folder).glob("*.sql")):
        run_sql(revision, f"{folder}/{path.name}")


def run_namesakes(before: str, revision: str, folder: str) -> None:
    """Execute those files of ``alembic/sql/<before>/<folder>/`` that ``revision`` has namesakes of.

    Args:
        before: the revision whose files are executed, in name order.
        revision: the one that replaced what they make.
        folder: the folder of both.
    """
    for path in sorted((resources.revision_sql(revision) / folder).glob("*.sql")):
        if (resources.revision_sql(before) / folder / path.name).is_file():
            run_sql(before, f"{folder}/{path.name}")


def _run_file(revision: str, file: str, statements: str) -> None:
    if context.is_offline_mode():
        op.get_context().impl.static_output(f"-- {revision}/{file}\n{statements}")
        return
    on_progress: Listener = context.config.attributes.get("on_progress", ignore)
    on_progress(FileStarted(revision, file))
    try:
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
    except sa.exc.DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise SqlFileError(revision, file, error.orig) from error
        raise
    on_progress(FileDone(revision, file))
