"""The chain of revisions, and the release that a database has at the end of each.

Written down here because commands need it without Alembic, which reads it off the files of
``alembic/versions``. A test holds both together.
"""

from __future__ import annotations

REVISIONS = ("core_0_15_0", "core_0_15_1", "core_0_16_0", "queue_identity", "dirty_runs")
"""Every revision, the oldest first."""

HEAD = REVISIONS[-1]
"""Where an upgrade ends."""

STARTS = REVISIONS[:-1]
"""Where an upgrade can begin."""


def revision_of(release: str) -> str:
    """The revision at whose end a database has ``release``: ``core_0_16_0`` for ``0.16.0``."""
    return f"core_{release.replace('.', '_')}" if release[0].isdigit() else release


def release_of(revision: str) -> str:
    """The release that a database at ``revision`` has: ``0.16.0`` for ``core_0_16_0``."""
    return revision.removeprefix("core_").replace("_", ".") if revision.startswith("core_") else revision
