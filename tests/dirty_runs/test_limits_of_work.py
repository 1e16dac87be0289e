"""What is really read: rows and index entries as the server counts them, not loops or time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
from tests.dirty_runs.changes import without_triggers
from tests.dirty_runs.protocol import WORKER, Row, Session
from tests.dirty_runs.reads import Reads, counted, reading

from pgflow_migrate.dirty_runs.limits import limit
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

MANY = 20_000
RUNS = 2_000


@pytest.fixture(scope="module")
def crowd(server: Server, templates: Templates) -> Iterator[Session]:
    """A database with very large flows, and thousands of runs whose back-off is not over."""
    name = "dirty_runs_crowd"
    session = Session(templates.clone("dirty_runs", name))
    session.define()
    session.execute("select pgflow.create_flow('wide', 1, 0, 60), pgflow.create_flow('dense', 1, 0, 60)")
    with without_triggers(session):
        session.execute(
            "insert into pgflow.steps (flow_slug, step_slug, step_index, deps_count, queue_name)"
            f" select 'wide', 's' || i, i, 0, 'wide' from generate_series(1, {MANY}) i"
            f" union all select 'dense', 's' || i, i, 0, 'dense' from generate_series(1, 201) i"
        )
        session.execute(
            "insert into pgflow.deps (flow_slug, dep_slug, step_slug)"
            f" select 'wide', 's' || i, 's' || i + 1 from generate_series(1, {MANY} - 1) i"
            " union all select 'dense', 's' || i, 's' || k"
            "   from generate_series(1, 200) i, generate_series(1, 201) k where i < k"
        )
        session.execute(
            "with made as ("
            "  insert into pgflow.runs (flow_slug, input, remaining_steps)"
            f" select 'demo', '1', 1 from generate_series(1, {RUNS}) returning run_id"
            "), worked as ("
            "  insert into pgflow.run_work (run_id, flow_slug, definition_sha256, state,"
            "    requested_generation, requested_at, failure_count, last_error, last_error_sqlstate,"
            "    last_failed_at, next_attempt_at)"
            "  select run_id, 'demo', sha256(''), 'retry_wait', 1,"
            "    now(), 1, 'x', 'XX000', now(), now() + interval '1 day'"
            "  from made"
            "), stated as ("
            "  insert into pgflow.step_states (flow_slug, run_id, step_slug, remaining_deps, initial_tasks)"
            "  select 'demo', run_id, step, 0, 1 from made, unnest('{a,b}'::text[]) step"
            ")"
            "insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, queue_name, message_id)"
            " select 'demo', run_id, 'a', 0, 'demo', 100000 + row_number() over () from made"
        )
    session.execute("vacuum analyze")
    yield session
    session.close()
    server.drop_database(name)


def test_the_count_of_reads_counts_what_a_scan_reads(crowd: Session) -> None:
    with reading(crowd) as reads:
        crowd.value("select count(*) from pgflow.steps where flow_slug = 'wide'")
    assert reads["steps"] >= MANY
    with reading(crowd) as reads:
        crowd.value("select count(*) from pgflow.deps where flow_slug = 'wide' and dep_slug = 's77'")
    assert reads == {"deps": 1}


# -- starts ------------------------------------------------------------------------------------------------


def test_a_flow_of_very_many_steps_and_edges_is_rejected_by_reading_one_of_each_beyond(
    crowd: Session,
) -> None:
    with unchanged_counts(crowd), reading(crowd) as reads:
        outcome = crowd.start("wide")
    assert outcome == {"outcome": "rejected", "reasons": ["step_count", "edge_count"]}
    assert reads["steps"] == limit("steps") + 1
    assert reads["deps"] == limit("edges") + 1
    assert set(reads) == {"flows", "steps", "deps"}

    definition = crowd.row("select * from pgflow._v2_definition('wide')")
    assert definition["examined"] == 1 + limit("steps") + 1 + limit("edges") + 1
    assert (len(definition["definition"]["steps"]), len(definition["definition"]["edges"])) == (3, 2)


def test_a_flow_of_very_many_edges_is_rejected_by_reading_two_of_them(crowd: Session) -> None:
    assert crowd.value("select count(*) from pgflow.deps where flow_slug = 'dense'") == 20_100
    with reading(crowd) as reads:
        assert crowd.start("dense") == {"outcome": "rejected", "reasons": ["step_count", "edge_count"]}
    assert (reads["steps"], reads["deps"]) == (3, 2)


@contextmanager
def unchanged_counts(session: Session) -> Iterator[None]:
    """As ``unchanged``, for many rows: no table has other rows than before, by number."""
    tables = ("flows", "steps", "deps", "runs", "run_work", "step_states", "step_tasks", "task_claims")

    def numbers() -> list[int]:
        return [session.value(f"select count(*) from pgflow.{table}") for table in tables]

    before = numbers()
    yield
    assert numbers() == before


# -- calls on one run among thousands ----------------------------------------------------------------------


def distinct_rows(session: Session, run: UUID) -> int:
    """The rows that a run's chunk has to look at: run, work, flow, steps, edges, states and tasks."""
    found: int = session.value(
        "select (select count(*) from pgflow.runs where run_id = r.run_id)"
        " + (select count(*) from pgflow.run_work where run_id = r.run_id)"
        " + (select count(*) from pgflow.flows where flow_slug = r.flow_slug)"
        " + (select count(*) from pgflow.steps where flow_slug = r.flow_slug)"
        " + (select count(*) from pgflow.deps where flow_slug = r.flow_slug)"
        " + (select count(*) from pgflow.step_states where run_id = r.run_id)"
        " + (select count(*) from pgflow.step_tasks where run_id = r.run_id)"
        " from pgflow.runs r where run_id = %s",
        run,
    )
    return found


