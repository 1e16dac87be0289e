"""What a pgflow database finds around it: PGMQ, and stand-ins for the parts of Supabase that pgflow calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import psycopg

How = Literal["extension", "sql"]

_SQL = Path(__file__).parent / "sql"


def install_pgmq(connection: psycopg.Connection[Any], how: How | None = None) -> None:
    """Install PGMQ from the SQL that the ``pgmq`` package carries."""
    from pgmq.install import get_embedded_install_sql

    connection.execute(get_embedded_install_sql())  # type: ignore[arg-type]


def install_surroundings(connection: psycopg.Connection[Any]) -> None:
    """Install the stand-ins for Supabase: roles, realtime, pg_cron, pg_net, vault."""
    for name in ("roles", "extensions_schema", "realtime", "pg_cron", "pg_net", "supabase_vault"):
        connection.execute((_SQL / f"{name}.sql").read_bytes())
