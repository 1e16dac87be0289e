"""Any two to four calls at the same moment, again and again: no deadlock, no odd error, every law holds.

Triggers slow every change of a row down a little, so that sessions do meet in the middle of their locks.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb
from tests.queue_identity.laws import breaches
from tests.queue_identity.races.conftest import CAPABLE

if TYPE_CHECKING:
    from tests.queue_identity.races.conftest import Race, Session

SEED = int(os.environ.get("PGFLOW_MIGRATE_TEST_SEED", "650"))
ROUNDS = 200
FLOWS = ("alpha", "beta")
WORKERS = [UUID(int=number) for number in (1, 2, 3)]
LOCAL = "set app.settings.jwt_secret = 'super-secret-jwt-token-with-at-least-32-characters-long'"

SLOW = """
create function public.dawdle() returns trigger language plpgsql as $$
begin
  perform pg_sleep(random() * 0.001);
  return coalesce(new, old);
end $$;
create trigger dawdle before insert or update or delete on pgflow.runs
  for each row execute function public.dawdle();
create trigger dawdle before update or delete on pgflow.step_states
  for each row execute function public.dawdle();
create trigger dawdle before update or delete on pgflow.step_tasks
  for each row execute function public.dawdle();
create trigger dawdle before update or delete on pgflow.flows
  for each row execute function public.dawdle();
