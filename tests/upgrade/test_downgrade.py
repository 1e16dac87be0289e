"""From dirty_runs back to queue identity: all of it, while no run speaks protocol 2; and no further."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from subprocess import CompletedProcess
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from tests.dirty_runs.protocol import Session

from pgflow_migrate import database, resources
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, EXIT_FENCE
from pgflow_migrate.replay import scenario, signature
from pgflow_migrate.replay.checks import release_differences
from pgflow_migrate.replay.differences import differences
from pgflow_migrate.replay.work import work_off
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import AMONG_WORKERS
from pgflow_migrate.verify.run import verify

Database = psycopg.Connection[dict[str, Any]]
Alembic = Callable[..., "CompletedProcess[str]"]
Holding = Callable[[str, str], AbstractContextManager[int]]
Unchanged = Callable[[str], AbstractContextManager[None]]

SCENARIOS = {one.name: one for one in scenario.load_all(resources.fixtures(), ["queue_identity"])}
# The version was another in between, so its row is a new version of itself.
ONLY = ("table pgflow_migrate.alembic_version changed (row version) in 1 rows (version_num queue_identity)",)
PAIR = """
  select pgflow.create_flow('pair', 1, 0, 60);
  select pgflow.add_step('pair', 'a');
  select pgflow.add_step('pair', 'b', array['a']);
