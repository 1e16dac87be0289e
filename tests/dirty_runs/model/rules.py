"""The contract of protocol 2 as a small model in memory: no clock, no locks, no SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pgflow_migrate.dirty_runs.limits import limit

Outcome = dict[str, Any]

SUCCEEDED, FAILED = "succeeded", "failed"
WORKERS = (UUID(int=1), UUID(int=2))


@dataclass(frozen=True)
class Payload:
    """A result or an error text.

    Attributes:
        text: the JSON (of a result) or the text itself (of an error) as it is sent; None is SQL NULL.
        canonical: the text that tells it apart from others.
        value: what is stored of it.
    """

    text: str | None
    canonical: str
    value: Any

    @property
    def bytes(self) -> int:
        return len(self.canonical.encode())


@dataclass
class Claim:
    """A claim and what came of it."""

    token: UUID
    step: str
    worker: UUID
    number: int
    expired: bool = False
    state: str = "active"
    reason: str | None = None
    kind: str | None = None
    disposition: str | None = None
    payload: str | None = None
    bytes: int | None = None
    error: str | None = None


@dataclass
class Task:
    """A task and its message: visible, hidden, archived, or lost ("")."""

    message: str
    delayed: bool
    status: str = "queued"
    claim: UUID | None = None


@dataclass
class Step:
    """A step's state."""

    deps: int
    status: str = "created"
    output: Any = None
    error: str | None = None
    task: Task | None = None

    @property
    def over(self) -> bool:
        return self.status in ("completed", "failed")


@dataclass
class Work:
    """A run's work row. Times are places in an order: ``None`` is no time, ``inf`` is later than now."""

    state: str = "clean"
    requested: int = 0
    processed: int = 0
    requested_at: float | None = None
    failures: int = 0
    sqlstate: str | None = None
    next_attempt: float | None = None
    attention: str | None = None

    def stop(self, reason: str) -> None:
        self.state, self.attention, self.next_attempt = "attention", reason, None


@dataclass
class Run:
    """A run of protocol 2."""

    id: UUID
    input: str
    steps: dict[str, Step]
    work: Work = field(default_factory=Work)
    status: str = "started"
    output: Any = None
    remaining: int = 2
    claims: list[Claim] = field(default_factory=list)
    altered: bool = False  # its definition is no longer the flow's
    released: bool = False  # its evidence is older than the replay horizon

    @property
    def held(self) -> bool:
        """Whether its flow has to stay as it is."""
        return (
            self.status == "started"
            or self.work.state != "clean"
            or any(claim.state == "active" for claim in self.claims)
            or not self.released
        )

    def made(self, step: str) -> int:
        return sum(claim.step == step for claim in self.claims)

    def current(self, step: str) -> Claim | None:
        task = self.steps[step].task
        return next((claim for claim in self.claims if task and claim.token == task.claim), None)


@dataclass
class Flow:
    """A flow a → b.

    Attributes:
        slug: its name.
        queues: of a and b.
        delayed: whether b has a start delay, of an hour.
        others: whether runs that the model does not know hold it.
        old_run: a run of protocol 1.
    """

    slug: str
    queues: tuple[str, str]
    delayed: bool = False
    others: bool = False
    old_run: UUID | None = None
    exists: bool = True
    further_step: bool = False
    rerouted: bool = False

    def faults(self) -> list[str]:
        if not self.exists:
            return ["no_such_flow"]
        if self.further_step:
            return ["step_count"]
        return ["queue"] if self.rerouted else []

    def queue(self, step: str) -> str:
        return self.queues[step == "b"]


