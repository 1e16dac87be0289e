"""What a revision's Python file calls: run SQL files of the revision's own folder.

The files are plain SQL, sent as they are: no bind parameters, no templates. So ``%`` and ``:name`` mean
what they mean to PostgreSQL, online and in the script that ``--sql`` prints.
"""

from __future__ import annotations

from alembic import context, op

from pgflow_migrate import resources


def run_sql(revision: str, *names: str) -> None:
    """Execute files of ``alembic/sql/<revision>/``, in the order given.

    Args:
        revision: the revision's id, which is also the folder's name.
        names: paths below that folder; the ending ``.sql`` may be left out.

    Raises:
        FileNotFoundError: a file is missing from the installation.
    """
    folder = resources.revision_sql(revision)
    for name in names:
        path = folder / (name if name.endswith(".sql") else f"{name}.sql")
        statement = path.read_text(encoding="utf-8")
        if context.is_offline_mode():
            op.get_context().impl.static_output(f"-- {revision}/{path.relative_to(folder).as_posix()}\n{statement}")
        else:
            op.get_bind().exec_driver_sql(statement, execution_options={"no_parameters": True})


def run_folder(revision: str, folder: str) -> None:
    """Execute every file of ``alembic/sql/<revision>/<folder>/``, in name order."""
    for path in sorted((resources.revision_sql(revision) / folder).glob("*.sql")):
        run_sql(revision, f"{folder}/{path.name}")
