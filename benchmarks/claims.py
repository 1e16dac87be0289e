"""Throughput of claim and completion: against the 0.16.0 core, between revisions, beside a growing history.

    python benchmarks/claims.py --runs 10000 --batch 10 --history 1000000
    python benchmarks/claims.py --against "queue identity"

On one server, in one run. Databases at 0.16.0 and at queue identity take turns, slice by slice, at what a
worker does with runs of a single step: read a batch, claim it, complete each task. The 0.16.0 core claims by
start_tasks, queue identity by claim_tasks. Then the same calls at queue identity and at dirty_runs, which has
them look whether a run is of protocol 1; then at the latter with a small and a large history of finished
tasks in the same flow. What counts are the ratios; the rates are this machine's. Two databases made alike
differ by some per cent, so that each comparison is made in --databases pairs of them; the ratio is the mean
of theirs, with its standard error.
"""

from __future__ import annotations

import math
import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import psycopg
from rich.console import Console
from rich.table import Table

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server, open_server

FLOW = "single"
WORKER = uuid.UUID("11111111-1111-1111-1111-111111111111")

_DEFINITION = """
  select pgflow.create_flow('single');
  select pgflow.add_step('single', 'only');
  insert into pgflow.workers (worker_id, queue_name, function_name)
  values ('11111111-1111-1111-1111-111111111111', 'single', 'benchmark');
"""

# Finished runs as the core leaves them: one completed task each, its message in the archive.
_HISTORY = """
  create temp table past on commit drop as
  select gen_random_uuid() as run_id, n.n as msg_id, now() - interval '2 days' as at
  from generate_series(1, %(size)s) n (n);

  insert into pgflow.runs (
    run_id, flow_slug, status, input, output, remaining_steps, started_at, completed_at
  )
  select run_id, 'single', 'completed', '{}', '{"only": 1}', 0, at, at from past;

  insert into pgflow.step_states (
    flow_slug, run_id, step_slug, status, remaining_tasks, remaining_deps, initial_tasks, output,
    created_at, started_at, completed_at
  )
  select 'single', run_id, 'only', 'completed', 0, 0, 1, '1', at, at, at from past;

  insert into pgflow.step_tasks (
    flow_slug, run_id, step_slug, task_index, status, attempts_count, message_id, queue_name, output,
    queued_at, started_at, completed_at
  )
  select 'single', run_id, 'only', 0, 'completed', 1, msg_id, 'single', '1', at, at, at from past;

  insert into pgmq.a_single (msg_id, read_ct, enqueued_at, archived_at, vt, message)
  select msg_id, 1, at, at, at, '{}' from past;

  select setval(pg_get_serial_sequence('pgmq.q_single', 'msg_id'), max(msg_id)) from past;
"""

_CLAIM = (
    "select (task ->> 'run_id')::uuid, task ->> 'step_slug', (task ->> 'task_index')::integer"
    " from pgflow.claim_tasks('single', flow_slug => %s, msg_ids => %s::bigint[], worker_id => %s)"
    " as outcome, jsonb_array_elements(outcome -> 'tasks') as task"
)
_CLAIMS = {
    "core_0_16_0": (
        "select run_id, step_slug, task_index"
        " from pgflow.start_tasks(flow_slug => %s, msg_ids => %s::bigint[], worker_id => %s)"
    ),
    "queue_identity": _CLAIM,
    "dirty_runs": _CLAIM,
}

AGAINST = ("the old core", "queue identity", "its own history")


@dataclass
class Subject:
    """A database under measurement, and the seconds that it has spent."""

    name: str
    release: str
    connection: psycopg.Connection[tuple[Any, ...]]
    claiming: float = 0.0
    completing: float = 0.0
    tasks: int = 0

    @property
    def rate(self) -> float:
        """Tasks claimed and completed in a second."""
        return self.tasks / (self.claiming + self.completing)

    def start(self, runs: int) -> None:
        """Start runs; not timed."""
        self.connection.execute(
            "select count(*) from generate_series(1, %s) n (n), pgflow.start_flow('single', to_jsonb(n.n))",
            (runs,),
        )

    def work(self, batch: int) -> None:
        """Claim and complete all that is there, a batch at a time."""
        for messages in self._batches(batch):
            began = time.perf_counter()
            tasks = self.connection.execute(
                _CLAIMS[self.release].encode(), (FLOW, messages, WORKER)
            ).fetchall()
            claimed = time.perf_counter()
            for task in tasks:
                self.connection.execute("select pgflow.complete_task(%s, %s, %s, '1')", task)
            done = time.perf_counter()
            assert len(tasks) == len(messages)
            self.claiming += claimed - began
            self.completing += done - claimed
            self.tasks += len(tasks)

    def _batches(self, size: int) -> Iterator[list[int]]:
        while True:
            rows = self.connection.execute(
                "select msg_id from pgmq.read('single', 60, %s)", (size,)
            ).fetchall()
            if not rows:
                return
            yield [row[0] for row in rows]


