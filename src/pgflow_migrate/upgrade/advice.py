"""What to do next, from where a database stands: sentences, the first of them first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pgflow_migrate.layout import plural

if TYPE_CHECKING:
    from pgflow_migrate.upgrade.status import Status


_NOTHING = "Nothing. To check every invariant, any time: pgflow-migrate verify"


def advice(status: Status) -> tuple[str, ...]:
    """What a person should do now; at least one sentence."""
    return tuple(_obstacles(status)) or tuple(_work(status)) or (_NOTHING,)


def _obstacles(status: Status) -> Iterator[str]:
    """What keeps from saying, or doing, anything else."""
    if status.upgrades:
        yield "Wait until the upgrade that runs has ended, then look again."
    elif status.missing_grants:
        yield "Run the GRANT statements above as the owner, then look again."
    elif status.closest is None:
        yield "Install pgflow, or check the connection string: there is no schema pgflow here."
    elif status.unknown:
        yield "Install the newest pgflow-migrate: a newer one has upgraded this database."
    elif status.changed:
        yield "Install the release of pgflow-migrate that applied what is marked CHANGED."
    elif status.disagreement is not None:
        yield "Find out who changed schema pgflow, or its record, past pgflow-migrate."
    elif status.release is None:
        yield "Undo the drift, or upgrade pgflow itself to a release that is known."


def _work(status: Status) -> Iterator[str]:
    if status.paused:
        yield "Mend what the paused functions met, then resume them as shown above."
    if status.paused_grants or status.activity_grants:
        yield "Run the GRANT statements above to see the rest."
    if not status.pending:
        return
    audit = status.audit
    if audit is not None and audit.errors:
        found = plural(audit.errors, "finding stands", "findings stand")
        yield f"pgflow-migrate audit: {found} in the way, each with what mends it."
        return
    if audit is None and status.audit_applies:
        yield "pgflow-migrate audit: it could not be made here."
        return
    if status.server.standby:
        yield "Connect to the primary for the upgrade: this server is a standby."
    elif not status.server.owns_pgflow:
        yield f"Connect as {status.server.pgflow_owner}, or as a member of it, for the upgrade."
    if status.workers:
        yield f"Stop {plural(len(status.workers), 'worker')} and the producers: pgflow-migrate docs upgrade."
    yield "Take a backup, then: pgflow-migrate upgrade"
