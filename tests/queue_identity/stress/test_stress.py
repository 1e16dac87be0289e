"""2,000 runs under faults of every kind end, and everything adds up."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
from tests.queue_identity.laws import breaches
from tests.queue_identity.stress import ledger
from tests.queue_identity.stress.actors import (
    CAPABLE,
    Actor,
    Books,
    Deleter,
    Killer,
    Producer,
    Recovery,
    Worker,
    report,
    same,
)
from tests.queue_identity.stress.flows import DOOMED, FLOWS

Connection = psycopg.Connection[dict[str, Any]]

SEED = int(os.environ.get("PGFLOW_MIGRATE_TEST_SEED", "650"))
RUNS = sum(flow.runs for flow in FLOWS)
WORKERS = 4
PATIENCE = 240.0  # seconds, for a machine that does much else at the same time

MESSAGES = " union all ".join(
    f"select '{table}' as place, '{flow.slug.lower()}' as queue_name, msg_id"
    f" from pgmq.{table}_{flow.slug.lower()}"
    for flow in FLOWS
    for table in "qa"
)

OPEN = f"""
select (select count(*) from pgflow.runs where flow_slug <> '{DOOMED}' and status = 'started')
  + (select count(*) from ({MESSAGES}) as message where place = 'q') as count
"""

# Of all that callbacks may change a fingerprint: the rows themselves would take long to read.
EVERYTHING = f"""
select count(*) as rows, sum(hashtextextended(one::text, 0)) as fingerprint from (
  select to_jsonb(runs) as one from pgflow.runs
  union all select to_jsonb(step_states) from pgflow.step_states
  union all select to_jsonb(step_tasks) from pgflow.step_tasks
  union all select to_jsonb(messages) from ({MESSAGES}) as messages
  union all select jsonb_build_object('events', count(*)) from realtime.messages
) as everything
"""


def wait_for_the_end(chief: Connection, producer: Producer, books: Books, give_up_at: float) -> None:
    """Until every run is over and every queue is empty."""
    while producer.todo or chief.execute(OPEN).fetchall()[0]["count"]:
        assert books.errors == [], f"seed {SEED}: {books.errors}"
        assert time.monotonic() < give_up_at, f"seed {SEED}: not over in time, {left_over(chief, producer)}"
        time.sleep(0.1)


def left_over(chief: Connection, producer: Producer) -> str:
    """What is not over yet, in short."""
    runs = chief.execute(
        "select runs.flow_slug, tasks.status, tasks.requeued_count, tasks.permanently_stalled_at, count(*)"
        " from pgflow.runs left join pgflow.step_tasks as tasks"
        "   on tasks.run_id = runs.run_id and tasks.status in ('queued', 'started')"
        " where runs.status = 'started' group by 1, 2, 3, 4 limit 20"
    ).fetchall()
    return f"{len(producer.todo)} runs to start; {runs}"


def test_2000_runs_under_faults_end_and_everything_adds_up(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at("queue_identity")
    chief = connect(dsn)
    chief.execute(ledger.KEEP)
    for flow in FLOWS:
        chief.execute("select pgflow.ensure_flow_compiled(%s, %s, %s)", (flow.slug, flow.shape, CAPABLE))
    books = Books()
    producer = Producer("producer", dsn, SEED, books)
    workers: list[Actor] = [Worker(f"worker {number}", dsn, SEED, books) for number in range(WORKERS)]
    others: list[Actor] = [
        kind(kind.__name__.lower(), dsn, SEED, books) for kind in (Recovery, Killer, Deleter)
    ]
    actors = [producer, *workers, *others]
    give_up_at = time.monotonic() + PATIENCE
    for actor in actors:
        actor.start()
    try:
        wait_for_the_end(chief, producer, books, give_up_at)
    finally:
        for actor in actors:
            actor.stop.set()
        for actor in actors:
            actor.join()
    assert books.errors == [], f"seed {SEED}: {books.errors}"
    chief.execute("select pgflow.delete_flow_and_data(%s)", (DOOMED,))

    runs = chief.execute("select flow_slug, status, count(*) from pgflow.runs group by 1, 2").fetchall()
    assert sum(run["count"] for run in runs if run["status"] in ("completed", "failed")) == RUNS, runs
    per_flow: Counter[str] = Counter()
    for run in runs:
        per_flow[run["flow_slug"]] += run["count"]
    assert per_flow == {flow.slug: flow.runs for flow in FLOWS}
    assert breaches(chief) == [], f"seed {SEED}"
    check_messages(chief, books)
    check_tasks(chief, books)
    check_late_callbacks(chief, books)
    check_faults(books)


def check_messages(chief: Connection, books: Books) -> None:
    """Every message that was ever sent is in its archive, once, and nowhere else."""
    messages = Counter(
        (row["place"], row["queue_name"], row["msg_id"]) for row in chief.execute(MESSAGES).fetchall()
    )
    tasks = chief.execute("select queue_name, message_id from pgflow.step_tasks").fetchall()
    sent = Counter(("a", row["queue_name"], row["message_id"]) for row in tasks)
    sent.update(("a", queue, message) for queue, message in books.strays)
    assert messages == sent, f"seed {SEED}: {messages - sent} too many, {sent - messages} missing"


def check_tasks(chief: Connection, books: Books) -> None:
    """Ledger, counters and the workers' own books agree on every task."""
    assert ledger.odd_entries(chief) == [], f"seed {SEED}"
    sums = ledger.sums(chief)
    assert ledger.wrong_sums(sums) == [], f"seed {SEED}"
    places = {
        (row["run_id"], row["step_slug"], row["task_index"]): (row["queue_name"], row["message_id"])
        for row in chief.execute("select * from pgflow.step_tasks").fetchall()
    }
    for row in sums:
        key = (row["run_id"], row["step_slug"], row["task_index"])
        unknown = row["starts"] - books.handed[key]
        assert 0 <= unknown <= books.lost[places[key]], f"seed {SEED}: {row}, handed {books.handed[key]}"
        assert row["retries"] + (row["status"] == "failed") <= books.failures[key], f"seed {SEED}: {row}"
        if row["status"] == "completed":
            assert any(same(row["output"], output) for output in books.outputs[key]), f"seed {SEED}: {row}"


def check_late_callbacks(chief: Connection, books: Books) -> None:
    """Whatever was held back until now changes nothing any more; nor does any callback told again."""
    before = chief.execute(EVERYTHING).fetchall()
    for key, result in books.late:
        report(chief, key, result)
    for key, outputs in list(books.outputs.items())[:200]:
        report(chief, key, outputs[-1])
    for key in list(books.failures)[:200]:
        report(chief, key, None)
    assert chief.execute(EVERYTHING).fetchall() == before, f"seed {SEED}"


def check_faults(books: Books) -> None:
    """There were faults of every kind that the dice must show, else the test shows nothing."""
    for fault in (
        "connection lost", "terminated", "died before its claim", "died with its whole batch", "died at work",
        "late", "told twice", "given up", "flow deleted",
        "messages foreign", "messages deferred", "messages busy",
    ):  # fmt: skip
        assert books.faults[fault] > 0, f"seed {SEED}: {fault} never happened, {dict(books.faults)}"
