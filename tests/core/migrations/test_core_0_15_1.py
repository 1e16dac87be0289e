"""The upgrade of a populated 0.15.0 to 0.15.1: two statuses more, six functions replaced, two repairs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate.errors import SqlFileError

Connection = psycopg.Connection[dict[str, Any]]
State = dict[str, list[dict[str, Any]]]
Catalogue = Callable[[Connection], dict[str, Any]]
Upgrade = Callable[[str, str], None]

RUNS = ("started", "completed", "failed")
STEPS = ("started", "completed", "failed", "skipped")
TASKS = ("queued", "started", "completed", "failed")

# (run, step): what becomes of its queued and started tasks. Every other pair keeps them.
REPAIRED = {
    ("started", "skipped"): "skipped",
    ("completed", "skipped"): "skipped",
    ("failed", "skipped"): "skipped",  # the step is looked at first, so not "cancelled"
    ("failed", "started"): "cancelled",
    ("failed", "completed"): "cancelled",
    ("failed", "failed"): "cancelled",
}
REPLACED = {
    "pgflow._cascade_force_skip_steps(uuid,text,text)",
    "pgflow.cascade_resolve_conditions(uuid)",
    "pgflow.complete_task(uuid,text,integer,jsonb)",
    "pgflow.fail_task(uuid,text,integer,text)",
    "pgflow.requeue_stalled_tasks()",
    "pgflow.start_tasks(text,bigint[],uuid)",
}


@pytest.fixture
def old(database_at: Callable[[str], str], connect: Callable[[str], Connection]) -> tuple[str, Connection]:
    """An empty 0.15.0: its connection string, and a connection."""
    dsn = database_at("core_0_15_0")
    return dsn, connect(dsn)


def populate(db: Connection) -> None:
    """A run of each status, in it a step of each status, in that a task of each status, all columns set.

    ``task_index`` numbers the tasks; queued and started ones have their message in the queue.
    """
    db.execute("select pgflow.create_flow('f')")
    for step in STEPS:
        db.execute("select pgflow.add_step('f', %s, step_type => 'map')", (f"is_{step}",))
    db.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name, stopped_at)"
        " values ('00000000-0000-4000-8000-00000000000a', 'f', 'fn', now())"
    )
    db.execute(
        """
        insert into pgflow.runs
          (run_id, flow_slug, status, input, remaining_steps, started_at, completed_at, failed_at)
        select md5(status)::uuid, 'f', status, '[]', 1, now() - interval '3 days',
          case status when 'completed' then now() end, case status when 'failed' then now() end
        from unnest(%s::text[]) as status
        """,
        (list(RUNS),),
    )
    db.execute(
        """
        insert into pgflow.step_states
          (flow_slug, run_id, step_slug, status, initial_tasks, remaining_tasks, created_at, started_at,
           completed_at, failed_at, skipped_at, skip_reason, error_message)
        select 'f', run_id, 'is_' || s, s, 4,
          case s when 'skipped' then null when 'completed' then 0 else 2 end,
          r.started_at, r.started_at,
          case s when 'completed' then now() end, case s when 'failed' then now() end,
          case s when 'skipped' then now() end, case s when 'skipped' then 'handler_failed' end,
          case s when 'failed' then 'boom' end
        from pgflow.runs as r cross join unnest(%s::text[]) as s
        """,
        (list(STEPS),),
    )
    db.execute(
        """
        insert into pgflow.step_tasks
          (flow_slug, run_id, step_slug, task_index, status, attempts_count, error_message, output, queued_at,
           started_at, completed_at, failed_at, last_worker_id, requeued_count, last_requeued_at,
           permanently_stalled_at)
        select 'f', run_id, step_slug, t.number - 1, t.status, 2, 'earlier',
          case t.status when 'completed' then '1'::jsonb end, created_at,
          case when t.status <> 'queued' then now() - interval '1 day' end,
          case t.status when 'completed' then now() end, case t.status when 'failed' then now() end,
          '00000000-0000-4000-8000-00000000000a', 3, now() - interval '1 hour',
          case t.status when 'started' then now() - interval '1 minute' end
        from pgflow.step_states cross join unnest(%s::text[]) with ordinality as t (status, number)
        """,
        (list(TASKS),),
    )
    db.execute(
        """
        update pgflow.step_tasks as t set message_id = (
          select pgmq.send('f', jsonb_build_object('flow_slug', t.flow_slug, 'run_id', t.run_id,
            'step_slug', t.step_slug, 'task_index', t.task_index)))
        """
    )
    db.execute("select from pgmq.read('f', 60, 1000)")
    db.execute(
        "select pgmq.archive('f', message_id) from pgflow.step_tasks where status in ('completed', 'failed')"
    )
    # A task that never had a message is repaired too.
    db.execute(
        "update pgflow.step_tasks set message_id = null where status = 'queued' and step_slug = 'is_skipped'"
    )


TASK_ROWS = """
select r.status as run, s.status as step, t.status as task, to_jsonb(t) - 'status' as rest,
  t.xmin::text as version
