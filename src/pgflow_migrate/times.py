"""Times of somebody's rows as Python can hold them; a row may say infinity, 44 BC or the year 10000."""

from __future__ import annotations

from datetime import datetime, timezone

from psycopg import sql

_BOUNDED = (
    "(case when {0} is not null then greatest(least({0}, timestamptz '9999-12-31 23:59:59.999999+00'),"
    " timestamptz '0001-01-01 00:00:00+00') end)"
)


def bounded(*column: str) -> sql.Composed:
    """SQL for a timestamptz: what is beyond Python's first or last time is that; NULL stays.

    Args:
        column: its name, behind its table's perhaps.
    """
    return sql.SQL(_BOUNDED).format(sql.Identifier(*column))


def in_utc(*column: str) -> sql.Composed:
    """The same in UTC, without a zone; to be read in binary, because psycopg cannot read every DateStyle."""
    return sql.SQL("{} at time zone 'UTC'").format(bounded(*column))


def of_utc(at: datetime) -> datetime:
    """What :func:`in_utc` gave, with its zone."""
    return at.replace(tzinfo=timezone.utc)