def _subject(server: Server, name: str, release: str, history: int = 0) -> Subject:
    dsn = Templates(server).clone(release, name.replace(" ", "_"))
    connection = psycopg.connect(dsn, autocommit=True)
    connection.execute(_DEFINITION)
    if history:
        with connection.transaction():
            psycopg.ClientCursor(connection).execute(_HISTORY, {"size": history})
        connection.execute("vacuum analyze")
    return Subject(name, release, connection)


def _measure(subjects: list[Subject], runs: int, slices: int, batch: int) -> None:
    """Let the subjects take turns, so that what else happens on the machine meets all of them alike."""
    for subject in subjects:
        subject.start(10 * batch)  # Plans are made, functions and caches filled.
        subject.work(batch)
        subject.claiming = subject.completing = subject.tasks = 0
    for number in range(slices):
        for subject in subjects[number % 2 :: 1] + subjects[: number % 2]:
            subject.start(runs // slices)
            subject.work(batch)


@click.command()
@click.option("--server", default="embedded:18", show_default=True, help="Where to measure.")
@click.option("--runs", default=10_000, show_default=True, help="Runs of a single step, in each database.")
@click.option("--batch", default=10, show_default=True, help="Messages read and claimed at once.")
@click.option("--slices", default=20, show_default=True, help="Turns that the databases take.")
@click.option("--history", default=1_000_000, show_default=True, help="Finished tasks of the large history.")
@click.option("--small-history", default=10_000, show_default=True, help="Finished tasks of the small one.")
@click.option("--databases", default=1, show_default=True, help="Pairs of databases in a comparison.")
@click.option("--against", multiple=True, type=click.Choice(AGAINST), help="Only this comparison, or these.")
def main(
    server: str,
    runs: int,
    batch: int,
    slices: int,
    history: int,
    small_history: int,
    databases: int,
    against: tuple[str, ...],
) -> None:
    """Measure claim and completion: against the 0.16.0 core, between revisions, beside a growing history."""
    wanted: dict[str, tuple[tuple[str, str, int], ...]] = {
        "the old core": (("0.16.0", "core_0_16_0", 0), ("queue identity", "queue_identity", 0)),
        "queue identity": (
            ("without protocol 2", "queue_identity", 0),
            ("with protocol 2", "dirty_runs", 0),
        ),
        "its own history": (
            (f"{small_history} finished tasks", "dirty_runs", small_history),
            (f"{history} finished tasks", "dirty_runs", history),
        ),
    }
    console = Console(width=110)
    with open_server(server, durable=True) as running:
        console.print(f"{running.label}: {runs} runs of a single step in each database, batches of {batch}")
        for other in against or AGAINST:
            pairs = [
                [
                    _subject(running, f"{name} {number}", release, finished)
                    for name, release, finished in wanted[other]
                ]
                for number in range(databases)
            ]
            subjects = [subject for pair in pairs for subject in pair]
            _measure(subjects, runs, slices, batch)
            table = Table(
                "database",
                "tasks a second",
                "ratio",
                "ms a claim",
                "ms a completion",
                title=f"against {other}",
            )
            for place, (name, *_) in enumerate(wanted[other]):
                alike = [pair[place] for pair in pairs]
                tasks = sum(subject.tasks for subject in alike)
                claiming = sum(subject.claiming for subject in alike)
                completing = sum(subject.completing for subject in alike)
                table.add_row(
                    name,
                    f"{tasks / (claiming + completing):.0f}",
                    _ratio([pair[place].rate / pair[0].rate for pair in pairs]),
                    f"{1000 * claiming * batch / tasks:.2f}",
                    f"{1000 * completing / tasks:.2f}",
                )
            for subject in subjects:
                subject.connection.close()
            console.print(table)


def _ratio(ratios: list[float]) -> str:
    mean = f"{statistics.mean(ratios):.3f}"
    if len(ratios) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(ratios) / math.sqrt(len(ratios)):.3f}"


if __name__ == "__main__":
    main()