"""

# What a call may end with besides success: SQLSTATEs.
ALLOWED = {
    "start": {"23503"},  # the flow is deleted
    "claim": {"42P01"},  # so is its queue; a stray is looked for in it
    "ensure a variant compiled": {"23505"},  # the other spelling exists
    "ensure compiled": {"23505"},
    "read": {"42P01"},
    "send a stray": {"42P01"},
    "send a doubt": {"42P01"},
}

OUTPUTS: list[Any] = [[1, 2], [1, 2, 3], [1], [], {"ok": True}, None]


def step(slug: str, *parents: str, kind: str = "single", **more: Any) -> dict[str, Any]:
    return {
        "slug": slug,
        "stepType": kind,
        "dependencies": list(parents),
        "whenUnmet": "skip",
        "whenExhausted": "fail",
        "requiredInputPattern": {"defined": False},
        "forbiddenInputPattern": {"defined": False},
        "options": {"maxAttempts": 2, "baseDelay": 0},
    } | more


SHAPE = Jsonb(
    {
        "steps": [
            step("list", whenExhausted="skip"),
            step("side", whenExhausted="skip-cascade", options={"maxAttempts": 1}),
            step("each", "list", kind="map"),
            step("strict", "side", whenUnmet="fail",
                 requiredInputPattern={"defined": True, "value": {"side": {"ok": True}}}),
            step("maybe", "side", whenUnmet="skip-cascade",
                 requiredInputPattern={"defined": True, "value": {"side": [1]}}),
            step("end", "each", "maybe"),
        ]
    }
)  # fmt: skip


@dataclass(frozen=True)
class Planned:
    """A call of a session: what it is called, with what."""

    kind: str
    arguments: tuple[Any, ...]


@dataclass
class Hammer:
    """Plans rounds from what is there, runs them, and looks at what has become of it."""

    chief: Session
    rng: random.Random
    claims: Counter[tuple[UUID, str, int]] = field(default_factory=Counter)

    # -- calls, each in a session of its own ------------------------------------------------------

    def call(self, session: Session, planned: Planned) -> str | None:
        """Run a call; returns what is unexpected about its end."""
        try:
            getattr(self, planned.kind.replace(" ", "_"))(session, *planned.arguments)
        except psycopg.Error as error:
            if error.sqlstate not in ALLOWED.get(planned.kind, set()):
                return f"{planned}: {error.sqlstate} {error}"
        return None

    def claim(self, session: Session, queue: str, flow: str, ids: list[int], worker: UUID) -> None:
        outcome = session.claim_batch(queue, flow, ids, worker)
        for task in outcome.get("tasks", []):
            self.claims[UUID(task["run_id"]), task["step_slug"], task["task_index"]] += 1

    def complete(self, session: Session, run: UUID, step: str, index: int, output: Any) -> None:
        session.complete(run, step, output, index)

    def fail(self, session: Session, run: UUID, step: str, index: int) -> None:
        session.fail(run, step, "it broke", index)

    def recover(self, session: Session) -> None:
        session.requeue()

    def start(self, session: Session, flow: str) -> None:
        session.start(flow, {})

    def delete(self, session: Session, flow: str) -> None:
        session.delete(flow)

    def ensure_compiled(self, session: Session, flow: str) -> None:
        session.execute("select pgflow.ensure_flow_compiled(%s, %s, %s)", flow, SHAPE, CAPABLE)

    ensure_a_variant_compiled = ensure_compiled

    def read(self, session: Session, queue: str, vt: int) -> None:
        session.read(queue, vt, 5)

    def send_a_stray(self, session: Session, queue: str) -> None:
        session.execute("select pgmq.send(%s, '{\"hammer\": 1}')", queue)

    def send_a_doubt(self, session: Session, queue: str) -> None:
        session.execute('select pgmq.send(%s, \'{"hammer": 1, "run_id": "?"}\')', queue)

    def ensure_workers(self, session: Session) -> None:
        session.rows("select * from pgflow.ensure_workers()")

    def resume(self, session: Session) -> None:
        session.execute("select pgflow.resume_worker_function('test_worker')")

    # -- plans -----------------------------------------------------------------------------------

    def plan(self, kind: str) -> Planned:
        flow = self.rng.choice(FLOWS)
        arguments: dict[str, Callable[[], tuple[Any, ...]]] = {
            "claim": lambda: self.a_batch(flow),
            "complete": lambda: (*self.a_task(flow), self.rng.choice(OUTPUTS)),
            "fail": lambda: self.a_task(flow),
            "recover": lambda: (),
            "ensure a variant compiled": lambda: (flow.capitalize(),),
            "read": lambda: (flow, self.rng.choice([0, 0, 30])),
            "ensure workers": lambda: (),
            "resume": lambda: (),
        }
        return Planned(kind, arguments.get(kind, lambda: (flow,))())

    def a_task(self, flow: str) -> tuple[UUID, str, int]:
        """A task, most likely one that is started."""
        tasks = self.chief.rows(
            "select run_id, step_slug, task_index, status = 'started' as live from pgflow.step_tasks"
            " where lower(flow_slug) = %s order by queued_at, step_slug, task_index",
            flow,
        )
        live = [task for task in tasks if task["live"]]
        task = self.rng.choice(live if live and self.rng.random() < 0.8 else tasks)
        return task["run_id"], task["step_slug"], task["task_index"]

    def spelling(self, flow: str) -> str:
        """How a flow is registered."""
        slug: str = self.chief.value("select flow_slug from pgflow.flows where lower(flow_slug) = %s", flow)
        return slug

    def a_batch(self, flow: str) -> tuple[str, str, list[int], UUID]:
        """Most messages of a queue in any order; now and then for the wrong flow's handlers."""
        ids = self.chief.queued(flow)
        batch = self.rng.sample(ids, self.rng.randint(min(1, len(ids)), len(ids)))
        handlers = self.spelling(flow) if self.rng.random() < 0.95 else FLOWS[FLOWS[0] == flow]
        return flow, handlers, batch, self.rng.choice(WORKERS)

    # -- a round ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Both flows with two live runs at least, some tasks claimed, some of those stalled."""
        chief = self.chief
        for flow in FLOWS:
            if not chief.rows("select from pgflow.flows where lower(flow_slug) = %s", flow):
                self.ensure_compiled(chief, flow)
            if chief.value("select count(*) from pgflow.runs where lower(flow_slug) = %s", flow) > 6:
                chief.delete(self.spelling(flow))
                self.ensure_compiled(chief, flow)
            while (
                chief.value(
                    "select count(*) from pgflow.runs where lower(flow_slug) = %s and status = 'started'",
                    flow,
                )
                < 2
            ):
                chief.start(self.spelling(flow), {})
            ids = [
                row["message_id"]
                for row in chief.rows(
                    "select message_id from pgflow.step_tasks where queue_name = %s and status = 'queued'"
                    " order by 1",
                    flow,
                )
            ]
            batch = self.rng.sample(ids, self.rng.randint(0, len(ids)))
            self.claim(chief, flow, self.spelling(flow), batch, WORKERS[0])
        if self.rng.random() < 0.5:
            chief.execute(
                "update pgflow.step_tasks set queued_at = queued_at - interval '1 h',"
                " started_at = started_at - interval '1 h' where status = 'started'"
            )

    def check(self) -> list[str]:
        """What is wrong after a round."""
        chief = self.chief
        for row in chief.rows("select lower(queue_name) as name from pgmq.meta"):
            for prefix in "qa":
                chief.execute(f"delete from pgmq.{prefix}_{row['name']} where message ? 'hammer'")
        wrong = breaches(chief.connection)
        for task in chief.rows("select * from pgflow.step_tasks"):
            key = (task["run_id"], task["step_slug"], task["task_index"])
            if task["attempts_count"] != self.claims[key]:
                wrong.append(f"{key} claimed {self.claims[key]} times, {task['attempts_count']} attempts")
        return wrong


