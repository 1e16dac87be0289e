"""Every boundary between two statements of an upgrade, found by listening to one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.faults.line import Stop, When

from pgflow_migrate import resources
from pgflow_migrate.upgrade import ledger

_PHASES = {
    "live_workers": "live workers",
    "fence": "fence",
    "preflight_findings": "preflight",
    "preflight_raise": "preflight",
    "slug_rules": "slug rules",
    "backfill": "backfill",
    "message_identity": "index",
    "worker_pause": "functions",
    "invariants": "verify",
    "verify": "verify",
}
"""The phase that a file of queue_identity opens; others belong to the phase that they come in."""

PHASES = (
    *("settings", "ledger", "live workers", "fence", "preflight", "slug rules", "backfill", "index"),
    *("functions", "verify", "version", "dirty_runs", "commit"),
)
"""The phases of an upgrade from 0.16.0, in order."""

# What Alembic sends when the database is at queue identity, be it there already or by now.
_AT_QUEUE_IDENTITY = re.compile(
    r"(?:insert into|update) pgflow_migrate\.alembic_version .*?'queue_identity'", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class Boundary:
    """A place where something may go wrong.

    Attributes:
        stop: where it is.
        phase: one of :data:`PHASES`, or the revision for those before queue_identity.
        file: ``revision/path.sql``; empty for what no file holds.
        place: the statement's place in the file, from 1.
        statement: the beginning of the statement that comes next, or at ``sent`` and ``answered`` of itself.
    """

    stop: Stop
    phase: str
    file: str
    place: int
    statement: str

    def __str__(self) -> str:
        at = f"{self.file}:{self.place}" if self.file else self.statement
        when = "" if self.stop.when == "before" else f" ({self.stop.when})"
        return f"{self.stop.number:3} {self.phase}: {at}{when}"


def enumerate_boundaries(messages: Sequence[tuple[str, ...]]) -> tuple[Boundary, ...]:
    """The boundaries of an upgrade that sent ``messages``; one before each statement, and two more of COMMIT.

    Args:
        messages: as :class:`tests.faults.line.Line` has heard them.
    """
    return tuple(_boundaries(messages))


def _boundaries(messages: Sequence[tuple[str, ...]]) -> Iterator[Boundary]:
    files = _files()
    phase = "settings"
    arrived = False
    number = 0
    for message in messages:
        text = "".join(message)
        file = files.get(text, "")
        # It begins with files of queue_identity.
        phase = "dirty_runs" if file and arrived else _phase(text, file, phase)
        arrived = arrived or _AT_QUEUE_IDENTITY.match(text) is not None
        for place, statement in enumerate(message, 1):
            moments: tuple[When, ...] = ("before",)
            if statement == "COMMIT":
                moments = ("before", "sent", "answered")
            for when in moments:
                yield Boundary(Stop(number, when), phase, file, place, _beginning(statement))
            number += 1


def _phase(text: str, file: str, before: str) -> str:
    revision, _, path = file.partition("/")
    if file:
        if revision != "queue_identity":
            return revision
        # The first function comes early, because the slug rules call it.
        if path.startswith("functions/"):
            return "slug rules" if before == "preflight" else "functions"
        return _PHASES.get(path.removesuffix(".sql"), before)
    if text == ledger.CREATE:
        return "ledger"
    if text.startswith("UPDATE pgflow_migrate.alembic_version") and before != "dirty_runs":
        return "version"
    if text.startswith(("select (select count(*)", "select txid_current", "COMMIT")):
        return "commit"
    return before


def _files() -> dict[str, str]:
    """Revision and path by content; of files that are alike, the newest revision's."""
    found = {}
    folder = resources.revision_sql("")
    for revision in ("core_0_15_1", "core_0_16_0", "queue_identity", "dirty_runs"):
        for path in sorted((folder / revision).rglob("*.sql")):
            found[path.read_text(encoding="utf-8")] = path.relative_to(folder).as_posix()
    return found


def _beginning(statement: str) -> str:
    lines = (line.strip() for line in statement.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("--"))[:70]
