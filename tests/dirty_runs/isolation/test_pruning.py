"""Pruning beside runs of protocol 2: by the shipped helper, and by ones that do not know it."""

from __future__ import annotations

import hashlib
from uuid import UUID

import pytest
from psycopg.errors import ForeignKeyViolation
from tests.dirty_runs.isolation.conftest import World, populate
from tests.dirty_runs.protocol import Session

from pgflow_migrate import prune_helper, resources
from pgflow_migrate.prune_helper import SIGNATURE

V2_ROWS = {
    "runs": "select r::text from pgflow.runs r join pgflow.run_work using (run_id)",
    **{
        table: f"select t::text from pgflow.{table} t join pgflow.runs r using (run_id)"
        " where exists (select from pgflow.run_work work where work.run_id = r.run_id)"
        for table in ("step_states", "step_tasks", "run_work", "task_claims")
    },
}


def documented(kind: str) -> str:
    """A helper that is equivalent to the one of pgflow's documentation: stock, or original, from before."""
    scenario = resources.fixtures() / "0.16.0" / f"prune_helper_{kind}" / "populate.sql"
    before, body, after = scenario.read_text(encoding="utf-8").split("$$")
    return f"{before}$${body}$${after.partition(';')[0]}"


def without_protocol_2() -> str:
    """The shipped helper as if it did not know protocol 2."""
    script = prune_helper.script()
    before, after = script.split("has_protocols constant boolean := ")
    return f"{before}has_protocols constant boolean := false and {after}"


@pytest.fixture(params=[False, True], ids=["one queue", "queue a step"])
def old(request: pytest.FixtureRequest, session: Session) -> World:
    """Runs of both protocols, in the same queue too, that ended long ago; their archives are old."""
    world = populate(session, "demo", queues=request.param)
    run = session.value("select run_id from pgflow.start_flow('demo', '{}')")
    session.execute(
        "select pgflow.claim_tasks(queue_name, 'demo', array[message_id], null)"
        " from pgflow.step_tasks where run_id = %s",
        run,
    )
    session.execute("select pgflow.fail_task(%s, 'a', 0, 'no')", run)
    world.plain["failed beside them"] = run
    session.execute("set session_replication_role = replica")
    for table, first in (("runs", "started_at"), ("step_states", "created_at"), ("step_tasks", "queued_at")):
        older = ", ".join(
            f"{column} = {column} - interval '1 year'"
            for column in sorted({first, "started_at", "completed_at", "failed_at"})
        )
        session.execute(f"update pgflow.{table} set {older}")
    session.execute("reset session_replication_role")
    for row in session.rows("select queue_name::text as name from pgmq.meta"):
        session.execute(f"update pgmq.\"a_{row['name']}\" set archived_at = archived_at - interval '1 year'")
    return world


def of_protocol_2(world: World) -> dict[str, list[str]]:
    """Every row and message of protocol 2."""
    found = {name: sorted(world.values(query)) for name, query in V2_ROWS.items()}
    for task in world.tasks():
        for kind in "qa":
            table = f'pgmq."{kind}_{task["queue_name"]}"'
            found.setdefault(table, []).extend(
                world.values(
                    f"select m::text from {table} m where msg_id = %(id)s", {"id": task["message_id"]}
                )
            )
    assert all(found[name] for name in V2_ROWS)
    return found


def statuses(world: World) -> dict[UUID, str]:
    return {row["run_id"]: row["status"] for row in world.session.rows("select * from pgflow.runs")}


@pytest.mark.parametrize("interval", ["30 days", "0", "-1 day"])
def test_pruning_leaves_everything_of_protocol_2(old: World, interval: str) -> None:
    session = old.session
    session.execute(prune_helper.script())
    before = of_protocol_2(old)
    runs = statuses(old)
    session.execute("select pgflow.prune_data_older_than(%s::interval)", interval)
    assert of_protocol_2(old) == before
    gone = {old.plain["failed"], old.plain["failed beside them"]}
    assert statuses(old) == {run: status for run, status in runs.items() if run not in gone}
    # Protocol 1 is pruned as ever, in the archive that both share too.
    kept = {task["message_id"] for task in old.tasks()}
    assert session.archived("plain") == []
    queue = session.value("select queue_name from pgflow.steps where (flow_slug, step_slug) = ('demo', 'a')")
    assert set(session.archived(queue)) < kept
    assert session.archived(queue) != []


def test_runs_of_protocol_2_go_on_after_it(old: World) -> None:
    session = old.session
    session.execute(prune_helper.script())
    session.execute("select pgflow.prune_data_older_than('0')")
    claim = session.value(
        "select claim_id from pgflow.task_claims where run_id = %s and state = 'active'", old.runs["held"]
    )
    assert session.complete(claim, 1)["outcome"] == "accepted"
    assert session.settle_down(old.runs["held"]) == ["dispatched", "clean"]


def test_pruning_waits_for_no_run_of_protocol_2(old: World) -> None:
    session = old.session
    session.execute(prune_helper.script())
    other = Session(session.dsn)
    try:
        with other.connection.transaction():
            other.execute(
                "select from pgflow.runs where run_id in (select run_id from pgflow.run_work) for update"
            )
            session.execute("set lock_timeout = '5s'")
            session.execute("select pgflow.prune_data_older_than('0')")
    finally:
        other.close()


@pytest.mark.parametrize(
    "script",
    [documented("stock"), documented("original"), without_protocol_2()],
    ids=["stock", "original", "queue-aware"],
)
def test_a_helper_that_does_not_know_protocol_2_is_stopped_by_foreign_keys(old: World, script: str) -> None:
    session = old.session
    session.execute(script)
    with old.unchanged(), pytest.raises(ForeignKeyViolation) as caught:
        session.execute("select pgflow.prune_data_older_than('30 days')")
    assert caught.value.diag.constraint_name in (
        "task_claims_run_id_step_slug_task_index_fkey",
        "run_work_run_id_fkey",
    )


def test_the_helper_from_before_protocol_2_is_known_and_replaced(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = old.session
    session.execute(without_protocol_2())
    body = session.value("select prosrc from pg_proc where oid = %s::regprocedure", SIGNATURE)
    md5 = hashlib.md5(prune_helper.normalised(body).encode(), usedforsecurity=False).hexdigest()
    monkeypatch.setattr(prune_helper, "FORMER_MD5S", (md5,))
    found = prune_helper.find(session.dsn)
    assert [(helper.kind, helper.to_do) for helper in found.helpers] == [("former", True)]
    session.execute(prune_helper.script([md5]))
    found = prune_helper.find(session.dsn)
    assert [(helper.kind, helper.to_do) for helper in found.helpers] == [("queue-aware", False)]
