"""Makes the calls of a sequence on a database and looks at all of its state after each of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row
from tests.dirty_runs.model.rules import FAILED, SUCCEEDED, WORKERS, Flow, Payload, Run
from tests.dirty_runs.model.sequences import OVERSIZED, Generator, Step
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.state import MESSAGES, RUN_FIELDS

Statement = tuple[str, tuple[Any, ...]]

SEQUENCES_PER_FLOW = 25
LENGTHS = (9, 20)

_UNSTEADY = ("lease_expires_at", "next_attempt_at", "msg_id", "error")
"""What outcomes have that depends on the clock, on message ids, or is worded freely."""

_TASK = "select message_id from pgflow.step_tasks where run_id = %s and step_slug = %s"
_IDS = {
    "nothing": "null::bigint[]",
    "own": f"array({_TASK})",
    "wrong queue": "null::bigint[]",
    "wrong id": f"array(select message_id + 1000000 from ({_TASK}) own)",
    "two": "'{7,7}'::bigint[]",
    "null": "'{null}'::bigint[]",
}

_EVENTS: dict[str, str] = {
    "expire": "update pgflow.task_claims set claimed_at = claimed_at - interval '1 day',"
    " lease_expires_at = lease_expires_at - interval '1 day' where claim_id = %s",
    "due": "update pgflow.run_work set next_attempt_at = clock_timestamp() where run_id = %s",
    "release": "update pgflow.runs set started_at = started_at - interval '2 days',"
    " completed_at = completed_at - interval '2 days', failed_at = failed_at - interval '2 days'"
    " where run_id = %s",
    "delay over": "update pgflow.step_tasks set queued_at = queued_at - interval '1 day'"
    " where run_id = %s and step_slug = %s and queue_name = %s",
    "alter": "update pgflow.run_work set definition_sha256 ="
    " set_byte(definition_sha256, 0, 255 - get_byte(definition_sha256, 0)) where run_id = %s",
}

_BACK_OFF = (
    "update pgflow.run_work set next_attempt_at = next_attempt_at + interval '1 day'"
    " where run_id = %s and state = 'retry_wait'"
)

_ALL_RUNS = (
    f"select jsonb_object_agg(run.run_id, jsonb_build_object({RUN_FIELDS})) from pgflow.runs run"
    " where exists (select from pgflow.run_work work where work.run_id = run.run_id)"
)
_TOUCHED = (
    "select run.run_id from pgflow.runs run left join pgflow.step_tasks task using (run_id)"
    " where run.run_id not in (select run_id from pgflow.run_work)"
    " and (run.status, task.status, task.attempts_count, task.requeued_count)"
    " is distinct from ('started', 'queued', 0, 0)"
)
_QUEUES = (
    "select distinct queue_name from pgflow.steps where to_regclass('pgmq.q_' || queue_name) is not null"
)


def _ids(message: str, run: UUID, step: str) -> tuple[str, tuple[Any, ...]]:
    """The expression for an array of message ids, and its values."""
    return _IDS[message], (run, step) if message in ("own", "wrong id") else ()


def _payload(payload: Payload) -> tuple[str, Any]:
    """The expression for a result, and its value; the large ones are not sent."""
    if payload in OVERSIZED:
        return "to_jsonb(repeat(%s, 65536))", payload.canonical[1]
    return "%s::jsonb", payload.text


class Driver:
    """A database in which sequences are made, one after the other, each with runs of its own.

    Args:
        dsn: the database, with protocol 2; nobody else uses it.
    """

    def __init__(self, dsn: str) -> None:
        self.session = Session(dsn)
        self.connection = self.session.connection
        self.connection.prepare_threshold = 1
        # Plans are made once, of tables that are still empty: they should not be of that size for good.
        self.session.execute("set plan_cache_mode = force_generic_plan")
        self.session.execute("set enable_seqscan = off")
        self.session.execute(
            "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, 'any', 'worker')",
            WORKERS[0],
        )
        # Only where no trigger fires may a test move the clocks of rows. Changing that setting throws away
        # all plans, so it is another session's.
        self.clocks = Session(dsn)
        self.clocks.execute("set session_replication_role = replica")
        self.numbers = itertools.count(1)
        self.shared: dict[tuple[bool, bool], tuple[Flow, int]] = {}
        self.met: Counter[tuple[str, ...]] = Counter()
        self.last: dict[str, dict[str, Any]] = {}
        self.calls = self.sequences = 0

    def close(self) -> None:
        self.session.close()
        self.clocks.close()

    # -- flows -----------------------------------------------------------------------------------

    def new_flow(self, *, queues: bool = False, delayed: bool = False) -> Flow:
        slug = f"flow_{next(self.numbers)}"
        self.session.define(slug, queues=queues, delay=3600 if delayed else 0)
        old = self.session.row("select run_id from pgflow.start_flow(%s, '{}')", slug)["run_id"]
        routes = (f"{slug}__a", f"{slug}__b") if queues else (slug, slug)
        return Flow(slug, routes, delayed=delayed, old_run=old)

    def flow(self, random: Random) -> tuple[Flow, bool]:
        """A flow for the next sequence, and whether it is its own."""
        kind = (random.random() < 0.3, random.random() < 0.15)
        if random.random() < 0.13:
            return self.new_flow(), True
        flow, used = self.shared.get(kind, (None, 0))
        if flow is None or used == SEQUENCES_PER_FLOW:
            flow, used = self.new_flow(queues=kind[0], delayed=kind[1]), 0
        self.shared[kind] = (flow, used + 1)
        return flow, False

    # -- a sequence ------------------------------------------------------------------------------

    def check(self, seed: int) -> str | None:
        """Make the sequence of a seed; where database and model part, in words.

        Flows are shared, so the sequence is also that of the seeds before: to see it again, make them all.
        """
        random = Random(seed)  # noqa: S311 - nothing is secret
        flow, own = self.flow(random)
        # The generator brings the flow to its end; the sequence is made from the beginning.
        now = Flow(**vars(flow))
        generator = Generator(random, now, own=own)
        steps = generator.sequence(random.randint(*LENGTHS))
        for number, step in enumerate(steps):
            fault = self.make(flow, step, generator.runs)
            if fault is not None:
                past = "\n".join(f"  {each}" for each in steps[: number + 1])
                return f"seed {seed}, flow {flow}:\n{past}\n{fault}"
        self.end(flow, generator)
        return None

    def end(self, flow: Flow, generator: Generator) -> None:
        """A sequence is over: remember what its runs are like, and keep them out of the others' way."""
        self.sequences += 1
        flow.others = flow.others or generator.model.held
        for run in generator.model.runs.values():
            self.last[str(run.id)] = generator.model.state(run)
        self._put_away(generator.model.runs.values())

    def what_is_left(self) -> list[str]:
        """What is wrong with all that all the sequences have left behind, in words."""
        ((states,),) = self._execute((_ALL_RUNS, ())).fetchall()
        wanted = {
            run: {field: value for field, value in state.items() if field != "messages"}
            for run, state in self.last.items()
        }
        return [
            *(f"run {run}: {states.get(run)}" for run in wanted if states.get(run) != wanted[run]),
            *(f"run {run} is not the model's" for run in states.keys() - wanted.keys()),
            *(f"run {row['run_id']} of protocol 1 was touched" for row in self.session.rows(_TOUCHED)),
            *(fault for row in self.session.rows(_QUEUES) for fault in self._strays(row["queue_name"])),
        ]

    def _strays(self, queue: str) -> list[str]:
        """Messages in a queue and its archive that are no task's."""
        tables = (f'select msg_id, message from pgmq."{kind}_{queue}"' for kind in "qa")
        return [
            f"message {row['msg_id']} of {queue} is no task's: {row['message']}"
            for row in self.session.rows(
                f"""
                select sent.msg_id, sent.message
                from ({" union all ".join(tables)}) sent
                where not exists (
                  select from pgflow.step_tasks task
                  where (task.queue_name, task.message_id) = (%s, sent.msg_id)
                    and task.run_id = (sent.message ->> 'run_id')::uuid
                )
                """,
                queue,
            )
        ]

    def _put_away(self, runs: Iterable[Run]) -> None:
        """From now on no processor finds these runs."""
        self.clocks.execute(
            "update pgflow.run_work set requested_at = 'infinity',"
            " next_attempt_at = case when next_attempt_at is not null then timestamptz 'infinity' end"
            " where run_id = any (%s) and state in ('pending', 'retry_wait')",
            [run.id for run in runs],
        )

    def _count(self, step: Step) -> None:
        self.calls += 1
        if not isinstance(step.outcome, dict):
            self.met[step.call, str(step.outcome)] += 1
            return
        call = f"settle {step.arguments[1]}" if step.call == "settle" else step.call
        self.met[call, step.outcome["outcome"]] += 1
        for detail in ("reason", "disposition", "replayed", "state", "status"):
            if detail in step.outcome:
                self.met[call, step.outcome["outcome"], f"{detail} {step.outcome[detail]}"] += 1
        for reason in step.outcome.get("reasons", ()):
            self.met[call, step.outcome["outcome"], f"reason {reason}"] += 1

    def make(self, flow: Flow, step: Step, runs: list[UUID]) -> str | None:
        """One call and a look; what is not as the model has it, in words."""
        if step.call in _EVENTS:
            self.clocks.execute(_EVENTS[step.call], *step.arguments)
        try:
            outcome = self._call(self._statements(flow, step))
        except psycopg.Error as error:
            outcome = error.sqlstate
        if step.call == "reconcile" and outcome["outcome"] == "failed":
            # However slow this machine is, the back-off is not over before the sequence says so.
            self.clocks.execute(_BACK_OFF, outcome["run_id"])
        ((states, routes),) = self._execute(self._look(flow, step.steps, runs)).fetchall()
        for what, found, wanted in (
            ("outcome", outcome, step.outcome),
            ("runs", states or {}, step.states),
            ("steps", routes, step.steps),
        ):
            if found != wanted:
                return f"{what}: the model says\n  {wanted}\nthe database\n  {found}"
        self._count(step)
        return None

    def _call(self, statements: list[Statement]) -> Any:
        """What the statement with a column ``outcome`` has returned, without what is unsteady."""
        if len(statements) < 2:
            cursors = [self._execute(statement) for statement in statements]
        else:
            with self.connection.transaction():
                cursors = [self._execute(statement) for statement in statements]
        for cursor in reversed(cursors):
            if cursor.description and cursor.description[0].name == "outcome":
                ((outcome,),) = cursor.fetchall()
                if isinstance(outcome, dict):
                    return {key: value for key, value in outcome.items() if key not in _UNSTEADY}
                return outcome
        return None

    def _execute(self, statement: Statement) -> psycopg.Cursor[tuple[Any, ...]]:
        cursor = self.connection.cursor(row_factory=tuple_row)
        return cursor.execute(statement[0].encode(), statement[1] or None)

    # -- SQL -------------------------------------------------------------------------------------

    @staticmethod
    def _look(flow: Flow, steps: dict[str, str] | None, runs: list[UUID]) -> Statement:
        """The query for the states of runs and the steps of the flow. Without a flow there are no queues."""
        fields = RUN_FIELDS
        if steps is not None:
            fields += ", " + MESSAGES.format(a=flow.queues[0], b=flow.queues[1])
        return (
            f"""
            select
              (
                select jsonb_object_agg(run.run_id, jsonb_build_object({fields}))
                from pgflow.runs run where run.run_id = any (%s)
              ),
              (select jsonb_object_agg(step_slug, queue_name) from pgflow.steps where flow_slug = %s)
            """,
            (runs, flow.slug),
        )

    def _statements(self, flow: Flow, step: Step) -> list[Statement]:
        """What a step sends: in one transaction, the outcome is in the column of that name."""
        call, values = step.call, step.arguments
        if call.startswith("v1 "):
            return [self._old(flow, call[3:], *values)]
        if call == "delay over":
            run, name, queue = values
            return [(f"select msg_id from pgmq.set_vt(%s::text, ({_TASK}), 0)", (queue, run, name))]
        if call in _EVENTS:
            return []
        made: list[Statement] = getattr(self, "_" + call.replace(" ", "_"))(flow, *values)
        return made

    def _start(self, flow: Flow, run: UUID, given: Payload) -> list[Statement]:
        expression, value = _payload(given)
        return [
            (f"select pgflow.start_flow_v2(%s, {expression}, %s) as outcome", (flow.slug, value, run)),
        ]

    def _claim(
        self, flow: Flow, run: UUID, step: str, index: int, message: str, worker: UUID | None, token: UUID
    ) -> list[Statement]:
        ids, named = _ids(message, run, step)
        queue = {"wrong queue": "another", "own": flow.queue(step).upper()}.get(message)
        return [
            (
                f"select pgflow.claim_task_v2(%s, %s, %s, %s, {ids}, %s::uuid, %s) as outcome",
                (run, step, index, queue, *named, worker, token),
            )
        ]

    def _recover(
        self, flow: Flow, run: UUID, step: str, index: int, message: str, token: UUID
    ) -> list[Statement]:
        ids, named = _ids(message, run, step)
        return [
            (
                f"select pgflow.recover_task_v2(%s, %s, %s, %s, {ids}) as outcome",
                (run, step, index, token, *named),
            )
        ]

    def _settle(self, flow: Flow, token: UUID | None, kind: str, payload: Payload) -> list[Statement]:
        if kind == FAILED:
            return [("select pgflow.fail_claim_v2(%s::uuid, %s) as outcome", (token, payload.text))]
        assert kind == SUCCEEDED
        expression, value = _payload(payload)
        return [(f"select pgflow.complete_claim_v2(%s::uuid, {expression}) as outcome", (token, value))]

    def _reconcile(self, flow: Flow, run: UUID | None) -> list[Statement]:
        return [("select pgflow.reconcile_one_run(%s::uuid) as outcome", (run,))]

    def _reconcile_twice(self, flow: Flow, run: UUID) -> list[Statement]:
        return [("select pgflow.reconcile_one_run(%s::uuid) as outcome", (run,))] * 2

    def _request(self, flow: Flow, run: UUID) -> list[Statement]:
        return [("select pgflow.request_reconciliation_v2(%s) as outcome", (run,))]

    def _lose(self, flow: Flow, run: UUID, step: str, queue: str) -> list[Statement]:
        return [(f"select pgmq.delete(%s, ({_TASK}))", (queue, run, step))]

    def _add_step(self, flow: Flow, step: str) -> list[Statement]:
        dependencies = ["a"] if step == "b" else []
        return [("select pgflow.add_step(%s, %s, %s)", (flow.slug, step, dependencies))]

    def _reroute(self, flow: Flow, away: bool) -> list[Statement]:
        queue = f"{flow.slug}_elsewhere" if away else flow.queues[1]
        return [
            (
                "update pgflow.steps set queue_name = %s where flow_slug = %s and step_slug = 'b'",
                (queue, flow.slug),
            )
        ]

    def _delete(self, flow: Flow) -> list[Statement]:
        return [("select pgflow.delete_flow_and_data(%s)", (flow.slug,))]

    def _define(self, flow: Flow) -> list[Statement]:
        return [
            ("select pgflow.create_flow(%s, 1, 0, 60)", (flow.slug,)),
            ("select pgflow.add_step(%s, 'a')", (flow.slug,)),
            ("select pgflow.add_step(%s, 'b', '{a}')", (flow.slug,)),
        ]

    @staticmethod
    def _old(flow: Flow, call: str, run: UUID, step: str, queue: str) -> Statement:
        """A call of protocol 1; where it has no result of its own, the outcome counts what it has changed."""
        return {
            "complete_task": ("select pgflow.complete_task(%s, %s, 0, '1')", (run, step)),
            "fail_task": ("select pgflow.fail_task(%s, %s, 0, 'it broke')", (run, step)),
            "start_flow": ("select pgflow.start_flow(%s, '{}', %s)", (flow.slug, run)),
            "maybe_complete_run": (
                "select 0 as outcome from (select pgflow.maybe_complete_run(%s)) made",
                (run,),
            ),
            "requeue_stalled_tasks": ("select pgflow.requeue_stalled_tasks() as outcome", ()),
            "claim_tasks": (
                "select (case when c ->> 'outcome' = 'claimed' and c -> 'tasks' = '[]'"
                " then jsonb_array_length(c -> 'other_protocol') end) as outcome"
                f" from pgflow.claim_tasks(%s, %s, array({_TASK}), %s) c",
                (queue, flow.slug, run, step, WORKERS[0]),
            ),
            "set_vt_batch": (
                f"select count(*) as outcome from pgflow.set_vt_batch(%s, array({_TASK}), '{{7}}')",
                (queue, run, step),
            ),
            "archive": (
                f"select 0 as outcome from (select pgflow._archive_messages(array[%s], array({_TASK}))) made",
                (queue, run, step),
            ),
        }[call]
