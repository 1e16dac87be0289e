"""What both environments do when it is the ``alembic`` command that has started them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from logging.config import fileConfig

from alembic.config import Config

from pgflow_migrate.errors import BlockedError, PgflowMigrateError


@contextlib.contextmanager
def under_alembic_command(config: Config) -> Iterator[None]:
    """Under the ``alembic`` command, log as its ini file says, and show errors as our own command does."""
    if config.cmd_opts is None:
        yield
        return
    if config.config_file_name:
        fileConfig(config.config_file_name, disable_existing_loggers=False)
    try:
        yield
    except PgflowMigrateError as error:
        findings = error.findings if isinstance(error, BlockedError) else ()
        details = [*error.details, *(f"{finding.code}: {finding.hint}" for finding in findings)]
        lines = [f"error: {error.message}", *(f"  {detail}" for detail in details), error.remedy]
        print("\n".join(line for line in lines if line), file=sys.stderr)
        raise SystemExit(error.exit_code) from None
