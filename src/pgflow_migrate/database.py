"""Connection strings in every spelling, and connecting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import make_conninfo

APPLICATION_NAME = "pgflow-migrate"


def resolve_dsn(option: str | None, environ: Mapping[str, str]) -> str:
    """The connection string to use: ``--dsn``, else PGFLOW_DSN, else DATABASE_URL, else libpq's own variables."""
    return normalise_dsn(option or environ.get("PGFLOW_DSN") or environ.get("DATABASE_URL") or "")


def normalise_dsn(dsn: str) -> str:
    """Any spelling (postgres://, postgresql://, postgresql+psycopg://, key=value) as libpq's key=value."""
    scheme, separator, rest = dsn.partition("://")
    if separator:
        dsn = f"postgresql://{rest}" if scheme.split("+")[0] in ("postgres", "postgresql") else dsn
    return make_conninfo(dsn)


def connect(dsn: str, *, autocommit: bool = False) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection that holds no prepared statements, so that it works through a transaction pooler."""
    return psycopg.connect(
        normalise_dsn(dsn), autocommit=autocommit, prepare_threshold=None, application_name=APPLICATION_NAME
    )


def engine(dsn: str) -> sa.Engine:
    """A SQLAlchemy engine over :func:`connect`; libpq parses the string, SQLAlchemy never sees it."""
    return sa.create_engine("postgresql+psycopg://", creator=lambda: connect(dsn), poolclass=sa.NullPool)
