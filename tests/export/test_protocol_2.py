"""Runs of protocol 2: triggers guard them, columns are bounded, claims and tasks point at each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.dirty_runs.protocol import Session

from pgflow_migrate import database
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.export import Reader, export, rebuild
from pgflow_migrate.replay import digest
from pgflow_migrate.replay.signature import VERSION
from pgflow_migrate.verify.run import verify

OTHERS = (
    "grant usage, create on schema pgflow, pgmq to {0}; alter schema pgflow owner to {0};"
    "grant all on all tables in schema pgmq to {0}"
)


def populate(dsn: str) -> None:
    """Runs that completed, failed, were interrupted, and wait; with a result at the limit of its size."""
    session = Session(dsn)
    try:
        session.define()
        whole, failed, active, _ = (session.started(given={"secret": "s3cret"}) for _ in range(4))
        for step in ("a", "b"):
            session.complete(session.claimed(whole, step), ["s3cret " * 9000, {"é": 1}])
            session.settle_down(whole)
        session.fail(session.claimed(failed, "a"), "s3cret ü" * 600)
        session.settle_down(failed)
        session.claimed(active, "a")
    finally:
        session.close()


def values(state: digest.Digest) -> dict[str, dict[str, str]]:
    """What the tables of pgflow and its queues hold, without row versions."""
    return {
        name: {column: text for column, text in columns.items() if column != VERSION}
        for name, columns in state.tables.items()
        if not name.startswith("pgflow_migrate.")
    }


def test_they_are_rebuilt_as_they_were_and_redacted_ones_hold_every_invariant(
    database_at: Callable[[str], str], tmp_path: Path
) -> None:
    original, copy, redacted = (database_at("dirty_runs") for _ in range(3))
    populate(original)
    assert verify(original).violations == ()
    for dsn, hidden in ((copy, False), (redacted, True)):
        export(original, tmp_path / "file", redacted=hidden, force=True)
        with Reader(tmp_path / "file") as reader, database.connect(dsn, autocommit=True) as connection:
            assert rebuild(connection, reader).notes == ()
        assert verify(dsn).violations == ()
    with psycopg.connect(copy, autocommit=True) as one, psycopg.connect(original, autocommit=True) as other:
        assert values(digest.take(one)) == values(digest.take(other))
    with psycopg.connect(redacted) as connection:
        for table in ("runs", "run_work", "step_states", "step_tasks", "task_claims"):
            (rows,) = connection.execute(f"select array_agg(t::text) from pgflow.{table} t").fetchall()[0]
            assert rows
            assert "s3cret" not in "".join(rows)


def test_a_role_that_must_obey_foreign_keys_is_told(
    database_at: Callable[[str], str], tmp_path: Path
) -> None:
    original, copy = database_at("dirty_runs"), database_at("dirty_runs")
    populate(original)
    export(original, tmp_path / "file")
    with psycopg.connect(copy, autocommit=True) as connection:
        connection.execute("create role export_owner login")
        name = connection.info.dbname
        connection.execute(f'alter database "{name}" owner to export_owner')
        for (statement,) in connection.execute(
            "select format('alter table %s owner to export_owner', c.oid::regclass) from pg_class c"
            " where c.relnamespace = 'pgflow'::regnamespace and c.relkind = 'r'"
            " union all select format('alter function %s owner to export_owner', p.oid::regprocedure)"
            " from pg_proc p where p.pronamespace = 'pgflow'::regnamespace"
        ).fetchall():
            connection.execute(statement)
        connection.execute(OTHERS.format("export_owner"))
    try:
        dsn = make_conninfo(copy, user="export_owner")
        with Reader(tmp_path / "file") as reader, database.connect(dsn, autocommit=True) as connection:
            with pytest.raises(
                PgflowMigrateError, match="cannot write rows that contradict each other"
            ) as told:
                rebuild(connection, reader)
            assert "where the role is a superuser" in told.value.remedy
            for table in ("flows", "runs", "task_claims"):
                assert connection.execute(f"select from pgflow.{table}").fetchall() == []
    finally:
        with psycopg.connect(copy, autocommit=True) as connection:
            connection.execute(f'alter database "{name}" owner to current_user')
            connection.execute("reassign owned by export_owner to current_user; drop owned by export_owner")
            connection.execute("drop role export_owner")