def assert_few(reads: Reads) -> None:
    """A handful of rows in each table, though the tables have thousands: some are read again after a lock."""
    assert reads, "nothing was counted"
    assert max(reads.values()) <= 30, reads


def test_what_a_chunk_examined_are_the_rows_of_its_run(crowd: Session) -> None:
    run = crowd.started()
    crowd.complete(crowd.claimed(run, "a"), 1)
    expected = [("dispatched", 9), ("clean", 10), ("finalized", 10)]
    for outcome, examined in expected:
        rows = distinct_rows(crowd, run)
        with reading(crowd) as reads:
            made = crowd.reconcile(run)
        assert (made["outcome"], made["examined"]) == (outcome, examined)
        assert made["examined"] == rows <= limit("examined_rows_per_chunk")
        assert_few(reads)
        assert crowd.reconcile(run)["outcome"] == outcome  # This time for good.
        if outcome == "clean":
            crowd.complete(crowd.claimed(run, "b"), 2)
    with reading(crowd) as reads:
        assert crowd.reconcile(run) == {"outcome": "clean", "examined": 2, "run_id": str(run)}
    assert set(reads) == {"runs", "run_work"}
    assert crowd.reconcile(run)["outcome"] == "clean"


def test_every_call_reads_a_handful_of_rows_among_thousands_of_runs(crowd: Session) -> None:
    with reading(crowd) as reads:
        crowd.started()
    assert_few(reads)
    run = crowd.started()
    with reading(crowd) as reads:
        claim = crowd.claimed(run, "a")
        assert crowd.claim(run, "a")["outcome"] == "held"
    assert_few(reads)
    claim = crowd.claimed(run, "a")
    for call in ("succeed", "fail", "request"):
        with reading(crowd) as reads:
            if call == "request":
                assert crowd.request(run)["outcome"] == "requested"
            else:
                outcome = crowd.complete(claim, 1) if call == "succeed" else crowd.fail(claim)
                assert outcome["outcome"] == "accepted"
        assert_few(reads)
    crowd.expire(claim)
    with reading(crowd) as reads:
        assert crowd.recover(run, "a", claim)["outcome"] == "recovered"
    assert_few(reads)
    crowd.fail(claim)


@pytest.mark.parametrize(("table", "rows"), [("step_states", 1), ("step_tasks", 2), ("step_tasks", 500)])
def test_a_run_with_more_rows_than_the_contract_allows_fails_its_chunk(
    crowd: Session, table: str, rows: int
) -> None:
    run = crowd.started()
    crowd.complete(crowd.claimed(run, "a"), 1)
    with reading(crowd):
        with without_triggers(crowd):
            if table == "step_states":
                crowd.execute(
                    "insert into pgflow.step_states"
                    " (flow_slug, run_id, step_slug, remaining_deps, initial_tasks)"
                    " values ('demo', %s, 'c', 0, 1)",
                    run,
                )
            else:
                crowd.execute(
                    "insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, queue_name)"
                    f" select 'demo', %s, 'a', i, 'demo' from generate_series(1, {rows}) i",
                    run,
                )
        before = counted(crowd)
        outcome = crowd.reconcile(run)
        after = counted(crowd)
        assert (outcome["outcome"], outcome["sqlstate"]) == ("failed", "PF007")
        assert f"run {run} has more rows than the contract allows: " in outcome["error"]
        # One beyond the limit, and entries of row versions that the run has left in the indexes.
        assert after[table] - before[table] <= 10
        assert crowd.state(run, "b")["status"] == "created"
    assert crowd.settle_down(run) == ["dispatched", "clean"]


# -- candidates --------------------------------------------------------------------------------------------


