"""Every code that a finding can have. A test holds the SQL, this registry and docs/findings.md together."""

from __future__ import annotations

from dataclasses import dataclass

from pgflow_migrate.audit.findings import Severity


@dataclass(frozen=True)
class Code:
    """A kind of finding.

    Attributes:
        name: the stable code.
        severity: of each such finding.
        title: what it says, in half a sentence.
        remedy: what to do, in a sentence; docs/findings.md has the statements.
    """

    name: str
    severity: Severity
    title: str
    remedy: str


_RENAME_FLOW = "Rename the flow, in code and database, once its runs have ended."
_RENAME_STEP = "Rename the step, in code and database, once the flow's runs have ended."
_RENAME = "Rename the flow or step, in code and database, once the flow's runs have ended."

_CODES = (
    Code("slug-leading-underscore", "error", 'a slug begins with "_"', _RENAME),
    Code("slug-trailing-underscore", "error", 'a slug ends with "_"', _RENAME),
    Code("slug-double-underscore", "error", 'a slug contains "__"', _RENAME),
    Code("slug-invalid", "error", "a slug breaks the rule that was always there", _RENAME),
    Code("flow-slug-case-duplicate", "error", "flow slugs differ only in case", _RENAME_FLOW),
    Code("step-slug-case-duplicate", "error", "step slugs of a flow differ only in case", _RENAME_STEP),
    Code("queue-name-invalid", "error", "a flow's slug does not give a queue name", _RENAME_FLOW),
    Code(
        "queue-absent",
        "error",
        "a flow has no queue",
        "Create the missing queue, and move its sequence above the ids that tasks have.",
    ),
    Code(
        "queue-metadata-missing",
        "error",
        "a flow's queue tables are not in pgmq.meta",
        "Register the tables with pgmq.create(), if they are the flow's.",
    ),
    Code(
        "queue-metadata-ambiguous",
        "error",
        "pgmq.meta has a flow's queue in several spellings",
        "Delete all but one of the queue's rows in pgmq.meta.",
    ),
    Code(
        "queue-incomplete",
        "error",
        "a flow's queue lacks its queue or its archive table",
        "Create the missing table with pgmq.create().",
    ),
    Code(
        "queue-malformed",
        "error",
        "a flow's queue is not what pgmq.create() makes",
        "Undo the differences in the queue that the samples name.",
    ),
    Code(
        "queue-sequence-behind",
        "error",
        "a flow's queue will hand out message ids that tasks have had",
        "Move the queue's sequence above the ids that tasks have.",
    ),
    Code(
        "queue-referenced-by-other-flow",
        "error",
        "a flow's queue holds messages that name another flow",
        "Move the other flow's messages to its queue, or archive them.",
    ),
    Code(
        "message-without-task",
        "error",
        "a flow's queue holds messages that no task has",
        "Look at the messages without a task, then archive them.",
    ),
    Code(
        "message-body-mismatch",
        "error",
        "messages name another task in their body than owns them by id",
        "Find out which is right, the message's body or the task, and correct the other.",
    ),
    Code(
        "duplicate-queue-message",
        "error",
        "several tasks have the same queue and message id",
        "Keep the message id on the task that the message names, set it to null on the others.",
    ),
    Code(
        "task-flow-mismatch",
        "error",
        "tasks name another flow than their run does",
        "Find out which is right, the task's flow or the run's, and correct the other.",
    ),
    Code("pgmq-absent", "error", "there is no usable PGMQ", "Install PGMQ 1.5.0 or newer."),
    Code(
        "release-unexpected",
        "error",
        "this is not a pgflow that the upgrade starts from",
        "Bring pgflow to 0.15.0, 0.15.1 or 0.16.0 first.",
    ),
    Code(
        "missing-privilege",
        "error",
        "the role cannot see all that has to be judged",
        "Give the role the rights that the hints name, or run as the owner.",
    ),
    Code(
        "queue-extension-membership",
        "warning",
        "queue objects belong to the extension, which this PGMQ no longer expects",
        "Detach the queue from the extension, so that it can be dropped.",
    ),
    Code(
        "row-type-in-function",
        "warning",
        "functions of your own take or return rows that get a column",
        "Adapt the functions that list the columns; make those with BEGIN ATOMIC again.",
    ),
    Code(
        "prune-helper-stock",
        "warning",
        "the documented pruning helper is installed",
        "Replace the helper after the upgrade: pgflow-migrate prune-helper --sql prints its replacement.",
    ),
    Code(
        "prune-helper-customised",
        "warning",
        "a pruning helper of your own is installed",
        "Adapt the helper to queue names by hand: pgflow-migrate prune-helper says how.",
    ),
    Code(
        "already-upgraded",
        "info",
        "this database has queue identity",
        "Nothing to do here: pgflow-migrate status says what is pending.",
    ),
    Code("prune-helper-absent", "info", "no pruning helper is installed", "Nothing to do."),
    Code("backfill-steps", "info", "steps that get a queue name", "Nothing to do."),
    Code("backfill-tasks", "info", "tasks that get a queue name", "Nothing to do."),
    Code("null-message-id", "info", "tasks without a message", "Nothing to do."),
    Code(
        "point-in-time",
        "info",
        "when the report was taken, and what it looked at",
        "The upgrade checks again under its locks.",
    ),
)

CODES: dict[str, Code] = {code.name: code for code in _CODES}
"""By name, in the order of docs/findings.md."""
