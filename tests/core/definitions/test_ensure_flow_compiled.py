"""``pgflow.ensure_flow_compiled``: what a worker calls at its start.

Up to 0.15.1 it has a third argument, ``allow_data_loss`` (default false).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[dict[str, Any]]
State = dict[str, list[dict[str, Any]]]

OLD_SIGNATURE = ("core_0_15_0", "core_0_15_1")


def shape(*slugs: str, **options: object) -> Jsonb:
    steps = [
        {
            "slug": slug,
            "stepType": "single",
            "dependencies": [],
            "whenUnmet": "skip",
            "whenExhausted": "fail",
            "requiredInputPattern": {"defined": False},
            "forbiddenInputPattern": {"defined": False},
        }
        for slug in slugs
    ]
    return Jsonb({"steps": steps, **options})


ENSURE = "select pgflow.ensure_flow_compiled('f', %s)"
DIFFERENT = [
    "Step count differs: 2 vs 1",
    "Step at index 0: slug differs 'new' vs 'a'",
    "Step at index 1: missing in second shape (first has 'b')",
]


@pytest.fixture
def populated(db: Connection) -> None:
    """Flow ``f`` with step ``a``, a run with its task, and two archived messages."""
    db.execute(ENSURE, (shape("a"),))
    for _ in range(3):
        db.execute("select pgflow.start_flow('f', '{}')")
    db.execute("select pgmq.archive('f', array[1, 2]::bigint[])")


@pytest.mark.parametrize("local", [True, False])
def test_an_unknown_flow_is_compiled(
    make_local: Callable[[], None], value: Callable[..., Any], local: bool
) -> None:
    if local:
        make_local()
    assert value(ENSURE, shape("a", "b", options={"timeout": 9})) == {"status": "compiled", "differences": []}
    assert [step["slug"] for step in value("select pgflow._get_flow_shape('f')")["steps"]] == ["a", "b"]
    assert value("select opt_timeout from pgflow.flows") == 9
    assert value("select queue_name from pgmq.list_queues()") == "f"


def test_a_flow_without_steps_is_compiled_and_then_verified(value: Callable[..., Any]) -> None:
    assert value(ENSURE, Jsonb({}))["status"] == "compiled"
    assert value(ENSURE, Jsonb({"steps": []})) == {"status": "verified", "differences": []}


def test_arguments_can_be_named(value: Callable[..., Any]) -> None:
    call = "select pgflow.ensure_flow_compiled(flow_slug => 'f', shape => %s)"
    assert value(call, shape("a"))["status"] == "compiled"


@pytest.mark.parametrize("local", [True, False])
def test_an_equal_shape_is_verified_and_nothing_is_written(
    db: Connection,
    populated: None,
    make_local: Callable[[], None],
    state_of: Callable[[Connection], State],
    value: Callable[..., Any],
    local: bool,
) -> None:
    if local:
        make_local()
    before = state_of(db)
    # Options are not compared and not updated.
    assert value(ENSURE, shape("a", options={"maxAttempts": 9, "timeout": 9})) == {
        "status": "verified",
        "differences": [],
    }
    assert state_of(db) == before


def test_verifying_does_not_make_a_missing_queue_again(
    db: Connection, populated: None, rows: Callable[..., list[Any]], value: Callable[..., Any]
) -> None:
    db.execute("select pgmq.drop_queue('f')")
    assert value(ENSURE, shape("a"))["status"] == "verified"
    assert rows("select from pgmq.list_queues()") == []


def test_a_different_shape_is_a_mismatch_that_changes_nothing(
    db: Connection,
    populated: None,
    state_of: Callable[[Connection], State],
    value: Callable[..., Any],
) -> None:
    before = state_of(db)
    assert value(ENSURE, shape("new", "b")) == {"status": "mismatch", "differences": DIFFERENT}
    assert state_of(db) == before


def recompiled(value: Callable[..., Any], rows: Callable[..., list[dict[str, Any]]]) -> bool:
    """Nothing is left of the old definition, runs and messages; the queue is new."""
    assert [step["slug"] for step in value("select pgflow._get_flow_shape('f')")["steps"]] == ["new", "b"]
    for table in ("pgflow.runs", "pgflow.step_states", "pgflow.step_tasks", "pgmq.q_f", "pgmq.a_f"):
        assert rows(f"select from {table}") == []
    assert value("select pgmq.send('f', '{}'::jsonb)") == 1
    return True


def test_a_different_shape_is_compiled_anew_in_a_local_stack(
    populated: None,
    make_local: Callable[[], None],
    rows: Callable[..., list[dict[str, Any]]],
    value: Callable[..., Any],
) -> None:
    make_local()
    assert value(ENSURE, shape("new", "b")) == {"status": "recompiled", "differences": DIFFERENT}
    assert recompiled(value, rows)


def test_recompiling_leaves_other_flows_alone(
    db: Connection,
    populated: None,
    make_local: Callable[[], None],
    value: Callable[..., Any],
) -> None:
    make_local()
    db.execute("select pgflow.ensure_flow_compiled('g', %s)", (shape("a"),))
    db.execute("select pgflow.start_flow('g', '{}')")
    value(ENSURE, shape("new", "b"))
    assert value("select flow_slug from pgflow.runs") == "g"
    assert value("select count(*) from pgmq.q_g") == 1


def test_a_recompilation_that_fails_keeps_the_old_flow(
    populated: None, make_local: Callable[[], None], violates: Callable[..., tuple[str, str]]
) -> None:
    make_local()
    assert violates(ENSURE, shape("a", "run")) == ("23514", "steps_step_slug_check")


@pytest.mark.parametrize("release", OLD_SIGNATURE, indirect=True)
def test_data_loss_can_be_allowed_up_to_0_15_1(
    populated: None, rows: Callable[..., list[dict[str, Any]]], value: Callable[..., Any]
) -> None:
    call = "select pgflow.ensure_flow_compiled(flow_slug => 'f', shape => %s, allow_data_loss => true)"
    assert value(call, shape("new", "b")) == {"status": "recompiled", "differences": DIFFERENT}
    assert recompiled(value, rows)


@pytest.mark.parametrize("release", OLD_SIGNATURE, indirect=True)
def test_data_loss_is_not_allowed_by_default(
    db: Connection, populated: None, state_of: Callable[[Connection], State], value: Callable[..., Any]
) -> None:
    before = state_of(db)
    call = "select pgflow.ensure_flow_compiled('f', %s, false)"
    assert value(call, shape("new", "b"))["status"] == "mismatch"
    assert state_of(db) == before


@pytest.mark.parametrize("release", OLD_SIGNATURE, indirect=True)
def test_an_equal_shape_is_verified_even_when_data_loss_is_allowed(
    db: Connection, populated: None, state_of: Callable[[Connection], State], value: Callable[..., Any]
) -> None:
    before = state_of(db)
    assert value("select pgflow.ensure_flow_compiled('f', %s, true)", shape("a"))["status"] == "verified"
    assert state_of(db) == before


@pytest.mark.parametrize("release", ["core_0_16_0"], indirect=True)
def test_the_third_argument_is_gone_at_0_16_0(refused: Callable[..., psycopg.Error]) -> None:
    error = refused("select pgflow.ensure_flow_compiled('f', %s, false)", shape("a"))
    assert error.sqlstate == "42883"
    assert error.diag.message_primary == (
        "function pgflow.ensure_flow_compiled(unknown, jsonb, boolean) does not exist"
    )


LOCK = """
select mode, granted from pg_locks
where locktype = 'advisory' and objsubid = 2 and classid = 1 and pid = %s
  and objid::bigint = hashtext(%s)::bigint & x'ffffffff'::bigint