"""


def take_back(dsn: str) -> None:
    """As ``alembic -x allow_live_workers=true downgrade queue_identity``, in this process."""
    engine = database.engine(dsn)
    config = Config(str(resources.alembic_ini()))
    try:
        with engine.begin() as connection:
            assert isinstance(connection, sa.Connection)
            config.attributes.update(connection=connection, fence=AMONG_WORKERS)
            command.downgrade(config, "queue_identity")
    finally:
        engine.dispose()


@pytest.mark.parametrize("name", SCENARIOS)
def test_back_is_what_was_before(
    database_at: Callable[[str], str], connect: Callable[[str], Database], name: str
) -> None:
    """Catalogue, rows with their versions, files of tables, sequences, ledger; then up again, and to work."""
    session = connect(database_at("queue_identity"))
    session.execute(SCENARIOS[name].populate.encode())
    session.execute("discard all")
    before = signature.take(session)
    upgrade(session.info.dsn, fence=AMONG_WORKERS)
    take_back(session.info.dsn)
    assert differences(before, signature.take(session)) == ONLY
    found = verify(session.info.dsn)
    assert (found.revision, found.violations) == ("queue_identity", ())
    assert [one.revision for one in upgrade(session.info.dsn, fence=AMONG_WORKERS).applied] == ["dirty_runs"]
    assert release_differences(session) == ()
    assert verify(session.info.dsn).violations == ()
    flows = session.execute("select flow_slug from pgflow.flows limit 3").fetchall()
    assert [work_off(session, row["flow_slug"]) for row in flows]
    assert verify(session.info.dsn).violations == ()


def test_work_goes_on_after_the_way_back(
    database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    session = connect(database_at("dirty_runs"))
    session.execute(PAIR.encode())
    session.execute("select pgflow.start_flow('pair', '{}')")
    take_back(session.info.dsn)
    session.execute("select pgflow.start_flow('pair', '{}')")
    assert work_off(session, "pair") == 4
    assert session.execute("select status, count(*) from pgflow.runs group by 1").fetchall() == [
        {"status": "completed", "count": 2}
    ]
    with pytest.raises(psycopg.errors.UndefinedFunction):
        session.execute("select pgflow.start_flow_v2('pair', '{}')")


@pytest.mark.parametrize(("count", "said"), [(1, "there is 1 run"), (2, "there are 2 runs")])
def test_a_run_of_protocol_2_stays_and_so_does_everything(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged, count: int, said: str
) -> None:
    dsn = database_at("dirty_runs")
    session = Session(dsn)
    try:
        session.define()
        runs = [session.started() for _ in range(count)]
        with unchanged(dsn):
            done = alembic(dsn, "downgrade", "queue_identity")
        assert done.returncode == EXIT_BLOCKED
        assert f"error: The downgrade refuses: {said} of protocol 2.\nNothing was changed." in done.stderr
        assert "Traceback" not in done.stderr

        # Over, settled and past their horizon they may be deleted, and then nothing is in the way.
        for run in runs:
            session.fail(session.claimed(run, "a"))
            session.settle_down(run)
            session.release(run)
        session.execute("select pgflow.delete_flow_and_data('demo')")
        done = alembic(dsn, "downgrade", "queue_identity")
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert release_differences(session.connection, "queue_identity") == ()
    finally:
        session.close()


def test_the_script_says_the_same(database_at: Callable[[str], str], alembic: Alembic) -> None:
    """Made without any database; refused, with nothing changed, where there are runs of protocol 2."""
    made = alembic("host=/nonexistent", "downgrade", "dirty_runs:queue_identity", "--sql")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("-- pgflow-migrate: takes a revision of schema pgflow back.\n")
    dsn = database_at("queue_identity")
    with psycopg.connect(dsn, autocommit=True) as session:
        before = signature.take(session)
        with pytest.raises(
            psycopg.errors.RaiseException, match="revision dirty_runs, but the database is at queue_id"
        ):
            session.execute(made.stdout.encode())
        session.execute("rollback")
        assert differences(before, signature.take(session)) == ()
        upgrade(dsn)
        session.execute(made.stdout.encode())
        assert differences(before, signature.take(session)) == ONLY

        upgrade(dsn)
        session.execute(PAIR.encode())
        session.execute("select pgflow.start_flow_v2('pair', '{}')")
        before = signature.take(session)
        with pytest.raises(psycopg.Error) as caught:
            session.execute(made.stdout.encode())
        session.execute("rollback")
        assert (caught.value.sqlstate, caught.value.diag.message_primary) == (
            "PF008",
            "there is 1 run of protocol 2",
        )
        assert differences(before, signature.take(session)) == ()


@pytest.mark.parametrize("ledger", ["no ledger", "no version"])
def test_a_database_that_does_not_say_where_it_is_is_known_by_what_it_has(
    database_at: Callable[[str], str], alembic: Alembic, ledger: str
) -> None:
    made = alembic("host=/nonexistent", "downgrade", "dirty_runs:queue_identity", "--sql").stdout
    forget = {
        "no ledger": "drop schema pgflow_migrate cascade",
        "no version": "delete from pgflow_migrate.alembic_version",
    }[ledger]
    for revision in ("queue_identity", "dirty_runs"):
        with psycopg.connect(database_at(revision), autocommit=True) as session:
            session.execute(forget.encode())
            if revision == "queue_identity":
                with pytest.raises(psycopg.errors.RaiseException, match="of another release"):
                    session.execute(made.encode())
                continue
            session.execute(made.encode())
            assert release_differences(session, "queue_identity") == ()
            assert session.execute("table pgflow_migrate.alembic_version").fetchall() == [("queue_identity",)]


@pytest.mark.parametrize("target", ["core_0_16_0", "base", "-2"])
def test_there_is_no_way_back_beyond_queue_identity(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged, target: str
) -> None:
    dsn = database_at("dirty_runs")
    with unchanged(dsn):
        done = alembic(dsn, "downgrade", target)
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert "error: There is no downgrade from queue_identity: data that only the newer" in done.stderr


def test_nor_is_there_a_script_for_one(alembic: Alembic) -> None:
    done = alembic("host=/nonexistent", "downgrade", "queue_identity:core_0_16_0", "--sql")
    assert (done.returncode, done.stdout) == (EXIT_COULD_NOT_RUN, "")
    assert "error: There is no downgrade from queue_identity: data that only the newer" in done.stderr


IN_THE_WAY = {
    "a worker": (
        EXIT_BLOCKED,
        "error: The downgrade refuses: 1 worker is at work.",
        "insert into pgflow.workers (worker_id, queue_name, function_name)"
        " values (gen_random_uuid(), 'q', 'packer')",
    ),
    "a view on a new column": (
        EXIT_COULD_NOT_RUN,
        "error: The downgrade failed (dirty_runs/back/tables.sql): cannot drop column current_claim_id",
        "create view public.claims as select current_claim_id from pgflow.step_tasks",
    ),
    "a function of one's own": (
        EXIT_COULD_NOT_RUN,
        "error: The downgrade failed (dirty_runs/back/functions.sql): cannot drop function pgflow._v2_",
        "create view public.limits as select pgflow._v2_limits()",
    ),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_what_is_in_the_way_stops_it(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged, what: str
) -> None:
    exit_code, says, statement = IN_THE_WAY[what]
    dsn = database_at("dirty_runs")
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(statement.encode())
    with unchanged(dsn):
        done = alembic(dsn, "downgrade", "queue_identity")
    assert done.returncode == exit_code
    assert says in done.stderr


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("select from pgflow.task_claims", "A table of protocol 2 is in use (dirty_runs/back/refuse.sql)."),
        ("select from pgflow.runs", "The locks for the downgrade were not obtained within 0.2 s"),
    ],
)
def test_who_reads_is_not_in_for_a_deadlock(
    database_at: Callable[[str], str],
    alembic: Alembic,
    unchanged: Unchanged,
    holding: Holding,
    statement: str,
    says: str,
) -> None:
    dsn = database_at("dirty_runs")
    with unchanged(dsn), holding(dsn, statement) as pid:
        done = alembic(dsn, "-x", "lock_timeout=200ms", "-x", "max_wait=200ms", "downgrade", "queue_identity")
    assert done.returncode == EXIT_FENCE
    assert f"error: {says}" in done.stderr
    assert f"pid {pid} (" in done.stderr
