"""Which release of pgflow a database has, from its catalogue alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.releases import catalogue
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


def revision_of(release: str) -> str:
    """The revision at whose end a database has ``release``: ``core_0_16_0`` for ``0.16.0``."""
    return f"core_{release.replace('.', '_')}" if release[0].isdigit() else release


def release_of(revision: str) -> str:
    """The release that a database at ``revision`` has: ``0.16.0`` for ``core_0_16_0``."""
    return revision.removeprefix("core_").replace("_", ".") if revision.startswith("core_") else revision


def identify(connection: psycopg.Connection[Any]) -> Identification:
    """Compare the catalogue with every known release; changes nothing, needs no rights.

    Objects that the user added and grants that the user changed are no difference that matters.
    """
    found = catalogue.read(connection)
    if not found.objects:
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
    mattering = [str(difference) for difference in found.differences if difference.matters]
    details = mattering[:SHOWN]
    if len(mattering) > SHOWN:
        details.append(f"… and {len(mattering) - SHOWN} more")
    return PgflowMigrateError(
        f"Schema pgflow matches no known release; the closest is {found.closest}, from which"
        f" {len(mattering)} thing{'s differ' if len(mattering) > 1 else ' differs'}.",
        "Undo these differences, or upgrade pgflow itself to a release that is known, then try again.",
        tuple(details),
    )
