"""Random sequences of calls, legal and illegal, that come through to the end of a run often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from tests.dirty_runs.model.rules import FAILED, SUCCEEDED, WORKERS, Flow, Model, Outcome, Payload, Run

RESULTS = (
    Payload("0", "0", 0),
    Payload("false", "false", False),
    Payload('""', '""', ""),
    Payload("null", "null", None),
    Payload('{"b": 1.50, "a": [1, "1.50"]}', '{"a": [1, "1.50"], "b": 1.5}', {"a": [1, "1.50"], "b": 1.5}),
    Payload('{"a":[1.0,"1.50"],"b":1.5}', '{"a": [1, "1.50"], "b": 1.5}', {"a": [1, "1.50"], "b": 1.5}),
    Payload('"it broke"', '"it broke"', "it broke"),
)
OVERSIZED = tuple(Payload(f'"{letter * 65_536}"', f'"{letter * 65_536}"', None) for letter in ("x", "y"))
ERRORS = (
    Payload("it broke", '"it broke"', "it broke"),
    Payload("", '""', ""),
    Payload("e" * 5_000, '"' + "e" * 5_000 + '"', "e" * 1_023 + "..."),
)
NOTHING = Payload(None, "", None)
GIVEN = (
    Payload("{}", "{}", {}),
    Payload('{"x": 1}', '{"x": 1}', {"x": 1}),
    Payload('{"x":1.0}', '{"x": 1}', {}),
)
SHARED = {result.canonical for result in RESULTS} & {error.canonical for error in ERRORS}
MESSAGES = ("nothing", "own", "wrong id", "two", "null")


@dataclass(frozen=True)
class Step:
    """A call of a sequence, and what the model says of it.

    Attributes:
        call: its name.
        arguments: as the driver takes them.
        outcome: what it should get.
        states: of the model's runs, afterwards.
        steps: of the flow and their queues, afterwards.
    """

    call: str
    arguments: tuple[Any, ...]
    outcome: Outcome | str | int | None
    states: dict[str, Any]
    steps: dict[str, str] | None

    def __str__(self) -> str:
        return f"{self.call}{tuple(shortened(argument) for argument in self.arguments)} -> {self.outcome}"


def shortened(argument: Any) -> Any:
    """What is shown of an argument."""
    return f"{argument.text:.20}" if isinstance(argument, Payload) and argument.text else argument


class Generator:
    """Makes one sequence, call by call, and keeps the model up to date.

    Args:
        random: where every choice comes from.
        flow: as it is now.
        own: whether nobody else uses the flow: then its definition may change, and it may be deleted.
        new_id: makes ids of runs and tokens; from ``random`` unless given.
    """

    def __init__(
        self, random: Random, flow: Flow, *, own: bool, new_id: Callable[[], UUID] | None = None
    ) -> None:
        self.random, self.own = random, own
        theme = random.random() * (0.4 if own else 1)
        self.stubborn = theme < 0.06  # chunks fail, until somebody asks for attention
        self.forgetful = 0.06 < theme < 0.14  # executors are lost
        self.lossy = 0.14 < theme < 0.20  # messages are lost, too
        self.model = Model(flow)
        new_id = new_id or (lambda: UUID(int=random.getrandbits(128)))
        self.runs = [new_id() for _ in range(2)]
        self.stranger = new_id()
        self.tokens = [new_id() for _ in range(12)]
        self.used = 0
        self.steps: list[Step] = []

    def sequence(self, length: int) -> list[Step]:
        length += 8 * self.stubborn + 5 * self.own
        while len(self.steps) < length:
            run = self.runs[self.random.random() < 0.12]
            if self.random.random() < (0.8 if self.stubborn else 0.64):
                self.go_on(run)
            else:
                self.random.choices(*zip(*self.mischief(), strict=True))[0](run)
        return self.steps

    # -- what brings a run further ---------------------------------------------------------------

    def go_on(self, run_id: UUID) -> None:
        run = self.model.runs.get(run_id)
        if not self.model.flow.exists and self.random.random() < 0.3:
            return self.define()
        if run is None:
            return self.start(run_id, self.random.choice(GIVEN))
        if run.work.state == "pending":
            return self.reconcile(run_id if self.random.random() < 0.6 else None)
        if run.work.state == "retry_wait":
            if run.altered and not self.stubborn and self.random.random() < 0.3:
                return self.alter(run)
            waits = run.work.next_attempt is None or run.work.next_attempt > self.model.now
            return self.let_due(run) if waits and self.random.random() < 0.8 else self.reconcile(run_id)
        if run.status != "started":
            return self.let_go(run) if not run.released else self.change(run_id)
        if run.work.state == "attention" and self.random.random() < 0.6:
            return self.random.choice((self.reconcile, self.request, self.any_claim))(run_id)
        if self.stubborn and run.work.state == "clean":
            return self.request(run_id) if run.altered else self.alter(run)
        return self.go_on_with_task(run, "a" if not run.steps["a"].over else "b")

    def go_on_with_task(self, run: Run, step: str) -> None:
        """Claim what is free; settle what is held, or lose its executor."""
        claim, task = run.current(step), run.steps[step].task
        if claim is None:
            hindered = run.altered or (task is not None and task.delayed)
            if hindered and self.random.random() < 0.7:
                return self.alter(run) if run.altered else self.let_start(run, step)
            return self.claim(run.id, step, "nothing", self.fresh())
        attention = run.work.state == "attention"
        if attention and self.random.random() < 0.4:
            return self.settle(claim.token, FAILED, self.random.choice(ERRORS))
        if claim.expired and not (attention and self.random.random() < 0.5):
            return self.recover(run.id, step, "nothing", claim.token)
        if self.lossy and task is not None and task.message and self.random.random() < 0.5:
            return self.lose(run, step)
        if self.random.random() < (0.7 if self.forgetful or self.lossy else 0.08):
            return self.let_expire(run, claim.token)
        kind = self.random.random()
        if kind < 0.07:
            return self.settle(claim.token, FAILED, self.random.choice(ERRORS))
        if kind < 0.13:
            return self.settle(claim.token, SUCCEEDED, self.random.choice(OVERSIZED))
        return self.settle(claim.token, SUCCEEDED, self.random.choice(RESULTS))

    # -- what should make no difference, or a lawful one -----------------------------------------

    def mischief(self) -> list[tuple[Any, float]]:
        return [
            (self.any_claim, 5),
            (self.any_settlement, 5),
            (self.any_recovery, 3),
            (self.any_reconciliation, 2.5),
            (self.any_request, 2),
            (self.any_start, 2),
            (self.any_event, 2.5),
            (self.change, 1.5 if not self.own else 4),
            (self.old_call, 2.5),
        ]

    def any_run(self, run: UUID) -> UUID:
        return self.random.choice(
            (run, run, run, run, self.stranger, self.model.flow.old_run or self.stranger)
        )

    def any_step(self, run: UUID) -> str:
        known = self.model.runs.get(run)
        likely = "b" if known is not None and known.steps["a"].over else "a"
        return self.random.choice((likely, likely, likely, "a", "b", "z"))

    def any_token(self) -> UUID:
        """Mostly one that has been used."""
        known = self.tokens[: self.used] or self.tokens
        return self.random.choice(known if self.random.random() < 0.9 else self.tokens)

    def fresh(self) -> UUID:
        self.used = min(self.used + 1, len(self.tokens))
        return self.tokens[self.used - 1]

    def any_message(self, run: UUID, step: str) -> str:
        """What is named of the message; "own" and "wrong id" need a task that has one."""
        known = self.model.runs.get(run)
        if known is None or step not in known.steps or known.steps[step].task is None:
            return self.random.choice(("nothing",) * 8 + ("two", "null"))
        return self.random.choice(("nothing",) * 4 + ("own",) * 2 + MESSAGES)

    def any_claim(self, run: UUID) -> None:
        known = self.model.runs.get(run)
        if known is not None and known.claims and self.random.random() < 0.25:
            # The same again, or almost.
            again = self.random.choice(known.claims)
            return self.claim(run, again.step, "nothing", again.token, worker=self.random.choice(WORKERS))
        run = self.any_run(run)
        step = self.any_step(run)
        message = self.any_message(run, step)
        if message == "wrong id" and self.random.random() < 0.5:
            message = "wrong queue"
        token = self.fresh() if self.random.random() < 0.6 else self.any_token()
        worker = self.random.choice((WORKERS[0],) * 8 + (WORKERS[1], None))
        return self.claim(run, step, message, token, index=int(self.random.random() < 0.05), worker=worker)

    def any_recovery(self, run: UUID) -> None:
        token = self.any_token()
        owner = self.model.find(token)
        step = owner[1].step if owner and self.random.random() < 0.8 else self.any_step(run)
        run = owner[0].id if owner and self.random.random() < 0.8 else self.any_run(run)
        self.recover(run, step, self.any_message(run, step), token, index=int(self.random.random() < 0.05))

    def any_settlement(self, run: UUID) -> None:
        if self.random.random() < 0.05:
            token = self.any_token() if self.random.random() < 0.7 else None
            return self.settle(token, self.random.choice((SUCCEEDED, FAILED)), NOTHING)
        kind = self.random.choice((SUCCEEDED, SUCCEEDED, FAILED))
        token = self.any_token()
        palette = ERRORS if kind == FAILED else RESULTS + OVERSIZED[: self.random.random() < 0.3]
        payload = self.random.choice(palette)
        owner = self.model.find(token)
        if owner and owner[1].kind and self.random.random() < 0.4:
            # The same again; or the same text as the other kind, where there is one.
            kind = owner[1].kind
            if owner[1].payload in SHARED and self.random.random() < 0.5:
                kind = FAILED if kind == SUCCEEDED else SUCCEEDED
            palette = ERRORS if kind == FAILED else RESULTS + OVERSIZED
            payload = self.random.choice([one for one in palette if one.canonical == owner[1].payload])
        return self.settle(token, kind, payload)

    def any_reconciliation(self, run: UUID) -> None:
        if self.random.random() < 0.15:
            return self.reconcile_twice(run)
        return self.reconcile(self.random.choice((self.any_run(run), None)))

    def any_request(self, run: UUID) -> None:
        self.request(self.any_run(run))

    def any_start(self, run: UUID) -> None:
        given = self.random.choice((*GIVEN, *GIVEN, NOTHING, OVERSIZED[0]))
        self.start(self.any_known(run), given)

    def any_known(self, run: UUID) -> UUID:
        return self.random.choice((run, run, self.model.flow.old_run or run))

    def any_event(self, run_id: UUID) -> None:
        """Time passes, a definition is damaged or mended, a message is lost."""
        run = self.model.runs.get(run_id)
        if run is None:
            return
        active = [claim for claim in run.claims if claim.state == "active" and not claim.expired]
        chance = self.random.random()
        if active and chance < 0.4:
            self.let_expire(run, active[0].token)
        elif run.work.state == "retry_wait" and chance < 0.7:
            self.let_due(run)
        elif run.status == "started" and chance < 0.9:
            self.alter(run)
            if run.altered and self.random.random() < 0.7:
                self.any_request(run_id)
        elif run.status != "started" and not run.released:
            self.let_go(run)
        elif run.status == "started":
            self.lose(run, "a" if not run.steps["a"].over else "b")

    # -- calls -----------------------------------------------------------------------------------

    def start(self, run: UUID, given: Payload) -> None:
        self.add("start", (run, given), self.model.start(run, given))

    def claim(
        self,
        run: UUID,
        step: str,
        message: str,
        token: UUID,
        *,
        index: int = 0,
        worker: UUID | None = WORKERS[0],
    ) -> None:
        outcome = self.model.claim(run, step, index, message, worker, token)
        self.add("claim", (run, step, index, message, worker, token), outcome)

    def recover(self, run: UUID, step: str, message: str, token: UUID, *, index: int = 0) -> None:
        outcome = self.model.recover(run, step, index, message, token)
        self.add("recover", (run, step, index, message, token), outcome)

    def settle(self, token: UUID | None, kind: str, payload: Payload) -> None:
        self.add("settle", (token, kind, payload), self.model.settle(token, kind, payload))

    def reconcile(self, run: UUID | None) -> None:
        self.add("reconcile", (run,), self.model.reconcile(run))

    def reconcile_twice(self, run: UUID) -> None:
        """Two chunks in one transaction: where the first has come to a run, the second is refused."""
        first = self.model.reconcile(run)
        if "run_id" in first and first["outcome"] != "failed":
            outcome = {"outcome": "rejected", "reason": "one_chunk_per_transaction"}
            self.add("reconcile twice", (run,), outcome)
        else:
            self.add("reconcile", (run,), first)

    def request(self, run: UUID) -> None:
        self.add("request", (run,), self.model.request(run))

    # -- events ----------------------------------------------------------------------------------

    def let_expire(self, run: Run, token: UUID) -> None:
        next(claim for claim in run.claims if claim.token == token).expired = True
        self.add("expire", (token,), None)

    def let_due(self, run: Run) -> None:
        run.work.next_attempt = self.model.tick()
        self.add("due", (run.id,), None)

    def let_start(self, run: Run, step: str) -> None:
        task = run.steps[step].task
        assert task is not None
        task.delayed, task.message = False, task.message and "visible"
        self.add("delay over", (run.id, step, self.model.flow.queue(step)), None)

    def let_go(self, run: Run) -> None:
        run.released = True
        self.add("release", (run.id,), None)

    def alter(self, run: Run) -> None:
        run.altered = not run.altered
        self.add("alter", (run.id,), None)

    def lose(self, run: Run, step: str) -> None:
        task = run.steps[step].task
        if task is not None and task.message in ("visible", "hidden"):
            task.message = ""
            self.add("lose", (run.id, step, self.model.flow.queue(step)), None)

    # -- definitions and protocol 1 --------------------------------------------------------------

    def change(self, run: UUID) -> None:
        """Change the flow; one that is shared and not held is left alone."""
        flow, model = self.model.flow, self.model
        call = self.random.choice(("add_step", "add_step", "reroute", "delete", "delete"))
        if not flow.exists and self.random.random() < 0.6:
            return self.define()
        if call == "add_step":
            step = self.random.choice("bc" if self.own or model.held else "b")
            return self.add(call, (step,), model.add_step(step))
        if not self.own and not model.held:
            return None
        if not model.held and self.random.random() < 0.4:
            call = "delete"
        if call == "reroute":
            away = not flow.rerouted
            return self.add(call, (away,), model.reroute(away=away))
        return self.add(call, (), model.delete())

    def define(self) -> None:
        """Define the flow anew."""
        flow = self.model.flow
        flow.exists, flow.rerouted, flow.further_step = True, False, False
        self.add("define", (), None)

    def old_call(self, run_id: UUID) -> None:
        """A call of protocol 1 on a run of protocol 2: refused, or without effect."""
        run = self.model.runs.get(run_id)
        if run is None or not self.model.flow.exists:
            return
        step = self.random.choice([name for name, step in run.steps.items() if step.task is not None])
        calls: dict[str, str | int] = {
            "complete_task": "PF005",
            "fail_task": "PF005",
            "start_flow": "23505",
            "maybe_complete_run": 0,
            "requeue_stalled_tasks": 0,
            "claim_tasks": 1,
            "set_vt_batch": 0,
            "archive": 0,
        }
        call = self.random.choice(list(calls))
        self.add(f"v1 {call}", (run.id, step, self.model.flow.queue(step)), calls[call])

    # -- the sequence ----------------------------------------------------------------------------

    def add(self, call: str, arguments: tuple[Any, ...], outcome: Outcome | str | int | None) -> None:
        flow = self.model.flow
        states = {str(run.id): self.model.state(run) for run in self.model.runs.values()}
        routes = None
        if flow.exists:
            routes = dict(zip("ab", flow.queues, strict=True))
            if flow.further_step:
                routes["c"] = flow.slug
            if flow.rerouted:
                routes["b"] = f"{flow.slug}_elsewhere"
        self.steps.append(Step(call, arguments, outcome, states, routes))
