"""Alembic's on_version_apply: keeps the ledger in step with the version table, and tells the listener."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import ScriptDirectory

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.upgrade import ledger
from pgflow_migrate.upgrade.progress import Listener, RevisionApplied, RevisionStarted, ignore


def chain(script: ScriptDirectory) -> list[str]:
    """Every revision of this installation, the oldest first.

    Raises:
        PgflowMigrateError: a file in alembic/versions is no revision, or cannot be loaded at all.
    """
    try:
        return [revision.revision for revision in script.walk_revisions()][::-1]
    except Exception as error:  # Alembic executes these files, and they may raise anything
        text = " ".join(str(error).split()).rstrip(".")
        raise PgflowMigrateError(
            f"The revisions cannot be loaded: {text or type(error).__name__}.",
            f"Mend or remove what does not belong in {script.versions}.",
        ) from error


class Recorder:
    """Records each step right after it has run, in its transaction or in the script.

    Attributes:
        known: every revision of this installation, the oldest first.
        checksums: theirs; computed once, because most of the steps run under locks.
    """

    def __init__(self, script: ScriptDirectory, on_progress: Listener = ignore) -> None:
        self._script = script
        self._on_progress = on_progress
        self._total = 0
        self._waiting: list[str] = []
        self._started = 0.0
        self.known = chain(script)
        self.checksums = ledger.checksums(self.known)

    def ancestors(self, heads: Collection[str]) -> list[str]:
        """The revisions up to and including ``heads``, the oldest first."""
        found = self._script.iterate_revisions(tuple(heads), "base") if heads else ()
        return [revision.revision for revision in found][::-1]

    def statements(self, heads: Collection[str]) -> str:
        """SQL that makes the ledger what it is at ``heads``."""
        return ledger.record(self.ancestors(heads), self.checksums)

    def start(self, revisions: list[str]) -> None:
        """``revisions`` are about to run; tell the listener about the first one."""
        self._total = len(revisions)
        self._waiting = list(revisions)
        self._begin()

    def _begin(self) -> None:
        if self._waiting:
            number = self._total - len(self._waiting) + 1
            self._on_progress(RevisionStarted(self._waiting[0], number, self._total))
            self._started = time.monotonic()

    def __call__(
        self, ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]
    ) -> None:
        """A step has run, and the version table says so."""
        statements = self.statements(heads)
        if ctx.as_sql or ctx.connection is None:
            ctx.impl.static_output(statements)
            return
        ctx.connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
        if self._waiting:
            self._on_progress(RevisionApplied(self._waiting.pop(0), time.monotonic() - self._started))
            self._begin()
