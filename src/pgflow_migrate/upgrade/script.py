"""The upgrade as one SQL script, for psql, an SQL editor, or somebody else's migration runner."""

from __future__ import annotations

import io

from alembic import command
from alembic.config import Config

from pgflow_migrate import resources
from pgflow_migrate.releases.chain import revision_of
from pgflow_migrate.upgrade.session import Fence


def upgrade_script(release: str, fence: Fence, *, transaction: bool = True) -> str:
    """SQL that leaves what :func:`pgflow_migrate.upgrade.run.upgrade` leaves, ledger and versions included.

    Args:
        release: the release that it starts from, such as ``0.16.0``; at another the script refuses.
        fence: how it gets its locks, and whether live workers stop it.
        transaction: whether BEGIN and COMMIT are part of it; else whoever runs it brings a transaction.
    """
    buffer = io.StringIO()
    config = Config(str(resources.alembic_ini()), output_buffer=buffer)
    config.attributes.update(fence=fence, transaction=transaction)
    command.upgrade(config, f"{revision_of(release)}:head", sql=True)
    return buffer.getvalue()
