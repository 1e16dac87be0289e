"""What did not hold before an upgrade already: no fault of it, if it is still so afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import psycopg

from pgflow_migrate.audit.lost import archived_messages, lost_messages
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.releases.chain import REVISIONS
from pgflow_migrate.releases.identify import identify
from pgflow_migrate.verify.run import verify
from pgflow_migrate.verify.violations import Violation

# Rows that are compared one by one; where there are more, their number has to do for the rest.
_ROWS = 100_000
_SHOWN = 20

_BEFORE_QUEUE_IDENTITY = REVISIONS[: REVISIONS.index("queue_identity")]

Standing = Mapping[tuple[str, str], Violation]
"""By check and subject, with every row as a sample."""


def before(dsn: str, connection: psycopg.Connection[Any]) -> Standing:
    """What does not hold now.

    Of a release before queue identity that is what the runtime keeps to and the audit lets pass: the messages
    of live tasks. Everything else there has refused the upgrade, or comes with it.

    What cannot be looked at is left out; afterwards it will be told.
    """
    if identify(connection).revision in _BEFORE_QUEUE_IDENTITY:
        return _by_subject(_messages(connection))
    try:
        return _by_subject(verify(dsn, samples=_ROWS).violations)
    except PgflowMigrateError:
        return {}


def after(dsn: str, known: Standing) -> tuple[tuple[Violation, ...], tuple[Violation, ...]]:
    """What does not hold now: what is new about it, and what was so before.

    Raises:
        PgflowMigrateError: it cannot be looked at.
    """
    new, old = [], []
    for violation in verify(dsn, samples=_ROWS).violations:
        known_here = known.get((violation.check, violation.subject))
        if known_here is None:
            new.append(_shown(violation))
            continue
        rows = set(known_here.samples)
        more = tuple(row for row in violation.samples if row not in rows)
        count = max(len(more), violation.count - known_here.count)
        if count:
            new.append(_shown(replace(violation, samples=more or violation.samples, count=count)))
        else:
            old.append(_shown(violation))
    return tuple(new), tuple(old)


def _messages(connection: psycopg.Connection[Any]) -> Iterable[Violation]:
    """As verify/operation.sql tells them."""
    with connection.transaction():
        archived = archived_messages(connection, samples=_ROWS) or ()
        lost = lost_messages(connection, samples=_ROWS) or ()
    in_archive = {row for found in archived for row in found.samples}
    for found in archived:
        yield Violation("live-task-archived", f"queue {found.queue_name}", found.tasks, found.samples, "")
    for found in lost:
        rows = tuple(row for row in found.samples if row not in in_archive)
        count = found.tasks - (len(found.samples) - len(rows))
        if count:
            yield Violation("live-task-message", f"queue {found.queue_name}", count, rows, "")


def _by_subject(violations: Iterable[Violation]) -> Standing:
    """Together where several flows share a queue."""
    found: dict[tuple[str, str], Violation] = {}
    for violation in violations:
        key = (violation.check, violation.subject)
        if key in found:
            other = found[key]
            violation = replace(
                violation,
                count=violation.count + other.count,
                samples=(*other.samples, *violation.samples),
            )
        found[key] = violation
    return found


def _shown(violation: Violation) -> Violation:
    return replace(violation, samples=violation.samples[:_SHOWN])
