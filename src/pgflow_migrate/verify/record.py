"""Whether catalogue, version table and ledger say that this is one release, and no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgflow_migrate import resources
from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.catalogue import Catalogue
from pgflow_migrate.releases.chain import release_of
from pgflow_migrate.releases.comparison import compare
from pgflow_migrate.upgrade import ledger
from pgflow_migrate.verify.violations import Violation

_SAMPLES = 20
_LEDGER = "schema pgflow_migrate"


def record_violations(
    chain: Sequence[str], versions: Sequence[str], recorded: Sequence[ledger.Entry]
) -> Iterator[Violation]:
    """What version table and ledger say wrongly.

    Args:
        chain: the revisions up to the one that the catalogue has, the oldest first.
        versions: what the version table holds.
        recorded: what the ledger holds; revisions of this installation only.
    """
    head = chain[-1]
    stamp = f'{resources.alembic_call()} -x dsn="…" stamp {head}'
    if tuple(versions) != (head,):
        yield Violation(
            "version",
            _LEDGER,
            1,
            tuple(versions) or ("none",),
            f"The catalogue is that of {head}: record it: {stamp}",
        )
    names = {entry.name for entry in recorded}
    for wrong, are in (
        (tuple(name for name in chain if name not in names), "are not recorded"),
        (tuple(sorted(names - set(chain))), "are recorded, but not there"),
    ):
        if wrong:
            yield Violation(
                "ledger",
                _LEDGER,
                len(wrong),
                wrong[:_SAMPLES],
                f"These revisions {are}: {stamp}",
            )
    here = [entry for entry in recorded if entry.name in chain]
    changed = ledger.changed(here, ledger.checksums(chain))
    if changed:
        yield Violation(
            "checksum",
            _LEDGER,
            len(changed),
            changed[:_SAMPLES],
            "The files of these revisions are not those that were applied. Install the release of"
            " pgflow-migrate that applied them, or undo the change to its files.",
        )


def catalogue_violations(found: Catalogue, revision: str) -> Iterator[Violation]:
    """How ``found`` differs from the release of ``revision``; objects of the user's own do not count."""
    expected = catalogue.snapshot(release_of(revision))
    differences = tuple(str(difference) for difference in compare(expected, found) if difference.matters)
    if differences:
        yield Violation(
            "catalogue",
            "schema pgflow",
            len(differences),
            differences[:_SAMPLES],
            "Undo these differences; pgflow-migrate status names all of them.",
        )
