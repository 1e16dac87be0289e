"""Stateful property test: hypothesis makes calls, legal and illegal; what differs from a model is shrunk."""

from __future__ import annotations

from random import Random
from typing import ClassVar
from uuid import uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.dirty_runs.model.agreement import (
    NOT_MET,
    assert_coverage,
    assert_nothing_else,
    outcomes,
)
from tests.dirty_runs.model.driver import Driver
from tests.dirty_runs.model.rules import Flow
from tests.dirty_runs.model.sequences import Generator

EXAMPLES = 2_000

CHOICES = st.integers(0, 2**64 - 1).map(Random)
"""What a call is made with. Even choices come far; hypothesis chooses, and drops, whole calls."""


class Protocol(RuleBasedStateMachine):
    """Two runs and the calls on them; after each call outcome and state are the model's."""

    driver: ClassVar[Driver]

    @initialize(choices=CHOICES)
    def begin(self, choices: Random) -> None:
        self.flow, own = self.driver.flow(choices)
        # Ids are never chosen: another example has had the same choices.
        self.generator = Generator(choices, Flow(**vars(self.flow)), own=own, new_id=uuid4)
        self.made = 0
        self.call(choices, "go_on")

    def call(self, choices: Random, name: str) -> None:
        """Let the generator make its call, on one of the two runs, and do the same in the database."""
        self.generator.random = choices
        run = self.generator.runs[choices.random() < 0.12]
        getattr(self.generator, name)(run)
        for step in self.generator.steps[self.made :]:
            self.made += 1
            fault = self.driver.make(self.flow, step, self.generator.runs)
            assert fault is None, f"{step}\n{fault}"

    @rule(choices=CHOICES, times=st.integers(1, 5))
    def go_on(self, choices: Random, times: int) -> None:
        for _ in range(times):
            self.call(choices, "go_on")

    @rule(choices=CHOICES)
    def claim(self, choices: Random) -> None:
        self.call(choices, "any_claim")

    @rule(choices=CHOICES)
    def settle(self, choices: Random) -> None:
        self.call(choices, "any_settlement")

    @rule(choices=CHOICES)
    def recover(self, choices: Random) -> None:
        self.call(choices, "any_recovery")

    @rule(choices=CHOICES)
    def reconcile(self, choices: Random) -> None:
        self.call(choices, "any_reconciliation")

    @rule(choices=CHOICES, what=st.sampled_from(["any_start", "any_request"]))
    def start_or_request(self, choices: Random, what: str) -> None:
        self.call(choices, what)

    @rule(choices=CHOICES, what=st.sampled_from(["any_event", "change", "old_call"]))
    def disturb(self, choices: Random, what: str) -> None:
        self.call(choices, what)

    def teardown(self) -> None:
        if hasattr(self, "generator"):
            self.driver.end(self.flow, self.generator)


def test_the_database_does_what_the_model_does_whatever_is_called(dsn: str) -> None:
    Protocol.driver = Driver(dsn)
    try:
        run_state_machine_as_test(
            Protocol,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=9,
                derandomize=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        assert Protocol.driver.sequences >= EXAMPLES
        assert_nothing_else(Protocol.driver)
        assert_coverage(
            Protocol.driver.met,
            {**dict.fromkeys(outcomes() - NOT_MET.keys(), 3), ("reconcile", "finalized"): 100},
        )
    finally:
        Protocol.driver.close()
