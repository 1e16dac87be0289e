"""What a replay found out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, EXIT_OK


class Outcome(str, Enum):
    """How a scenario ended."""

    AS_EXPECTED = "as expected"
    DIFFERS = "differs"
    SKIPPED = "skipped"
    COULD_NOT_RUN = "could not run"
    UPGRADES = "upgrades"  # a database of a file, as is the next
    BLOCKED = "blocked"


@dataclass(frozen=True)
class Result:
    """One scenario on one server.

    Attributes:
        release: the release that the database was at.
        name: the scenario's name.
        outcome: how it ended.
        details: what differed or blocks, or why it was skipped or could not run; one sentence each.
        seconds: how long it took.
        notes: what else there is to know, one sentence each.
    """

    release: str
    name: str
    outcome: Outcome
    details: tuple[str, ...]
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """``<release>/<name>``."""
        return f"{self.release}/{self.name}"


@dataclass(frozen=True)
class Report:
    """Every scenario of a replay.

    Attributes:
        server: the server's label.
        pgmq: ``extension`` or ``sql``.
        results: in the order in which they ran.
        of: what they are of: a ``scenario`` each, or the ``database`` of a file.
    """

    server: str
    pgmq: str
    results: tuple[Result, ...]
    of: str = "scenario"

    def count(self, outcome: Outcome) -> int:
        """How many ended so."""
        return sum(result.outcome is outcome for result in self.results)

    @property
    def seconds(self) -> float:
        """How long all of them took."""
        return sum(result.seconds for result in self.results)

    @property
    def exit_code(self) -> int:
        """3 when one differs or is blocked, else 1 when one could not run, else 0."""
        if self.count(Outcome.DIFFERS) or self.count(Outcome.BLOCKED):
            return EXIT_BLOCKED
        return EXIT_COULD_NOT_RUN if self.count(Outcome.COULD_NOT_RUN) else EXIT_OK
