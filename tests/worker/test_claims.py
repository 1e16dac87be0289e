"""Reading the claim boundary's answers."""

from __future__ import annotations

import pytest

from pgflow_migrate.worker import claims
from pgflow_migrate.worker.claims import Claimed, ClaimedTask, Fatal, RefusedMessage

RUN = "00000000-0000-4000-8000-000000000001"
TASK = {
    "flow_slug": "Orders",
    "run_id": RUN,
    "step_slug": "load",
    "task_index": 0,
    "attempt": 2,
    "msg_id": "9007199254740993",
    "queue_name": "orders",
    "input": {"a": [1]},
    "flow_input": None,
}


def test_a_claimed_batch_is_read_with_message_ids_as_text() -> None:
    answer = {
        "outcome": "claimed",
        "queue_name": "orders",
        "tasks": [TASK],
        "deferred": ["13"],
        "archived": [],
        "busy": ["14"],
        "foreign": ["15", "16"],
    }
    task = ClaimedTask("Orders", RUN, "load", 0, 2, "orders", "9007199254740993", {"a": [1]}, None)
    assert claims.parse(answer) == Claimed("orders", (task,), ("13",), (), ("14",), ("15", "16"))
    assert str(task) == f"task Orders/load/0 of run {RUN} (queue orders, message 9007199254740993)"


def test_a_fatal_batch_is_read() -> None:
    answer = {
        "outcome": "fatal",
        "queue_name": "orders",
        "reason": "it is wrong",
        "messages": [{"msg_id": "12", "reason": "missing_task"}],
        "message_count": 30,
        "paused_function": None,
    }
    assert claims.parse(answer) == Fatal(
        "orders", "it is wrong", (RefusedMessage("12", "missing_task"),), 30, None
    )


def test_an_unknown_outcome_is_no_outcome() -> None:
    with pytest.raises(
        ValueError, match=r"^pgflow.claim_tasks answered 'later', which this worker does not know\.$"
    ):
        claims.parse({"outcome": "later"})
