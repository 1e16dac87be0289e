"""``prune-helper``: which pruning helper is installed, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pgflow_migrate.cli import output
from pgflow_migrate.cli.options import dsn_option, format_option, given, target_of
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_OK

if TYPE_CHECKING:
    from pgflow_migrate.prune_helper import Helper, PruneHelpers

_KINDS = {
    "absent": "not installed",
    "stock": "the documented one, since pgflow 0.7.0",
    "original": "the one documented from pgflow 0.2.3 to 0.6.1",
    "customised": "not a documented one: somebody has changed it",
    "unreadable": "installed, but this role may not read its body",
    "other-arguments": "a function of your own",
    "former": "the queue-aware one from before protocol 2",
    "queue-aware": "the queue-aware one of this pgflow-migrate",
}

_INSTALL = 'pgflow-migrate prune-helper --sql | psql "$PGFLOW_DSN" -X -v ON_ERROR_STOP=1'

_DERIVES_QUEUES = "It derives queues from flows, and so works while every flow uses its default queue."
_FAILS = "It removes no messages, and fails where an old run has unfinished tasks."
_ADAPT = (
    "Read it. Where it derives queues from flows, take step_tasks.queue_name and steps.queue_name; lock "
    "runs, step states, tasks and queues in this order. pgflow-migrate prune-helper --sql shows how."
)
_ADAPTED = (
    "Whether a function has been adapted cannot be told from here: give it another name, and nothing is said "
    "of it any more."
)
_DROP = (
    "Or keep its text somewhere, drop it (drop function pgflow.prune_data_older_than(interval);) "
    "and install the queue-aware one:"
)

_BEFORE = {
    "absent": ["Nothing."],
    "stock": [
        f"Nothing before the upgrade, which leaves it alone. {_DERIVES_QUEUES} Afterwards replace it:",
        _INSTALL,
    ],
    "original": [
        f"Nothing before the upgrade, which leaves it alone. {_FAILS} Afterwards replace it:",
        _INSTALL,
    ],
    "customised": ["Nothing before the upgrade, which leaves it alone. For afterwards: " + _ADAPT],
    "unreadable": ["Repeat as a role that may read pg_proc.prosrc."],
    "other-arguments": ["Nothing before the upgrade, which leaves it alone. For afterwards: " + _ADAPT],
    "former": ["Nothing before the upgrade. Until then it fails, and deletes nothing."],
    "queue-aware": ["Nothing before the upgrade. Until then it fails, and deletes nothing."],
}
_AFTER = {
    "absent": ["Nothing. Should you want one:", _INSTALL],
    "stock": [f"Replace it. {_DERIVES_QUEUES}", _INSTALL],
    "original": [
        f"Replace it. {_FAILS}",
        _INSTALL,
    ],
    "customised": [_ADAPT, _ADAPTED, _DROP, _INSTALL],
    "unreadable": _BEFORE["unreadable"],
    "other-arguments": [_ADAPT, _ADAPTED],
    "former": [
        "Replace it. It works until the first run of protocol 2 is old; then it fails, and deletes nothing.",
        _INSTALL,
    ],
    "queue-aware": ["Nothing."],
}


@click.command("prune-helper")
@dsn_option
@format_option("table", "json")
@click.option(
    "--sql", is_flag=True, help="Print the SQL that installs the queue-aware helper; connects to nothing."
)
@click.pass_context
def prune_helper(ctx: click.Context, dsn: str | None, format_: str, sql: bool) -> None:
    """Say which pruning helper is installed, and what to do; changes nothing.

    The helper is pgflow.prune_data_older_than(interval), which pgflow's documentation gives and no upgrade
    touches. Exits 0 when there is nothing to do now: none is installed, it is the queue-aware one, or the
    database is not upgraded yet. Exits 3 when the database has queue identity and the helper must be replaced
    or adapted; for the queue-aware one from before protocol 2 only when the database has protocol 2.

    \b
    pgflow-migrate prune-helper --dsn service=production
    pgflow-migrate prune-helper --sql | psql service=production -X -v ON_ERROR_STOP=1
    """
    from pgflow_migrate import prune_helper as library

    if sql:
        if given(ctx, "format_"):
            raise click.UsageError("--sql prints a script, which has no --format: give one of the two.")
        output.echo(library.script(), nl=False)
        return

    found = library.find(target_of(dsn))
    if format_ == "json":
        output.print_json(_document(found))
    else:
        output.print_rows(_rows(found))
    ctx.exit(EXIT_BLOCKED if found.to_do else EXIT_OK)


def _advice(found: PruneHelpers, helper: Helper) -> list[str]:
    return (_AFTER if found.queue_identity else _BEFORE)[helper.kind]


def _rows(found: PruneHelpers) -> Iterator[tuple[str, str]]:
    at = "at queue identity or later" if found.queue_identity else "before queue identity"
    yield "database", f"{found.database}, {at}"
    for helper in found.helpers:
        yield "helper", f"{helper.signature}: {_KINDS[helper.kind]}"
        first, *more = _advice(found, helper)
        yield "to do", first
        yield from (("", line) for line in more)


def _document(found: PruneHelpers) -> object:
    document = output.plain(found)
    for entry, helper in zip(document["helpers"], found.helpers, strict=True):
        entry["advice"] = _advice(found, helper)
    return {**document, "to_do": found.to_do}