class Model:
    """What the database should hold of one flow, and what each call should get.

    Methods named like calls change the model and return the outcome, without what depends on the clock or on
    message ids. A SQLSTATE is the outcome of a call that raises.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.runs: dict[UUID, Run] = {}
        self.now = 0.0

    def tick(self) -> float:
        self.now += 1
        return self.now

    def find(self, token: UUID) -> tuple[Run, Claim] | None:
        return next(
            ((run, claim) for run in self.runs.values() for claim in run.claims if claim.token == token), None
        )

    @property
    def held(self) -> bool:
        return self.flow.others or any(run.held for run in self.runs.values())

    def _missing(self, run: UUID) -> Outcome | None:
        """The outcome for what is no run of protocol 2."""
        if run in self.runs:
            return None
        if run == self.flow.old_run:
            return {"outcome": "wrong_protocol", "protocol_version": 1}
        return {"outcome": "unknown", "reason": "run"}

    # -- start -----------------------------------------------------------------------------------

    def start(self, run: UUID, given: Payload) -> Outcome:
        faults = ["input_is_null"] * (given.text is None) + ["input_bytes"] * (
            given.bytes > limit("input_bytes")
        )
        if faults:
            return {"outcome": "rejected", "reasons": faults}
        known = self.runs.get(run)
        if known is not None and known.input == given.canonical:
            return {"outcome": "started", "run_id": str(run), "replayed": True}
        if known is not None or run == self.flow.old_run:
            return {"outcome": "conflict", "run_id": str(run), "reasons": ["run_id"]}
        if self.flow.faults():
            return {"outcome": "rejected", "reasons": self.flow.faults()}

        first = Step(deps=0, status="started", task=Task(message="visible", delayed=False))
        self.runs[run] = Run(run, given.canonical, {"a": first, "b": Step(deps=1)})
        return {"outcome": "started", "run_id": str(run), "replayed": False}

    # -- claim and recovery ----------------------------------------------------------------------

    def claim(
        self, run_id: UUID, step: str, index: int, message: str, worker: UUID | None, token: UUID
    ) -> Outcome:
        """Claim; ``message`` is what is named: nothing, "own", "wrong id", "wrong queue", "two" or "null"."""
        if message in ("two", "null"):
            return {"outcome": "rejected", "reason": "message_ids"}
        if worker is None:
            return {"outcome": "rejected", "reason": "null_argument"}
        if missing := self._missing(run_id):
            return missing
        run = self.runs[run_id]

        if known := self.find(token):
            claim = known[1]
            if (known[0].id, claim.step, 0, claim.worker) != (run_id, step, index, worker):
                return {"outcome": "conflict", "reason": "claim_id"}
            if claim.state != "active":
                return {"outcome": "stale", "reason": claim.state}
            return self._claimed(run, claim, replayed=True)

        if run.status != "started":
            return {"outcome": "terminal", "reason": "run", "status": run.status}
        if step not in run.steps:
            return {"outcome": "unknown", "reason": "step"}
        state = run.steps[step]
        if state.over:
            return {"outcome": "terminal", "reason": "step", "status": state.status}
        if index != 0:
            return {"outcome": "unknown", "reason": "task"}
        if state.task is None:
            return {"outcome": "blocked", "reason": "not_dispatched"}
        if message in ("wrong id", "wrong queue"):
            return {"outcome": "stale", "reason": "message"}
        if run.work.state != "clean":
            return {"outcome": "blocked", "reason": run.work.state, "attention_reason": run.work.attention}
        if state.task.status == "started":
            return {"outcome": "held"}
        if run.altered:
            return {"outcome": "blocked", "reason": "definition_changed"}
        if state.task.delayed:
            return {"outcome": "blocked", "reason": "start_delay"}
        if not state.task.message:
            return {"outcome": "blocked", "reason": "message_missing"}

        claim = Claim(token, step, worker, run.made(step) + 1)
        run.claims.append(claim)
        state.task.status, state.task.claim, state.task.message = "started", token, "hidden"
        return self._claimed(run, claim, replayed=False)

    def _claimed(self, run: Run, claim: Claim, *, replayed: bool) -> Outcome:
        return {
            "outcome": "claimed",
            "replayed": replayed,
            "claim_id": str(claim.token),
            "claim_number": claim.number,
            "flow_slug": self.flow.slug,
            "run_id": str(run.id),
            "step_slug": claim.step,
            "task_index": 0,
            "queue_name": self.flow.queue(claim.step),
            "input": {"a": run.steps["a"].output} if claim.step == "b" else {},
            "flow_input": None if claim.step == "b" else INPUTS[run.input],
            "policy": {"maxAttempts": 1, "whenExhausted": "fail", "timeout": 60},
        }

    def recover(self, run_id: UUID, step: str, index: int, message: str, token: UUID) -> Outcome:
        if message in ("two", "null"):
            return {"outcome": "rejected", "reason": "message_ids"}
        if missing := self._missing(run_id):
            return missing
        run, known = self.runs[run_id], self.find(token)
        if known is None or (known[0].id, known[1].step, 0) != (run_id, step, index):
            return {"outcome": "unknown", "reason": "claim"}
        claim = known[1]
        if message == "wrong id":
            return {"outcome": "stale", "reason": "message"}
        if claim.state == "settled":
            return {"outcome": "settled", "disposition": claim.disposition}
        if claim.state == "revoked":
            return {"outcome": "recovered", "claim_id": str(token), "replayed": True}
        if not claim.expired:
            return {"outcome": "not_expired"}
        if run.work.state == "attention":
            return {"outcome": "attention", "reason": run.work.attention}
        task = run.steps[step].task
        assert task is not None
        if claim.number == limit("claims_per_task"):
            run.work.stop("claims_exhausted")
        elif not task.message:
            run.work.stop("message_missing")
        if run.work.state == "attention":
            return {"outcome": "attention", "reason": run.work.attention}

        claim.state, claim.reason = "revoked", "lease_lost"
        task.status, task.claim, task.message = "queued", None, "visible"
        return {"outcome": "recovered", "claim_id": str(token), "replayed": False}

    # -- settlement ------------------------------------------------------------------------------

    def settle(self, token: UUID | None, kind: str, payload: Payload) -> Outcome:
        if token is None or payload.text is None:
            return {"outcome": "rejected", "reason": "null_argument"}
        known = self.find(token)
        if known is None:
            return {"outcome": "stale", "reason": "unknown"}
        run, claim = known
        if claim.state == "revoked":
            return {"outcome": "stale", "reason": "revoked"}
        if claim.state == "settled":
            if (claim.kind, claim.payload) == (kind, payload.canonical):
                return {"outcome": "accepted", "disposition": claim.disposition, "replayed": True}
            return {"outcome": "conflict", "settled_kind": claim.kind, "disposition": claim.disposition}

        claim.state, claim.kind, claim.payload, claim.bytes = (
            "settled",
            kind,
            payload.canonical,
            payload.bytes,
        )
        if kind == FAILED:
            claim.disposition, claim.error = "failed", payload.value
        elif payload.bytes > limit("result_bytes"):
            claim.disposition = "oversized"
            claim.error = (
                f"[RESULT_TOO_LARGE] {payload.bytes} bytes, at most {limit('result_bytes')} are kept"
            )
        else:
            claim.disposition = "completed"
        step = run.steps[claim.step]
        assert step.task is not None
        step.task.message = step.task.message and "archived"
        if claim.disposition == "completed":
            step.status = step.task.status = "completed"
            step.output = payload.value
            self._request(run)
        else:
            step.status = step.task.status = run.status = "failed"
            step.error = claim.error
            work = run.work
            work.requested += 1
            work.processed, work.requested_at, work.next_attempt = work.requested, None, None
            if work.state != "attention":
                work.state, work.failures = "clean", 0
        return {"outcome": "accepted", "disposition": claim.disposition, "replayed": False}

    # -- reconciliation --------------------------------------------------------------------------

    def _request(self, run: Run) -> None:
        work = run.work
        work.requested += 1
        if work.requested_at is None:
            work.requested_at = self.tick()
        if work.state == "clean":
            work.state = "pending"

    def request(self, run_id: UUID) -> Outcome:
        if missing := self._missing(run_id):
            return missing
        run = self.runs[run_id]
        if run.status != "started":
            return {"outcome": "terminal", "reason": "run", "status": run.status}
        self._request(run)
        return {
            "outcome": "requested",
            "state": run.work.state,
            "requested_generation": run.work.requested,
        }

    def due(self) -> list[Run]:
        """Runs whose work a processor would find, the first first."""
        waiting = {
            run.id: run.work.requested_at if run.work.next_attempt is None else run.work.next_attempt
            for run in self.runs.values()
            if run.work.state in ("pending", "retry_wait")
        }
        ready = {run: at for run, at in waiting.items() if at is not None and at <= self.now}
        return [self.runs[run] for run in sorted(ready, key=ready.__getitem__)]

    def reconcile(self, run_id: UUID | None) -> Outcome:
        if run_id is None:
            found = self.due()
            return self._chunk(found[0]) if found else {"outcome": "idle", "busy": 0}
        return self._missing(run_id) or self._chunk(self.runs[run_id])

    def _chunk(self, run: Run) -> Outcome:
        work, key = run.work, {"run_id": str(run.id)}
        if work.state == "attention":
            return {"outcome": "attention", **key, "reason": work.attention}
        if work.state == "clean":
            return {"outcome": "idle", **key, "busy": 0}
        if work.next_attempt is not None and work.next_attempt > self.now:
            return {"outcome": "waiting", **key}
        if run.status == "started" and run.altered:
            work.failures += 1
            work.sqlstate = "PF007"
            work.state, work.next_attempt = "retry_wait", float("inf")
            if work.failures == limit("attention_failures"):
                work.stop("failures_exhausted")
            return {
                "outcome": "failed",
                **key,
                "state": work.state,
                "sqlstate": "PF007",
                "failure_count": work.failures,
            }

        outcome, examined = self._transition(run)
        work.state, work.failures, work.next_attempt = "pending", 0, None
        if outcome["outcome"] == "clean":
            work.state, work.processed, work.requested_at = "clean", work.requested, None
        return {**outcome, **key, "examined": examined}

    def _transition(self, run: Run) -> tuple[Outcome, int]:
        """At most one transition, and how many rows were read."""
        if run.status != "started":
            return {"outcome": "clean"}, 2
        examined = 8 + sum(step.task is not None for step in run.steps.values())
        a, b = run.steps["a"], run.steps["b"]
        run.remaining = sum(not step.over for step in run.steps.values())
        if a.status == "completed" and b.status == "created":
            b.status, b.deps = "started", 0
            b.task = Task("hidden" if self.flow.delayed else "visible", self.flow.delayed)
            return {"outcome": "dispatched", "step_slug": "b"}, examined
        if run.remaining:
            return {"outcome": "clean"}, examined
        run.status, run.output = "completed", {"b": b.output}
        return {"outcome": "finalized"}, examined

    # -- definitions -----------------------------------------------------------------------------

    def add_step(self, step: str) -> str | None:
        if not self.flow.exists:
            return "23503"
        if self.flow.queues[0] != self.flow.slug:
            return "55000"  # the flow's default queue is not on its route, and so not known to be its own
        if step == "c" and not self.flow.further_step:
            if self.held:
                return "55000"
            self.flow.further_step = True
        return None

    def reroute(self, *, away: bool) -> str | None:
        """Send b to a queue that does not exist, or back to the flow's own."""
        if self.flow.exists and self.flow.rerouted != away:
            if self.held:
                return "55000"
            self.flow.rerouted = away
        return None

    def delete(self) -> str | None:
        if not self.flow.exists:
            return None
        if self.held or self.flow.rerouted:
            return "55000"
        self.flow.exists = self.flow.further_step = False
        self.flow.old_run = None
        self.runs.clear()
        return None

    # -- state -----------------------------------------------------------------------------------

    def state(self, run: Run) -> dict[str, Any]:
        """A run as the query of the tests sees it."""
        work = run.work
        tasks = {name: step.task for name, step in run.steps.items() if step.task is not None}
        return {
            "status": run.status,
            "input": INPUTS[run.input],
            "output": run.output,
            "remaining_steps": run.remaining,
            "ended": [run.status == "completed", run.status == "failed"],
            "work": {
                "state": work.state,
                "requested": work.requested,
                "processed": work.processed,
                "dated": work.requested_at is not None,
                "failures": work.failures,
                "sqlstate": work.sqlstate,
                "retry": work.next_attempt is not None,
                "attention": work.attention,
            },
            "steps": {
                name: {
                    "status": step.status,
                    "deps": step.deps,
                    "tasks": None if step.task is None else 0 if step.status == "completed" else 1,
                    "output": step.output,
                    "error": step.error,
                }
                for name, step in run.steps.items()
            },
            "tasks": {
                f"{name}/0": {
                    "status": task.status,
                    "claim": task.claim and str(task.claim),
                    "output": run.steps[name].output,
                    "error": run.steps[name].error,
                    "counted": 0,
                }
                for name, task in tasks.items()
            },
            "claims": [
                {
                    "claim": str(claim.token),
                    "step": claim.step,
                    "number": claim.number,
                    "state": claim.state,
                    "reason": claim.reason,
                    "kind": claim.kind,
                    "disposition": claim.disposition,
                    "bytes": claim.bytes,
                    "error": claim.error,
                }
                for claim in sorted(run.claims, key=lambda claim: (claim.step, claim.number))
            ]
            or None,
            "messages": {name: task.message for name, task in tasks.items()},
        }


INPUTS: dict[str, Any] = {"{}": {}, '{"x": 1}': {"x": 1}, "null": None}
"""The inputs that sequences start runs with: canonical text and value."""