from pgflow.step_tasks as t join pgflow.runs as r using (run_id)
  join pgflow.step_states as s using (run_id, step_slug)
order by t.run_id, t.step_slug, t.task_index
"""


def test_unfinished_tasks_of_skipped_steps_and_then_of_failed_runs_are_ended_and_nothing_else_changes(
    old: tuple[str, Connection], upgrade: Upgrade, state_of: Callable[[Connection], State]
) -> None:
    dsn, db = old
    populate(db)
    before, rows_before = state_of(db), db.execute(TASK_ROWS).fetchall()
    assert len(rows_before) == 3 * 4 * 4

    upgrade(dsn, "core_0_15_1")

    rows_after = db.execute(TASK_ROWS).fetchall()
    for was, now in zip(rows_before, rows_after, strict=True):
        unfinished = was["task"] in ("queued", "started")
        expected = REPAIRED.get((was["run"], was["step"])) if unfinished else None
        assert now["task"] == (expected or was["task"]), was
        # Attempts, times, worker, error, counters, message and output stay.
        assert now["rest"] == was["rest"]
        # A row that is not repaired is not even rewritten.
        assert (now["version"] == was["version"]) == (expected is None), was
    assert sum(now["task"] == "skipped" for now in rows_after) == 6
    assert sum(now["task"] == "cancelled" for now in rows_after) == 6

    after = state_of(db)
    # Runs and steps, queue and archive (with visibilities and read counts), events: all as before.
    changed = {table for table in before if before[table] != after[table]}
    assert changed == {"pgflow.step_tasks"}
    assert len(after["pgmq.q_f"]) == 24
    assert len(after["pgmq.a_f"]) == 24


def test_runs_and_steps_are_not_rewritten(old: tuple[str, Connection], upgrade: Upgrade) -> None:
    dsn, db = old
    populate(db)
    query = (
        "select ctid::text, xmin::text from pgflow.runs union all select ctid::text, xmin::text"
        " from pgflow.step_states union all select ctid::text, xmin::text from pgmq.q_f order by 1, 2"
    )
    before = db.execute(query).fetchall()
    upgrade(dsn, "core_0_15_1")
    assert db.execute(query).fetchall() == before


def test_what_0_15_0_left_behind_is_ended_and_late_callbacks_stay_harmless(
    old: tuple[str, Connection], upgrade: Upgrade, state_of: Callable[[Connection], State]
) -> None:
    dsn, db = old
    db.execute("select pgflow.create_flow('f', max_attempts => 1)")
    db.execute("select pgflow.add_step('f', 'one')")
    db.execute("select pgflow.add_step('f', 'other')")
    db.execute("select pgflow.create_flow('g', max_attempts => 1)")
    db.execute("select pgflow.add_step('g', 'each', step_type => 'map', when_exhausted => 'skip')")
    db.execute("select pgflow.add_step('g', 'last')")
    runs: dict[str, Any] = {}
    for flow, document in (("f", "{}"), ("g", "[1, 2, 3]")):
        started = db.execute("select run_id from pgflow.start_flow(%s, %s)", (flow, document)).fetchone()
        assert started is not None
        runs[flow] = started["run_id"]
        db.execute(
            "select pgflow.start_tasks(%s, array_agg(message_id), null) from pgflow.step_tasks"
            " where flow_slug = %s",
            (flow, flow),
        )
    db.execute("select pgflow.fail_task(%s, 'one', 0, 'boom')", (runs["f"],))
    db.execute("select pgflow.fail_task(%s, 'each', 0, 'boom')", (runs["g"],))
    tasks = "select step_slug, task_index, status from pgflow.step_tasks order by flow_slug, 1, 2"

    def statuses() -> list[tuple[Any, ...]]:
        return [tuple(task.values()) for task in db.execute(tasks).fetchall()]

    assert statuses() == [
        ("one", 0, "failed"),
        ("other", 0, "started"),
        ("each", 0, "failed"),
        ("each", 1, "started"),
        ("each", 2, "started"),
        ("last", 0, "started"),
    ]
    upgrade(dsn, "core_0_15_1")
    assert statuses() == [
        ("one", 0, "failed"),
        ("other", 0, "cancelled"),
        ("each", 0, "failed"),
        ("each", 1, "skipped"),
        ("each", 2, "skipped"),
        ("last", 0, "started"),
    ]
    before = state_of(db)
    db.execute("select pgflow.complete_task(%s, 'other', 0, '1')", (runs["f"],))
    db.execute("select pgflow.fail_task(%s, 'each', 1, 'late')", (runs["g"],))
    assert state_of(db) == before
    db.execute("select pgflow.complete_task(%s, 'last', 0, '1')", (runs["g"],))
    assert db.execute("select status from pgflow.runs where flow_slug = 'g'").fetchall() == [
        {"status": "completed"}
    ]


def test_only_the_status_check_and_six_function_bodies_change(
    old: tuple[str, Connection], upgrade: Upgrade, catalogue_of: Catalogue
) -> None:
    dsn, db = old
    before = catalogue_of(db)
    upgrade(dsn, "core_0_15_1")
    after = catalogue_of(db)

    assert after["columns"] == before["columns"]
    assert after["indexes"] == before["indexes"]
    constraints = before["constraints"].keys() | after["constraints"].keys()
    changed = {key for key in constraints if before["constraints"].get(key) != after["constraints"].get(key)}
    assert changed == {("pgflow.step_tasks", "valid_status")}

    assert after["functions"].keys() == before["functions"].keys()
    for name, function in after["functions"].items():
        # Same oid, owner, rights and settings: replaced, never dropped.
        assert function["attributes"] == before["functions"][name]["attributes"]
        assert (function["body"] != before["functions"][name]["body"]) == (name in REPLACED), name


def test_rights_that_were_given_survive(old: tuple[str, Connection], upgrade: Upgrade) -> None:
    dsn, db = old
    db.execute("revoke all on function pgflow.start_tasks from public")
    query = "select proacl::text as rights from pg_proc where proname = 'start_tasks'"
    before = db.execute(query).fetchall()
    assert before != [{"rights": None}]
    upgrade(dsn, "core_0_15_1")
    assert db.execute(query).fetchall() == before


def test_six_statuses_are_allowed_and_existing_rows_have_been_validated(
    old: tuple[str, Connection], upgrade: Upgrade
) -> None:
    dsn, db = old
    populate(db)
    upgrade(dsn, "core_0_15_1")
    for status in (*TASKS, "skipped", "cancelled"):
        with db.transaction(force_rollback=True):
            db.execute("update pgflow.step_tasks set output = null, status = %s", (status,))
    with pytest.raises(psycopg.errors.CheckViolation), db.transaction():
        db.execute("update pgflow.step_tasks set output = null, status = 'stalled'")
    assert db.execute("select convalidated from pg_constraint where conname = 'valid_status'").fetchall() == [
        {"convalidated": True}
    ]


def test_the_task_table_is_locked_against_everyone_until_the_commit(
    old: tuple[str, Connection],
    upgrading: Callable[[str, str], contextlib.AbstractContextManager[None]],
) -> None:
    dsn, db = old
    db.execute("set lock_timeout = '50ms'")
    with upgrading(dsn, "core_0_15_1"), pytest.raises(psycopg.errors.LockNotAvailable):
        db.execute("select from pgflow.step_tasks")
    db.execute("select from pgflow.step_tasks")


def test_a_status_outside_the_six_is_refused_and_nothing_is_repaired(
    old: tuple[str, Connection], refused_upgrade: Callable[[str, str], SqlFileError]
) -> None:
    dsn, db = old
    populate(db)
    db.execute("alter table pgflow.step_tasks drop constraint valid_status")
    db.execute(
        "update pgflow.step_tasks set status = 'paused' where step_slug = 'is_failed' and task_index = 0"
    )
    db.execute(
        "alter table pgflow.step_tasks add constraint valid_status"
        " check (status in ('queued', 'started', 'completed', 'failed')) not valid"
    )
    error = refused_upgrade(dsn, "core_0_15_1").cause
    assert error.sqlstate == "23514"
    assert error.diag.message_primary == (
        'check constraint "valid_status" of relation "step_tasks" is violated by some row'
    )


def test_a_missing_status_check_is_refused(
    old: tuple[str, Connection], refused_upgrade: Callable[[str, str], SqlFileError]
) -> None:
    dsn, db = old
    db.execute("alter table pgflow.step_tasks drop constraint valid_status")
    assert refused_upgrade(dsn, "core_0_15_1").cause.sqlstate == "42704"


CHANGED_BY_HAND = {
    "another argument name": (
        "pgflow.fail_task(uuid,text,integer,text)",
        "create function pgflow.fail_task(id uuid, step_slug text, task_index integer, error_message text)"
        " returns setof pgflow.step_tasks language sql begin atomic select * from pgflow.step_tasks; end",
        'cannot change name of input parameter "id"',
    ),
    "another result": (
        "pgflow.requeue_stalled_tasks()",
        "create function pgflow.requeue_stalled_tasks() returns bigint language sql return 0::bigint",
        "cannot change return type of existing function",
    ),
}


@pytest.mark.parametrize("change", CHANGED_BY_HAND)
def test_a_function_changed_by_hand_is_refused_and_nothing_is_repaired(
    old: tuple[str, Connection], refused_upgrade: Callable[[str, str], SqlFileError], change: str
) -> None:
    dsn, db = old
    populate(db)
    function, definition, message = CHANGED_BY_HAND[change]
    db.execute(f"drop function {function}")
    db.execute(definition)
    error = refused_upgrade(dsn, "core_0_15_1").cause
    assert (error.sqlstate, error.diag.message_primary) == ("42P13", message)


def test_an_empty_database_is_upgraded_too(old: tuple[str, Connection], upgrade: Upgrade) -> None:
    dsn, db = old
    upgrade(dsn, "core_0_15_1")
    assert db.execute("select version_num from pgflow_migrate.alembic_version").fetchall() == [
        {"version_num": "core_0_15_1"}
    ]
