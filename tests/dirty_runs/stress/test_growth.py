"""The cost of a call of reconcile_one_run, in rows and pages, while the other runs become many.

10,000 of them; ``make evidence`` has 100,000.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from uuid import UUID

from tests.dirty_runs.changes import without_triggers
from tests.dirty_runs.conftest import Open
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.reads import Reads, counted

FEW = 1_000
MANY = int(os.environ.get("PGFLOW_MIGRATE_RUNS", "10000"))

# A third is clean, a third is due, a third waits for its back-off; the task and the message of A are there.
OTHERS = """
with made as materialized (
  insert into pgflow.runs (flow_slug, input, remaining_steps)
  select 'demo', '{}', 2 from generate_series(1, %s)
  returning run_id
), numbered as (
  select run_id, (array['clean', 'pending', 'retry_wait'])[1 + row_number() over () %% 3] as state from made
), worked as (
  insert into pgflow.run_work (
    run_id, flow_slug, definition_sha256, state, requested_generation, processed_generation, requested_at,
    failure_count, last_error, last_error_sqlstate, last_failed_at, next_attempt_at
  )
  select run_id, 'demo', (select definition_sha256 from pgflow.run_work limit 1), state, 1,
    case state when 'clean' then 1 else 0 end, now(), waits.number,
    case waits.number when 1 then 'x' end, case waits.number when 1 then 'XX000' end,
    case waits.number when 1 then now() end, case waits.number when 1 then now() + interval '1 day' end
  from numbered, lateral (select (state = 'retry_wait')::integer as number) waits
), stated as (
  insert into pgflow.step_states (flow_slug, run_id, step_slug, remaining_deps, initial_tasks)
  select 'demo', run_id, step, 0, 1 from made, unnest('{a,b}'::text[]) step
), sent as (
  insert into pgmq.q_demo (vt, message)
  select now(), jsonb_build_object('flow_slug', 'demo', 'run_id', run_id, 'step_slug', 'a', 'task_index', 0)
  from made
)
insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, queue_name, message_id)
select 'demo', run_id, 'a', 0, 'demo', 10000000 + (select count(*) from pgflow.step_tasks)
  + row_number() over ()
from made
"""


@dataclass(frozen=True)
class Cost:
    """Of one call.

    Attributes:
        outcome: what it did.
        reads: rows and index entries read, by table.
        pages: pages touched.
    """

    outcome: str
    reads: Reads
    pages: int


def cost(session: Session, run: UUID | None) -> Cost:
    """Reconcile by a chunk, which commits."""
    with session.connection.transaction():
        before = counted(session)
        (plan,) = session.value(
            "explain (analyze, buffers, verbose, format json)"
            " select set_config('tests.made', pgflow.reconcile_one_run(%s)::text, true)",
            run,
        )
        after = counted(session)
        outcome: str = session.value("select current_setting('tests.made')::jsonb ->> 'outcome'")
    top = plan["Plan"]
    reads = {table: after[table] - before[table] for table in after if after[table] != before[table]}
    return Cost(outcome, reads, top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def costs(session: Session) -> list[Cost]:
    """Of every kind of chunk of a run, and of a chunk of whichever run is due first."""
    run = session.started()
    session.complete(session.claimed(run, "a"), 1)
    found = [cost(session, run), cost(session, run)]
    session.complete(session.claimed(run, "b"), 2)
    return [*found, cost(session, run), cost(session, run), cost(session, run), cost(session, None)]


def least(session: Session) -> list[Cost]:
    """The same, of three times the cheapest: after autovacuum looked at a table plans are made anew."""
    rounds = [costs(session) for _ in range(3)]
    return [min(same, key=lambda cost: cost.pages) for same in zip(*rounds, strict=True)]


def add_others(session: Session, number: int) -> None:
    with without_triggers(session):
        session.execute(OTHERS, number)


def test_a_call_costs_the_same_whether_others_are_few_or_very_many(demo: Session, open_session: Open) -> None:
    # This one has made its plans while there was nothing; nobody has them made anew.
    processor = open_session()
    for _ in range(3):
        costs(processor)
    add_others(demo, FEW)
    costs(processor)
    few = least(processor)
    add_others(demo, MANY - FEW)
    many = least(processor)
    assert demo.value("select count(*) from pgflow.run_work where state = 'pending'") > MANY / 4

    for a, b in zip(few, many, strict=True):
        assert (b.outcome, set(b.reads)) == (a.outcome, set(a.reads))
        # A handful of rows, and index entries of row versions that the run itself has left.
        assert max(*a.reads.values(), *b.reads.values()) <= 30, (a, b)
        # A level more of some indexes, and of the maps of free space.
        assert b.pages <= 1.5 * a.pages, (a, b)
    assert [one.outcome for one in few] == ["dispatched", "clean", "finalized", "clean", "idle", "clean"]
