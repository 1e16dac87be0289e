"""Every invariant that is checked. A test holds the SQL, this registry and docs/verify.md together."""

from __future__ import annotations

from dataclasses import dataclass

from pgflow_migrate.releases.chain import REVISIONS


@dataclass(frozen=True)
class Check:
    """An invariant.

    Attributes:
        name: the stable name.
        title: what must hold, in a sentence without a full stop.
        since: the revision that promises it.
    """

    name: str
    title: str
    since: str = "queue_identity"


_CHECKS = (
    Check("version", "the version table records the revision that the catalogue has"),
    Check("ledger", "the ledger records every revision up to that, and none beyond"),
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
    Check("v2-work", "every work row is of a run, and of the flow of that run", "dirty_runs"),
    Check(
        "v2-claim",
        "a task of protocol 2 has an active claim, its own, exactly while it is started",
        "dirty_runs",
    ),
    Check("v2-run-end", "a run of protocol 2 that is over has no unfinished task", "dirty_runs"),
    Check("task-flow", "every task is of the flow that its run is of"),
    Check("live-task-message", "the message of every live task is there"),
    Check("live-task-archived", "no message of a live task is in the archive"),
    Check("queue-sequence", "no queue will hand out a message id that a task has had"),
)

CHECKS: dict[str, Check] = {check.name: check for check in _CHECKS}
"""By name, in the order of docs/verify.md."""


def checks_at(revision: str) -> dict[str, Check]:
    """Those of :data:`CHECKS` that a database at ``revision`` has to keep."""
    reached = REVISIONS[: REVISIONS.index(revision) + 1]
    return {name: check for name, check in CHECKS.items() if check.since in reached}