def make_due(session: Session, number: int) -> list[UUID]:
    """Let the back-off of some runs be over; their ids, longest due first."""
    with without_triggers(session):
        found = session.rows(
            "update pgflow.run_work w set next_attempt_at = now() - interval '1 h' * (1 + chosen.place)"
            " from (select run_id, row_number() over (order by run_id desc) as place from pgflow.run_work"
            f"   where state = 'retry_wait' limit {number}) chosen"
            " where w.run_id = chosen.run_id returning w.run_id, w.next_attempt_at"
        )
    return [row["run_id"] for row in sorted(found, key=lambda row: row["next_attempt_at"])]


def test_runs_that_are_not_due_are_not_read(crowd: Session) -> None:
    with reading(crowd) as reads:
        assert crowd.reconcile() == {"outcome": "idle", "busy": 0}
    # Entries of row versions that other tests have left, at most.
    assert set(reads) <= {"run_work"}
    assert reads.get("run_work", 0) <= 30, reads


def test_no_more_candidates_are_read_than_are_allowed(crowd: Session) -> None:
    candidates = limit("candidate_rows")
    with reading(crowd):
        due = make_due(crowd, 500)
        before = counted(crowd)["run_work"]
        assert crowd.reconcile()["run_id"] == str(due[0])
        # Beside the candidates: the work row under its lock, and its update.
        assert counted(crowd)["run_work"] - before <= candidates + 4


@pytest.mark.parametrize("free", [0, 1])
def test_processors_pass_over_as_many_locked_runs_as_there_are_candidates(
    session: Session, free: int
) -> None:
    session.define()
    runs = [session.started() for _ in range(limit("candidate_rows") + 1)]
    for run in runs:
        session.request(run)
    processor = Session(session.dsn)
    processor.execute("set lock_timeout = '5s'")
    try:
        with session.connection.transaction():
            session.execute(
                "select from pgflow.runs where run_id = any (%s) for update",
                runs[: limit("candidate_rows") - free],
            )
            outcome = processor.reconcile()
            if free:  # The last candidate is free: it is taken.
                assert (outcome["outcome"], outcome["run_id"]) == ("clean", str(runs[-2]))
            else:  # The seventeenth is free, and not looked at.
                assert outcome == {"outcome": "busy", "busy": limit("candidate_rows")}
        assert processor.reconcile()["run_id"] == str(runs[0])
    finally:
        processor.close()


# -- message ids -------------------------------------------------------------------------------------------

HUGE = {
    "equal": "array_fill(1::bigint, array[100000])",
    "all others": "array(select generate_series(1, 100000)::bigint)",
    "nested": "array_fill(1::bigint, array[1000, 100])",
    "from a negative index": "array_fill(1::bigint, array[100000], array[-50000])",
    "NULLs": "array_fill(null::bigint, array[100000])",
}


@pytest.mark.parametrize("ids", HUGE.values(), ids=HUGE)
def test_a_huge_array_of_ids_is_rejected_at_no_cost(crowd: Session, ids: str) -> None:
    run = crowd.value("select run_id from pgflow.runs limit 1")
    rejected = {"outcome": "rejected", "reason": "message_ids"}
    calls = {
        "claim": f"pgflow.claim_task_v2('{run}', 'a', 0, 'demo', given.ids, '{WORKER}')",
        "recovery": f"pgflow.recover_task_v2('{run}', 'a', 0, '{WORKER}', given.ids)",
    }
    with unchanged_counts(crowd):
        for call in calls.values():
            statement = f"select {call} as made from (select {{}} as ids offset 0) given"
            assert crowd.value(statement.format(ids)) == rejected
            with reading(crowd) as reads:
                assert crowd.value(statement.format(ids)) == rejected
            assert reads == {}
            # Not a page more than with two ids.
            two = statement.format("array_fill(1::bigint, array[2])")
            assert pages(crowd, statement.format(ids)) == pages(crowd, two)


def pages(session: Session, statement: str) -> tuple[int, int]:
    """Pages that a statement touches, in shared and in temporary buffers, once all is compiled."""
    for _ in range(2):
        (plan,) = session.value(f"explain (analyze, buffers, format json) {statement}")
    top: Row = plan["Plan"]
    return (
        top["Shared Hit Blocks"] + top["Shared Read Blocks"],
        top["Temp Read Blocks"] + top["Temp Written Blocks"],
    )


def test_a_look_at_an_array_does_not_expand_it(session: Session) -> None:
    """A thousand looks at a million ids take less than a hundred expansions: no look expands them."""

    def milliseconds(query: str) -> float:
        (plan,) = session.value(f"explain (analyze, timing off, format json) {query}")
        taken: float = plan["Execution Time"]
        return taken

    ids = "array_fill(1::bigint, array[1000000])"
    looks = milliseconds(
        f"with given as materialized (select {ids} as ids)"
        " select count(*) filter (where pgflow._v2_is_singleton(case when turn > 0 then ids end))"
        " from given, generate_series(1, 1000) turn"
    )
    assert looks < 100 * milliseconds(f"select count(*) from unnest({ids})")
    assert session.value(f"select pgflow._v2_is_singleton({ids})") is False