"""


@pytest.mark.parametrize("status", ["compiled", "verified", "mismatch"])
def test_holds_its_advisory_lock_until_the_transaction_ends(
    release: str,
    database_at: Callable[[str], str],
    connect: Callable[[str], Connection],
    status: str,
) -> None:
    dsn = database_at(release)
    worker, observer = connect(dsn), connect(dsn)
    if status != "compiled":
        worker.execute(ENSURE, (shape("a" if status == "verified" else "x"),))
    pid = worker.info.backend_pid
    with worker.transaction():
        answer = worker.execute(f"{ENSURE} as answer", (shape("a"),)).fetchone()
        assert answer is not None
        assert answer["answer"]["status"] == status
        assert observer.execute(LOCK, (pid, "f")).fetchall() == [{"mode": "ExclusiveLock", "granted": True}]
    assert observer.execute(LOCK, (pid, "f")).fetchall() == []


def test_concurrent_calls_for_one_flow_run_one_after_the_other(
    release: str,
    database_at: Callable[[str], str],
    connect: Callable[[str], Connection],
    in_background: Callable[..., Future[list[dict[str, Any]]]],
    until_waiting: Callable[..., str],
) -> None:
    dsn = database_at(release)
    first, second, third, observer = (connect(dsn) for _ in range(4))
    with first.transaction():
        first.execute(ENSURE, (shape("a"),))
        pending = in_background(second, f"{ENSURE} as answer", shape("a"))
        assert until_waiting(observer, second) == "advisory"
        assert observer.execute(LOCK, (second.info.backend_pid, "f")).fetchall() == [
            {"mode": "ExclusiveLock", "granted": False}
        ]
        # Another flow does not wait.
        third.execute("set statement_timeout = '20s'")
        third.execute("select pgflow.ensure_flow_compiled('g', %s)", (shape("a"),))
    assert pending.result(20) == [{"answer": {"status": "verified", "differences": []}}]


def test_a_waiting_call_compiles_when_the_first_is_rolled_back(
    release: str,
    database_at: Callable[[str], str],
    connect: Callable[[str], Connection],
    in_background: Callable[..., Future[list[dict[str, Any]]]],
    until_waiting: Callable[..., str],
) -> None:
    dsn = database_at(release)
    first, second, observer = (connect(dsn) for _ in range(3))
    with first.transaction(force_rollback=True):
        first.execute(ENSURE, (shape("a"),))
        pending = in_background(second, f"{ENSURE} as answer", shape("b"))
        assert until_waiting(observer, second) == "advisory"
    assert pending.result(20) == [{"answer": {"status": "compiled", "differences": []}}]
