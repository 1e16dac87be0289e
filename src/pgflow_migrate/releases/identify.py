"""Which release of pgflow a database has, from its catalogue alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from pgflow_migrate import resources
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.chain import release_of, revision_of
from pgflow_migrate.releases.comparison import Difference, compare

SHOWN = 20  # differences in an error


@dataclass(frozen=True)
class Identification:
    """What was found.

    Attributes:
        release: the release that the database has, or None when there is no pgflow or none matches.
        closest: the release with the fewest differences that matter, or None when there is no pgflow.
        differences: what differs from ``closest``; those that matter come first, and there are none of
            them when ``release`` is known.
    """

    release: str | None
    closest: str | None
    differences: tuple[Difference, ...]

    @property
    def empty(self) -> bool:
        """Whether there is no schema pgflow."""
        return self.closest is None

    @property
    def revision(self) -> str | None:
        """The revision that ``release`` corresponds to."""
        return None if self.release is None else revision_of(self.release)


def identify(connection: psycopg.Connection[Any]) -> Identification:
    """Compare the catalogue with every known release; changes nothing, needs no rights.

    Objects that the user added and grants that the user changed are no difference that matters.
    """
    found = catalogue.read(connection)
    # Cron jobs stay behind when the schema is dropped.
    if all(catalogue.kind_of(subject) == "cron job" for subject in found.objects):
        return Identification(None, None, ())
    best: Identification | None = None
    fewest = 0
    for release in reversed(catalogue.releases()):
        differences = compare(catalogue.snapshot(release), found)
        mattering = sum(difference.matters for difference in differences)
        if best is None or mattering < fewest:
            best = Identification(release if not mattering else None, release, differences)
            fewest = mattering
    if best is None:
        raise FileNotFoundError("the installation has no snapshot of any release")
    return best


def unknown_release(found: Identification) -> PgflowMigrateError:
    """The error for a database that matches no release: it lists what differs from the closest one."""
    count, details = _mattering(found.differences)
    return PgflowMigrateError(
        f"Schema pgflow matches no known release; the closest is {found.closest}, from which {count}.",
        "Undo these differences, or upgrade pgflow itself to a release that is known, then try again.",
        details,
    )


def disagreement(
    connection: psycopg.Connection[Any], recorded: Sequence[str], found: Identification
) -> PgflowMigrateError | None:
    """The error for a database that records another revision than its catalogue has, else None.

    Args:
        connection: to list what differs from the recorded release.
        recorded: what the version table holds. A revision that is no release's cannot be compared.
        found: what the catalogue is.
    """
    wrong = [version for version in recorded if version != found.revision]
    if not wrong or release_of(wrong[0]) not in catalogue.releases():
        return None
    count, details = "", tuple[str, ...]()
    if found.empty:
        is_ = "there is no schema pgflow"
    else:
        is_ = f"schema pgflow is {found.release or f'of no known release (the closest is {found.closest})'}"
        expected = catalogue.snapshot(release_of(wrong[0]))
        count, details = _mattering(compare(expected, catalogue.read(connection)))
        count = f"; from {wrong[0]} {count}"
    remedy = "Undo these differences, then try again."
    if found.revision is not None:
        call = resources.alembic_call()
        remedy = f'If the record is wrong, correct it: {call} -x dsn="…" stamp {found.revision}'
    elif found.empty:
        remedy = "Check the connection string; if it is right, drop schema pgflow_migrate and try again."
    return PgflowMigrateError(
        f"The database records revision {', '.join(recorded)}, but {is_}{count}.", remedy, details
    )


def _mattering(differences: Sequence[Difference]) -> tuple[str, tuple[str, ...]]:
    """How many differences matter, as the end of a sentence, and the first of them."""
    mattering = [str(difference) for difference in differences if difference.matters]
    details = mattering[:SHOWN]
    if len(mattering) > SHOWN:
        details.append(f"… and {len(mattering) - SHOWN} more")
    return f"{len(mattering)} thing{'s differ' if len(mattering) > 1 else ' differs'}", tuple(details)