KINDS = [
    "claim", "complete", "fail", "recover", "start", "delete", "ensure compiled",
    "ensure a variant compiled", "read",
    "send a stray", "send a doubt", "ensure workers", "resume",
]  # fmt: skip
LIKELY = ["claim"] * 6 + ["complete"] * 5 + ["fail"] * 4 + ["recover"] * 2 + ["delete"] * 2 + KINDS


def schedule(rng: random.Random) -> list[list[str]]:
    """Every pair of calls once, then any two to four."""
    pairs = [list(pair) for pair in combinations_with_replacement(KINDS, 2)]
    rng.shuffle(pairs)
    return pairs + [rng.choices(LIKELY, k=rng.randint(2, 4)) for _ in range(ROUNDS - len(pairs))]


def test_no_calls_at_the_same_moment_deadlock_or_break_a_law(race: Race) -> None:
    rng = random.Random(SEED)  # noqa: S311 - not for secrets
    chief = race.one
    hammer = Hammer(chief, rng)
    sessions = [race.two, *(race.open() for _ in range(3))]
    chief.execute(SLOW)
    for session in (chief, *sessions):
        session.execute(LOCAL)
        session.execute("set client_min_messages = error")
    for worker in WORKERS:
        chief.worker(worker)
    chief.execute("select pgflow.track_worker_function('test_worker')")
    with ThreadPoolExecutor(len(sessions)) as pool:
        for number, kinds in enumerate(schedule(rng)):
            hammer.prepare()
            calls = [hammer.plan(kind) for kind in kinds]
            barrier = threading.Barrier(len(calls))

            def run(session: Session, planned: Planned, barrier: threading.Barrier = barrier) -> str | None:
                barrier.wait(10)
                return hammer.call(session, planned)

            ended = pool.map(run, sessions, calls)
            wrong = [end for end in ended if end] + hammer.check()
            assert wrong == [], f"seed {SEED}, round {number}: {calls}"
    for session in sessions:
        session.connection.close()
    chief.execute("select pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    deadlocks = chief.value("select deadlocks from pg_stat_database where datname = current_database()")
    assert deadlocks == 0, f"seed {SEED}"


def test_the_hammer_notices_errors_miscounted_claims_and_lost_messages(race: Race) -> None:
    hammer = Hammer(race.one, random.Random(SEED))  # noqa: S311 - not for secrets
    race.one.worker(WORKERS[0])
    hammer.ensure_compiled(race.one, "alpha")
    run = race.one.start("alpha", {})
    assert hammer.check() == []
    assert ": 23514 " in str(hammer.call(race.one, Planned("ensure compiled", ("al__pha",))))
    race.one.claimed("alpha", [1], WORKERS[0])
    race.one.lose("alpha", 2)
    assert hammer.check() == [
        f"live, but not in its queue: {run} side 0",
        f"{(run, 'list', 0)} claimed 0 times, 1 attempts",
    ]
    race.tidy = "select pgflow.delete_flow_and_data('alpha')"
