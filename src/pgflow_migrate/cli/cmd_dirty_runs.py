"""``dirty-runs``: the contract of protocol 2, its inventory, its runs, and one chunk of reconciliation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflow_migrate.cli import output
from pgflow_migrate.cli.options import DsnOption, dsn_option, format_option, target_of
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_OK
from pgflow_migrate.layout import printable

if TYPE_CHECKING:
    from pgflow_migrate.dirty_runs.status import Claim, Status, Work


@click.group("dirty-runs")
def dirty_runs() -> None:
    """Look at runs of the internal protocol 2, reconcile one of them, print its contract.

    pgflow-migrate docs dirty-runs has the contract. Nothing here is for production.
    """


_compared = click.option(
    "--dsn", cls=DsnOption, help="Also compare with this database; without it nothing is connected to."
)


@dirty_runs.command()
@_compared
@format_option("markdown", "json")
@click.pass_context
def contract(ctx: click.Context, dsn: str | None, format_: str) -> None:
    """Print the contract: limits, transitions, what two calls that meet get.

    With --dsn, says on stderr which limits the database enforces otherwise, and exits 3 when there are any.

    \b
    pgflow-migrate dirty-runs contract
    pgflow-migrate dirty-runs contract --format json
    """
    from pgflow_migrate.dirty_runs import installed, render

    differing = () if dsn is None else installed.differing_limits(dsn)
    if format_ == "json":
        output.print_json(render.document())
    else:
        output.echo(render.markdown(), nl=False)
    for difference in differing:
        output.echo(f"limit {difference}", err=True)
    ctx.exit(EXIT_BLOCKED if differing else EXIT_OK)


@dirty_runs.command()
@_compared
@format_option("table", "json")
@click.pass_context
def inventory(ctx: click.Context, dsn: str | None, format_: str) -> None:
    """Print everything that could write to runs of protocol 2, its guard, and the test that shows it.

    With --dsn, also whether the database has it, and exits 3 when a function or trigger is missing.

    \b
    pgflow-migrate dirty-runs inventory
    """
    from pgflow_migrate.dirty_runs import installed
    from pgflow_migrate.dirty_runs.inventory import INVENTORY

    found = {} if dsn is None else installed.installed(dsn)
    if format_ == "json":
        entries: list[dict[str, Any]] = output.plain(INVENTORY)
        output.print_json(
            entries if dsn is None else [entry | {"installed": found.get(entry["name"])} for entry in entries]
        )
    else:
        for entry in INVENTORY:
            output.echo(entry.name)
            output.print_rows(
                [
                    ("  kind", entry.kind),
                    ("  writes", entry.writes),
                    ("  guard", entry.guard),
                    ("  test", f"tests/dirty_runs/{entry.test}"),
                    *([("  installed", "yes" if found[entry.name] else "no")] if entry.name in found else []),
                ]
            )
    ctx.exit(EXIT_OK if all(found.values()) else EXIT_BLOCKED)


@dirty_runs.command()
@dsn_option
@format_option("table", "json")
@click.option("--all", "all_runs", is_flag=True, help="Also runs that are over and have nothing left to do.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Of runs.")
@click.pass_context
def status(ctx: click.Context, dsn: str | None, format_: str, all_runs: bool, limit: int) -> None:
    """Show work rows, generations, errors and claims, what needs attention first; changes nothing.

    Exits 3 when a run needs attention.

    \b
    pgflow-migrate dirty-runs status --dsn service=staging
    pgflow-migrate dirty-runs status --all --format json
    """
    from pgflow_migrate.dirty_runs.status import status as look

    found = look(target_of(dsn), all_runs=all_runs, limit=limit)
    if format_ == "json":
        output.print_json(_document(found))
    else:
        _show(found, all_runs)
    ctx.exit(EXIT_BLOCKED if found.attention else EXIT_OK)


@dirty_runs.command()
@dsn_option
@format_option("table", "json")
@click.option("--run", "run_id", type=click.UUID, metavar="ID", help="The run to reconcile.")
@click.option("--next", "next_", is_flag=True, help="The first run that is due and not locked.")
@click.pass_context
def reconcile(ctx: click.Context, dsn: str | None, format_: str, run_id: UUID | None, next_: bool) -> None:
    """Reconcile one run by one chunk, in one transaction, and say what that did.

    Exits 3 when the chunk failed (its error is recorded), or the run needs attention, is unknown or is not of
    protocol 2.

    \b
    pgflow-migrate dirty-runs reconcile --next
    pgflow-migrate dirty-runs reconcile --run 6f1c2f0e-8a50-4e5e-9a39-0b1f2b7d7c11
    """
    if (run_id is not None) == next_:
        raise click.UsageError("Give --run ID or --next, one of the two.")

    from pgflow_migrate.dirty_runs.reconciliation import reconcile as chunk

    answer = chunk(target_of(dsn), run_id)
    output.remember_change(ctx)
    if format_ == "json":
        output.print_json(answer)
    else:
        output.print_rows([(name.replace("_", " "), str(value)) for name, value in _ordered(answer)])
    bad = ("failed", "attention", "unknown", "wrong_protocol", "rejected")
    ctx.exit(EXIT_BLOCKED if answer["outcome"] in bad else EXIT_OK)


def _ordered(answer: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    first = ("outcome", "run_id", "step_slug", "reason", "state", "sqlstate", "error")
    yield from ((name, answer[name]) for name in first if name in answer)
    yield from ((name, value) for name, value in answer.items() if name not in first and value is not None)


def _document(found: Status) -> dict[str, Any]:
    document: dict[str, Any] = _spelt(output.plain(found))
    return document | {"attention": found.attention}


def _spelt(value: Any) -> Any:
    """UUIDs as text."""
    if isinstance(value, dict):
        return {name: _spelt(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_spelt(item) for item in value]
    return str(value) if isinstance(value, UUID) else value


def _show(found: Status, all_runs: bool) -> None:
    if not found.work:
        output.echo(
            "No runs of protocol 2." if all_runs else "No runs of protocol 2 that have anything to do."
        )
        return
    for work in found.work:
        output.echo(f"{work.run_id}  {printable(work.flow_slug)}")
        output.print_rows(
            [*_work_rows(work), *(_claim_row(claim) for claim in found.claims if claim.run_id == work.run_id)]
        )
    if found.cut:
        output.echo("There are more: --limit.", err=True)


def _work_rows(work: Work) -> Iterator[tuple[str, str]]:
    yield "  run", work.status
    behind = work.requested_generation - work.processed_generation
    yield (
        "  work",
        f"{work.state}, generation {work.processed_generation} of {work.requested_generation} processed"
        + (f", {behind} behind since {work.requested_at}" if behind else ""),
    )
    if work.attention_reason:
        yield "  attention", f"{work.attention_reason} since {work.attention_at}"
    if work.next_attempt_at:
        yield "  next attempt", str(work.next_attempt_at)
    if work.last_error:
        yield (
            "  last error",
            f"{work.last_error_sqlstate}: {work.last_error} ({work.failure_count} in a row)",
        )


def _claim_row(claim: Claim) -> tuple[str, str]:
    ended = claim.disposition or claim.revoked_reason
    state = claim.state + (f" ({ended})" if ended else ", lease over" if claim.lease_is_over else "")
    return (
        f"  claim {claim.claim_number}",
        f"{claim.step_slug}/{claim.task_index} {state}, message {claim.msg_id} in {claim.queue_name}, "
        f"worker {claim.worker_id}, lease until {claim.lease_expires_at}",
    )
