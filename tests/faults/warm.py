"""Imported by the process that clients are forked from: whatever an upgrade imports is there by then."""

import gc
import importlib

from pgflow_migrate.upgrade import script
from pgflow_migrate.upgrade.session import Fence

for name in (
    "alembic.ddl.postgresql",
    "pgflow_migrate.cli.cmd_upgrade",
    "pgflow_migrate.cli.failures",
    "pgflow_migrate.cli.progress",
    "pgflow_migrate.upgrade.run",
    "rich.console",
    "rich.status",
    "sqlalchemy.dialects.postgresql.psycopg",
    "tests.faults.client",
):
    importlib.import_module(name)
script.upgrade_script("0.15.0", Fence())  # loads Alembic's environment and the revisions
gc.freeze()  # or the first collection of every client would copy all of this
