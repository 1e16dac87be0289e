"""PGMQ and the stand-ins as extensions: the control files and scripts of ``create extension``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_SQL = Path(__file__).parent / "sql"

STAND_IN = "stand-in of pgflow-migrate"
"""Begins the comment of each stand-in's control file, so that a real pg_cron is not taken for ours."""


@dataclass(frozen=True)
class Extension:
    """What ``create extension`` needs to know.

    Attributes:
        name: as in ``create extension``.
        version: the default and only version.
        comment: shown in pg_available_extensions.
        schema: the only schema it may be put in; None leaves the choice to the caller.
        script: the SQL.
        superuser: whether only a superuser may create it.
    """

    name: str
    version: str
    comment: str
    schema: str | None
    script: str
    superuser: bool = True

    def write(self, folder: Path) -> None:
        """Write the control file and the script into an extension folder."""
        control = [
            f"comment = '{self.comment}'",
            f"default_version = '{self.version}'",
            "relocatable = false",
            f"superuser = {str(self.superuser).lower()}",
        ]
        if self.schema is not None:
            control.append(f"schema = '{self.schema}'")
        (folder / f"{self.name}.control").write_text("\n".join(control) + "\n", encoding="utf-8")
        (folder / f"{self.name}--{self.version}.sql").write_text(self.script, encoding="utf-8")


def pgmq() -> Extension | None:
    """PGMQ as the ``pgmq`` package carries it; None when the package is not installed."""
    try:
        from pgmq.install import get_embedded_install_sql, get_embedded_sql_version
    except ImportError:
        return None
    return Extension(
        name="pgmq",
        version=get_embedded_sql_version(),
        comment="A lightweight message queue",
        schema="pgmq",
        script=get_embedded_install_sql(),
        superuser=False,
    )


def stand_ins() -> tuple[Extension, ...]:
    """The stand-ins that are extensions on Supabase, with the schemas and versions that they have there."""
    return tuple(
        Extension(name, version, f"{STAND_IN}: {what}", schema, stand_in_sql(name))
        for name, version, what, schema in (
            ("pg_cron", "1.6", "records jobs, runs none", "pg_catalog"),
            ("pg_net", "0.14.0", "records requests, sends none", None),
            ("supabase_vault", "0.3.1", "encodes secrets, encrypts none", "vault"),
        )
    )


def stand_in_sql(name: str) -> str:
    """The SQL of one stand-in."""
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


def write_all(folder: Path) -> None:
    """Write PGMQ, when its package is installed, and the stand-ins into an extension folder."""
    folder.mkdir(parents=True, exist_ok=True)
    real = pgmq()
    for extension in (*stand_ins(), *((real,) if real else ())):
        extension.write(folder)
