"""``work-center``: upgrade, show and verify the SQLite store of the Work Center program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgflow_migrate import layout
from pgflow_migrate.cli import output
from pgflow_migrate.cli.options import Duration, Group, format_option
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_OK

if TYPE_CHECKING:
    from pgflow_migrate.work_center.progress import BackupMade, Event, Listener, Note, StepDone
    from pgflow_migrate.work_center.status import Status, StepStatus
    from pgflow_migrate.work_center.upgrade import Result

_LARGEST = 2**53 - 1


class _Path(click.Path):
    """A path; an empty text is none, as it comes from a variable of the shell that is not set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as :class:`pathlib.Path`."""
        if value == "":
            self.fail("an empty text is no path.", param, ctx)
        return super().convert(value, param, ctx)


_path = click.argument("path", type=_Path(path_type=Path))


class _Store(Group):
    missing = {
        "downgrade": "There is no way back but the backup that upgrade makes:"
        " pgflow-migrate docs work-center."
    }


@click.group("work-center", cls=_Store)
def work_center() -> None:
    """Upgrade, show and verify the SQLite store of the Work Center program.

    pgflow-migrate docs work-center says what each step does. A store may go back and forth between the
    program and these commands at any step.
    """


@work_center.command()
@_path
@click.option(
    "--source-schema-version",
    type=click.IntRange(1, _LARGEST),
    default=22,
    show_default=True,
    help="The version that backfilled rows come from; it is part of their keys and ids.",
)
@click.option(
    "--now",
    type=click.IntRange(0, _LARGEST),
    help="The time to record, in milliseconds since 1970; default: the clock's.",
)
@click.option("--to", metavar="STEP", help="The last step to apply, such as 30; default: all of them.")
@click.option(
    "--backup",
    type=_Path(path_type=Path),
    help="Where to copy the store to before the first step; default: a name with the time, beside it.",
)
@click.option("--no-backup", is_flag=True, help="Make no copy.")
@click.option(
    "--lock-timeout",
    type=Duration(),
    default="5s",
    show_default=True,
    help="The longest single wait for others who use the store, such as 500ms or 2min.",
)
@format_option("table", "json")
def upgrade(
    path: Path,
    source_schema_version: int,
    now: int | None,
    to: str | None,
    backup: Path | None,
    no_backup: bool,
    lock_timeout: timedelta,
    format_: str,
) -> None:
    """Take a store to the newest step, each step in a transaction of its own.

    First the store is copied, and the copy checked; it is kept. When a step fails, or Ctrl-C or SIGTERM ends
    it (exit 1), that step is rolled back, and the steps before it stay; a repetition goes on from there.
    Exits 3 when a step refuses a row or the structure of the store, 4 when others used it all the time.

    \b
    pgflow-migrate work-center upgrade store.db
    pgflow-migrate work-center upgrade store.db --to 30 --backup /backups/store.db
    """
    if backup is not None and no_backup:
        raise click.UsageError("Give --backup or --no-backup, not both.")

    from pgflow_migrate.work_center.upgrade import upgrade as run

    with _progress(quiet=format_ == "json") as on_progress:
        result = run(
            path,
            now=now,
            source_schema_version=source_schema_version,
            to=to,
            backup=backup if backup is not None else not no_backup,
            lock_timeout=lock_timeout,
            on_progress=on_progress,
        )
    try:
        if format_ == "json":
            status = "already-upgraded" if result.already_current else "upgraded"
            output.print_json({"status": status, "exit_code": EXIT_OK, **output.plain(result)})
        else:
            output.echo(_summary(result))
    except output.OutputError as error:
        # The steps are committed, and an exit code of failure would say that they are not.
        output.echo(f"{_summary(result)}\n{error.message}", err=True)


@work_center.command()
@_path
@format_option("table", "json")
def status(path: Path, format_: str) -> None:
    """Show steps, rows and the state of the file; changes nothing.

    Exits 0 when the store could be looked at, whatever was found.

    \b
    pgflow-migrate work-center status store.db
    """
    from pgflow_migrate.cli import progress
    from pgflow_migrate.work_center.status import status as look

    with progress.counted("Looking at the store", quiet=format_ == "json"):
        found = look(path)
    if format_ == "json":
        output.print_json({**output.plain(found), "pending": list(found.pending)})
    else:
        output.print_rows(_rows(found))


@work_center.command()
@_path
@format_option("table", "json")
@click.pass_context
def verify(ctx: click.Context, path: Path, format_: str) -> None:
    """Check whether a store keeps what its recorded steps promise; changes nothing.

    Exits 0 when all holds, 3 when something does not, 1 when it could not look.

    \b
    pgflow-migrate work-center verify store.db
    """
    from pgflow_migrate.cli import progress
    from pgflow_migrate.work_center.verify import CHECKS
    from pgflow_migrate.work_center.verify import verify as run

    with progress.counted("Opening the store", quiet=format_ == "json") as meter:

        def check(name: str, number: int, of: int) -> None:
            meter.doing(f"Checking {name}", number - 1, of, even=False)

        found = run(path, on_check=check)
    broken = {violation.check for violation in found.violations}
    if format_ == "json":
        output.print_json(
            {
                "status": "violated" if broken else "clean",
                **output.plain(found),
                "checks": {name: "violated" if name in broken else "holds" for name in CHECKS},
            }
        )
    else:
        for violation in found.violations:
            layout.show_broken(output.console(), violation.check, violation.found, violation.hint)
        failing = f"{len(broken)} of {len(CHECKS)} checks {'fails' if len(broken) == 1 else 'fail'}"
        stand = failing if broken else f"All {len(CHECKS)} checks hold"
        output.echo(f"{stand} in {found.path}, at version {found.version}.")
    ctx.exit(EXIT_BLOCKED if broken else EXIT_OK)


def _summary(result: Result) -> str:
    if result.already_current:
        return f"Already upgraded: {result.path} is at version {result.version}; nothing was changed."
    seconds = sum(done.seconds for done in result.steps)
    lines = [
        f"Upgraded {result.path} from version {result.from_version} to {result.version} in {seconds:.1f} s:"
        f" {layout.plural(len(result.steps), 'step')}."
    ]
    if inserted := _inserted(result.steps):
        lines.append(f"Rows that were backfilled: {inserted}.")
    lines.append(f"The store as it was before: {result.backup}" if result.backup else "No backup was made.")
    return "\n".join(lines)


def _inserted(steps: tuple[StepDone, ...]) -> str:
    return ", ".join(f"{count:,} in {table}" for done in steps for table, count in done.rows.items())


def _rows(found: Status) -> Iterator[tuple[str, str]]:
    yield "store", f"{found.path} ({found.size:,} bytes, journal mode {found.journal_mode})"
    yield "version", str(found.version)
    column = max(map(len, [*(step.step for step in found.steps), *found.unknown]))
    for number, step in enumerate(found.steps):
        yield "" if number else "steps", _step(step, column)
    for name in found.unknown:
        yield "", f"{name:<{column}}  unknown: recorded by a newer program"
    contract = {
        None: "there is no table engine_turns",
        True: "holds",
        False: "engine_turns is of an older shape",
    }
    yield "contract", contract[found.contract]
    for number, (table, count) in enumerate(found.rows.items()):
        yield "" if number else "rows", f"{count:>9,}  {table}"
    for number, problem in enumerate(found.problems or ("none",)):
        yield "" if number else "damage", problem
    yield "pending", ", ".join(found.pending) or "nothing"


def _step(found: StepStatus, column: int) -> str:
    changed = "  ANOTHER CHECKSUM" if found.checksum is False else ""
    at = f"  {_time(found.applied_at)}" if found.state != "missing" else ""
    state = "" if found.state == "recorded" else f"  {found.state}"
    return f"{found.step:<{column}}{at}{state}{changed}"


def _time(at: Any) -> str:
    """Milliseconds since 1970 as a time; what is none, as it is."""
    with contextlib.suppress(TypeError, ValueError, OverflowError, OSError):
        return f"{datetime.fromtimestamp(at / 1000, timezone.utc):%Y-%m-%d %H:%M:%S %Z}"
    return str(at)


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Listener]:
    """The progress on stderr; of a program that reads the result, what a person should know alone."""
    from pgflow_migrate.cli import progress
    from pgflow_migrate.work_center.progress import Note, RowsRead, StepStarted

    with progress.counted("Opening and copying the store", quiet=quiet) as meter:

        def listen(event: Event) -> None:
            if isinstance(event, StepStarted):
                meter.doing(event.step, event.number - 1, event.of, even=False)
            elif isinstance(event, RowsRead):
                meter.doing(f"{event.step}: rows of {event.table}", event.done, event.of)
            elif quiet and isinstance(event, Note):
                output.echo(event.text, err=True)
            else:
                meter.say(_line(event))

        yield listen


def _line(event: Note | BackupMade | StepDone) -> str:
    from pgflow_migrate.work_center.progress import BackupMade, Note

    if isinstance(event, Note):
        return event.text
    if isinstance(event, BackupMade):
        return f"Backup: {event.path} ({event.size:,} bytes, {event.seconds:.2f} s)"
    rows = _inserted((event,))
    adopted = ", adopted from its earlier name" if event.outcome == "adopted" else ""
    return f"{event.step}: {event.seconds:.2f} s{adopted}{f', {rows}' if rows else ''}"
