"""The ledger of the stress test notices what does not add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.queue_identity.stress import ledger

Connection = psycopg.Connection[dict[str, Any]]

START = (
    "update pgflow.step_tasks set status = 'started', attempts_count = attempts_count + 1, started_at = now()"
)
RETRY = "update pgflow.step_tasks set status = 'queued', started_at = null"
REQUEUE = f"{RETRY}, requeued_count = requeued_count + 1"
FAIL = "update pgflow.step_tasks set status = 'failed', failed_at = now(), error_message = 'it broke'"
COMPLETE = "update pgflow.step_tasks set status = 'completed', completed_at = now(), output = '1'"
CANCEL = "update pgflow.step_tasks set status = 'cancelled'"
GIVE_UP = "update pgflow.step_tasks set permanently_stalled_at = now()"


@pytest.fixture
def task(database_at: Callable[[str], str], connect: Callable[[str], Connection]) -> Connection:
    """A database whose only task has two attempts."""
    session = connect(database_at("queue_identity"))
    session.execute(ledger.KEEP)
    session.execute("select pgflow.create_flow('plain', max_attempts => 2)")
    session.execute("select pgflow.add_step('plain', 'only')")
    session.execute("select pgflow.start_flow('plain', '{}')")
    return session


@pytest.mark.parametrize(
    "changes",
    [
        [START, COMPLETE],
        [START, RETRY, START, FAIL],
        [START, REQUEUE, START, REQUEUE, START, REQUEUE, START, FAIL],
        [START, GIVE_UP, FAIL],
        [START, CANCEL],
        [START, REQUEUE, CANCEL],
        [CANCEL],
    ],
)
def test_what_calls_may_do_adds_up(task: Connection, changes: list[str]) -> None:
    for change in changes:
        task.execute(change.encode())
    assert (ledger.odd_entries(task), ledger.wrong_sums(ledger.sums(task))) == ([], [])


@pytest.mark.parametrize(
    ("changes", "odd"),
    [
        ([COMPLETE], "queued -> completed at attempt 0, requeue 0"),
        ([START, RETRY, START, RETRY], "started -> queued at attempt 2, requeue 0"),
        ([START, GIVE_UP, RETRY], "started -> queued at attempt 1, requeue 0"),
        ([START, *[REQUEUE, START] * 3, REQUEUE], "started -> queued at attempt 4, requeue 4"),
        ([START, FAIL], "started -> failed at attempt 1, requeue 0"),
        ([START, CANCEL, RETRY], "cancelled -> queued at attempt 1, requeue 0"),
    ],
)
def test_what_no_call_may_do_is_odd(task: Connection, changes: list[str], odd: str) -> None:
    for change in changes:
        task.execute(change.encode())
    (entry,) = ledger.odd_entries(task)
    assert entry.endswith(f" only/0: {odd}")


@pytest.mark.parametrize(
    "meddling",
    [
        "attempts_count = attempts_count + 1",
        "requeued_count = requeued_count + 1",
        "status = 'started', completed_at = null, output = null",
    ],
)
def test_counters_that_were_meddled_with_do_not_add_up(task: Connection, meddling: str) -> None:
    for change in (START, REQUEUE, START, COMPLETE):
        task.execute(change.encode())
    assert ledger.wrong_sums(ledger.sums(task)) == []
    task.execute(f"update pgflow.step_tasks set {meddling}".encode())
    assert len(ledger.wrong_sums(ledger.sums(task))) == 1
