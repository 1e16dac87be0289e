"""Every invariant that is checked. A test holds the SQL, this registry and docs/verify.md together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """An invariant.

    Attributes:
        name: the stable name.
        title: what must hold, in a sentence without a full stop.
    """

    name: str
    title: str


_CHECKS = (
    Check("version", "the version table records the newest revision"),
    Check("ledger", "the ledger records every revision"),
    Check("checksum", "the recorded revisions are those of this installation"),
    Check("catalogue", "schema pgflow is exactly the release's"),
    Check("slug-valid", "every slug of a flow or step follows the rules"),
    Check("slug-case-unique", "no two flows, and no two steps of a flow, differ only in case"),
    Check("step-route", "every step is routed to its flow's canonical queue"),
    Check("task-route", "every task names the queue of its step"),
    Check("queue-metadata", "pgmq.meta has every queue exactly once"),
    Check("queue-objects", "every queue has its table and its archive, whole"),
    Check("message-of-one-task", "no two tasks have the same message"),
    Check("message-without-task", "every message in a queue belongs to a task"),
    Check("task-flow", "every task is of the flow that its run is of"),
    Check("live-task-message", "the message of every live task is there"),
    Check("live-task-archived", "no message of a live task is in the archive"),
    Check("queue-sequence", "no queue will hand out a message id that a task has had"),
)

CHECKS: dict[str, Check] = {check.name: check for check in _CHECKS}
"""By name, in the order of docs/verify.md."""
