"""``status``: where a database stands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pgflow_migrate import layout
from pgflow_migrate.cli import output
from pgflow_migrate.cli.options import dsn_option, format_option

if TYPE_CHECKING:
    from pgflow_migrate.upgrade.status import Status


@click.command()
@dsn_option
@format_option("table", "json")
def status(dsn: str | None, format_: str) -> None:
    """Show release, revisions, server and rights; changes nothing.

    The release is read off the catalogue, the revisions are those that the ledger records and those that an
    upgrade would apply. Worker functions that are paused are named, with the statement that resumes them.
    Exits 0 when the database could be looked at, whatever was found.

    \b
    pgflow-migrate status --dsn service=production
    """
    from pgflow_migrate.database import resolve_dsn
    from pgflow_migrate.upgrade.status import read_status

    found = read_status(resolve_dsn(dsn, os.environ))
    if format_ == "json":
        output.print_json(found)
        return
    output.print_rows(_rows(found))


def _rows(found: Status) -> Iterator[tuple[str, str]]:
    """The lines of the table: a name, or an empty one for the lines that belong to it, and a value."""
    server = found.server
    yield (
        "database",
        f"{server.database} (PostgreSQL {server.version}{', standby' if server.standby else ''})",
    )
    yield "role", f"{server.role}{' (superuser)' if server.superuser else ''}"
    if server.pooler:
        yield "pooler", f"suspected: {server.pooler}"
    yield "pgflow", _release(found)
    yield from (("", difference) for difference in found.differences)
    if found.additions:
        yield "additions", f"{len(found.additions)} of your own, of no consequence"
        yield from (("", addition) for addition in found.additions)
    if server.pgflow_owner:
        yield (
            "owner",
            f"{server.pgflow_owner} ({'its rights are ours' if server.owns_pgflow else 'not our rights'})",
        )
    if found.missing_grants:
        yield "revision", "not to be read by this role, nor the ledger; what it needs:"
        yield from (("", statement) for statement in found.missing_grants)
    else:
        yield "revision", found.revision or "none recorded"
    for number, entry in enumerate(found.ledger):
        note = " CHANGED since" if entry.name in found.changed else ""
        note = " unknown: recorded by a newer pgflow-migrate" if entry.name in found.unknown else note
        yield "" if number else "ledger", f"{entry.name}  {entry.applied_at:%Y-%m-%d %H:%M:%S %Z}{note}"
    if found.disagreement:
        yield "disagree", found.disagreement
    yield "pending", "unknown" if found.pending is None else ", ".join(found.pending) or "nothing"
    if found.paused_grants:
        yield "paused", "whether worker functions are, this role may not read; what it needs:"
        yield from (("", statement) for statement in found.paused_grants)
    for function in found.paused or ():
        yield "paused", f"{function.function_name} since {function.paused_at:%Y-%m-%d %H:%M:%S %Z}"
        yield "", function.reason
        yield "", f"When the cause is mended: {function.resume}"


def _release(found: Status) -> str:
    if found.closest is None:
        return "not installed"
    if found.release is not None:
        return found.release
    differences = layout.plural(len(found.differences), "difference")
    return f"matches no release; the closest is {found.closest}, {differences}:"
