"""The claim of the model's tests: the database does what the model does, and everything was tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.dirty_runs.model.driver import Driver

from pgflow_migrate.dirty_runs.contract import TRANSITIONS

SEQUENCES = 400
"""Of those from seeds: fewer than hypothesis makes, but each goes far into its runs."""

CALLS = {
    "start_flow_v2": "start",
    "claim_task_v2": "claim",
    "recover_task_v2": "recover",
    "complete_claim_v2": "settle succeeded",
    "fail_claim_v2": "settle failed",
    "reconcile_one_run": "reconcile",
    "request_reconciliation_v2": "request",
}

NOT_MET = {
    ("reconcile", "busy"): "one session does not meet another",
    (
        "settle succeeded",
        "terminal",
    ): "no claim is active or revoked when a run ends: A and B are not held at once",
    ("settle failed", "terminal"): "as a success",
    ("recover", "terminal"): "as a settlement",
}
"""Outcomes of the contract that no sequence of calls comes to, and why."""

LEAST = 3
DETAILS = {
    ("start", "started", "replayed True"): 4,
    ("start", "rejected", "reason no_such_flow"): 1,
    ("start", "rejected", "reason step_count"): 1,
    ("start", "rejected", "reason queue"): 1,
    ("claim", "claimed", "replayed True"): 2,
    ("claim", "blocked", "reason pending"): 2,
    ("claim", "blocked", "reason retry_wait"): 1,
    ("claim", "blocked", "reason attention"): 1,
    ("claim", "blocked", "reason not_dispatched"): 2,
    ("claim", "blocked", "reason start_delay"): 1,
    ("claim", "blocked", "reason definition_changed"): 1,
    ("claim", "blocked", "reason message_missing"): 1,
    ("recover", "recovered", "replayed True"): 1,
    ("recover", "attention", "reason claims_exhausted"): 1,
    ("recover", "attention", "reason message_missing"): 1,
    ("settle succeeded", "accepted", "disposition oversized"): 10,
    ("settle succeeded", "accepted", "replayed True"): 10,
    ("settle succeeded", "stale", "reason revoked"): 2,
    ("settle failed", "accepted", "replayed True"): 2,
    ("reconcile", "finalized"): 40,
    ("reconcile", "failed", "state attention"): 2,
    ("request", "requested", "state retry_wait"): 1,
    ("request", "requested", "state attention"): 1,
    ("reconcile twice", "rejected", "reason one_chunk_per_transaction"): 4,
    ("add_step", "55000"): 10,
    ("reroute", "55000"): 10,
    ("delete", "55000"): 10,
    ("delete", "None"): 2,
    ("define", "None"): 1,
    ("v1 complete_task", "PF005"): 2,
    ("v1 fail_task", "PF005"): 2,
    ("v1 start_flow", "23505"): 2,
    ("v1 claim_tasks", "1"): 2,
    ("v1 requeue_stalled_tasks", "0"): 2,
}
"""How often what is more particular than an outcome has to be met, at least."""


def outcomes() -> set[tuple[str, str]]:
    """What the contract says that each call may get."""
    return {
        (CALLS[transition.call.partition("(")[0]], outcome)
        for transition in TRANSITIONS
        for outcome in transition.response
    }


def assert_agreement(dsn: str, seeds: Iterable[int]) -> None:
    """Make the sequences of some seeds: no outcome and no state differs, and everything was met."""
    driver = Driver(dsn)
    try:
        for seed in seeds:
            divergence = driver.check(seed)
            assert divergence is None, divergence
        assert driver.sequences == SEQUENCES
        assert_nothing_else(driver)
    finally:
        driver.close()
    assert_coverage(driver.met, dict.fromkeys(outcomes() - NOT_MET.keys(), LEAST) | DETAILS)


def assert_nothing_else(driver: Driver) -> None:
    """All that the sequences have left behind is what the model has."""
    left = driver.what_is_left()
    assert not left, left[:20]


def assert_coverage(met: Counter[tuple[str, ...]], wanted: dict[tuple[str, ...], int]) -> None:
    """What is wanted was met as often, and what no sequence can come to was not."""
    met["reconcile", "rejected"] += met["reconcile twice", "rejected"]
    rare = {key: met[key] for key, least in wanted.items() if met[key] < least}
    assert not rare, rare
    impossible = {key: met[key] for key in NOT_MET if met[key]}
    assert not impossible, impossible
