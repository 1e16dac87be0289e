"""``status``: where a database stands, at a glance."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from pgflow_migrate import durations, layout
from pgflow_migrate.cli import output
from pgflow_migrate.cli.json_schema import json_schema_option
from pgflow_migrate.cli.options import OneCallOption, dsn_option, format_option, target_of
from pgflow_migrate.errors import PgflowMigrateError

if TYPE_CHECKING:
    from pgflow_migrate.upgrade.activity import Queue
    from pgflow_migrate.upgrade.status import AuditSummary, Status

_QUEUES = 10  # rows of them in the table; JSON has all
_ADDITIONS = 3
_AUDIT_AGAIN = timedelta(minutes=1)
# The terminal's other screen, as pagers use it: what was there before comes back when it is left.
_OTHER_SCREEN, _OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
_HOME, _EMPTY_LINE, _REST = "\x1b[H", "\x1b[2K", "\x1b[J"


@click.command()
@dsn_option
@format_option("table", "json")
@click.option(
    "--watch",
    cls=OneCallOption,
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(0.1, 86_400),
    metavar="[SECONDS]",
    help="Look again and again, after 2 seconds or as many as are given; Ctrl-C ends it.",
)
@json_schema_option
def status(dsn: str | None, format_: str, watch: float | None) -> None:
    """Show release, revisions, what goes on, and what to do next; changes nothing.

    Release and drift are read off the catalogue, revisions off the ledger. Then: workers alive by the
    upgrade's own rule, paused functions with what resumes them, the depth of each queue, the audit in a line
    while there is something to audit, and the time limits that hold for this role. What somebody else has
    locked is passed over. Exits 0 when the database could be looked at, whatever was found.

    --watch draws the page anew on a terminal, and prints page after page elsewhere (with --format json an
    object a line). The audit is repeated once a minute. It goes on when the server goes away; Ctrl-C ends it
    with 0.

    \b
    pgflow-migrate status --dsn service=production
    pgflow-migrate status --watch 5
    pgflow-migrate status --format json | jq .next
    """
    from pgflow_migrate.upgrade.status import read_status

    target = target_of(dsn)
    found = read_status(target)
    if watch is not None:
        _watch(target, found, format_, watch)
    elif format_ == "json":
        output.print_json(_document(found))
    else:
        output.print_rows(_rows(found))


def _document(found: Status) -> dict[str, Any]:
    return {"schema": "urn:pgflow-migrate:status:1", **output.plain(found)}


def _watch(dsn: str, found: Status, format_: str, seconds: float) -> None:
    """Show ``found`` and what comes after it, until somebody ends it."""
    screen = _Screen() if format_ != "json" and output.is_terminal() else None
    number = 0
    with contextlib.suppress(KeyboardInterrupt), screen or contextlib.nullcontext():
        while True:
            if format_ == "json":
                output.echo(json.dumps(_document(found), ensure_ascii=False))
            elif screen is not None:
                screen.draw(output.row_lines(_rows(found)))
            else:
                output.echo("\n".join([*[""] * bool(number), *output.row_lines(_rows(found))]))
            number += 1
            time.sleep(seconds)
            audit = found.audit
            fresh = audit if audit is not None and found.taken_at - audit.taken_at < _AUDIT_AGAIN else None
            found = _once_more(dsn, fresh, seconds)


class _Screen:
    """A page that is drawn over and over; at the end the last one stands where the command was given."""

    def __init__(self) -> None:
        self._page: list[str] = []

    def __enter__(self) -> None:
        output.echo(_OTHER_SCREEN, nl=False)

    def __exit__(self, *error: object) -> None:
        output.echo("\n".join([_OWN_SCREEN + "\r", *self._page]))

    def draw(self, page: list[str]) -> None:
        self._page = page
        height = _height()
        if len(page) >= height:  # the cursor stands on a line of its own
            left = len(page) - height + 2
            page = [*page[: height - 2], f"… {layout.plural(left, 'more line')}: --format json has all"]
        # In one piece and over what is there, so that it does not flicker.
        output.echo(_HOME + "".join(f"{_EMPTY_LINE}{line}\n" for line in page) + _REST, nl=False)


def _height() -> int:
    """The terminal's lines. LINES may be of another one, or of an earlier size: readline exports it."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines
    except (OSError, ValueError):
        return shutil.get_terminal_size().lines


def _once_more(dsn: str, audit: AuditSummary | None, seconds: float) -> Status:
    """Look again, for as long as it takes to be let in: a server that restarts comes back."""
    from pgflow_migrate.upgrade.status import read_status

    told = ""
    while True:
        try:
            return read_status(dsn, audited=audit)
        except PgflowMigrateError as error:
            if str(error) != told:
                told = str(error)
                output.echo(layout.printable(told), err=True, level="warning")
            time.sleep(seconds)


def _rows(found: Status) -> Iterator[tuple[str, str]]:
    """The lines of the table: a name, or an empty one for the lines that belong to it, and a value."""
    server = found.server
    standby = ", standby" if server.standby else ""
    yield "database", f"{server.database} (PostgreSQL {server.version}{standby}) at {_time(found.taken_at)}"
    yield "role", f"{server.role}{' (superuser)' if server.superuser else ''}"
    if server.pooler:
        yield "pooler", f"suspected: {server.pooler}"
    yield "pgflow", _release(found)
    if found.closest is not None:
        yield "drift", _drift(found)
        yield from (("", difference) for difference in found.differences)
    if server.pgflow_owner:
        yield (
            "owner",
            f"{server.pgflow_owner} ({'its rights are ours' if server.owns_pgflow else 'not our rights'})",
        )
    yield from _revisions(found)
    yield from _activity(found)
    if found.audit_applies:
        yield "audit", _audit(found)
        yield from _lost(found.audit)
    yield "timeouts", _timeouts(found)
    yield from _named("unread", found.unread)
    yield from _named("next", found.next)
    if found.additions:
        yield "additions", f"{len(found.additions)} of your own, of no consequence"
        yield from (("", addition) for addition in found.additions[:_ADDITIONS])
        if len(found.additions) > _ADDITIONS:
            yield "", f"… and {len(found.additions) - _ADDITIONS} more"


def _revisions(found: Status) -> Iterator[tuple[str, str]]:
    if found.missing_grants:
        yield "revision", "not to be read by this role, nor the ledger; what it needs:"
        yield from (("", statement) for statement in found.missing_grants)
    else:
        yield "revision", found.revision or "none recorded"
    column = max((len(entry.name) for entry in found.ledger), default=0)
    for number, entry in enumerate(found.ledger):
        note = "  CHANGED since" if entry.name in found.changed else ""
        note = "  unknown: recorded by a newer pgflow-migrate" if entry.name in found.unknown else note
        yield "" if number else "ledger", f"{entry.name:<{column}}  {_time(entry.applied_at)}{note}"
    if found.disagreement:
        yield "disagree", found.disagreement
    yield "pending", "unknown" if found.pending is None else ", ".join(found.pending) or "nothing"


def _activity(found: Status) -> Iterator[tuple[str, str]]:
    if found.upgrades:
        yield "upgrade", f"one is running: pid {', '.join(map(str, found.upgrades))}"
    if found.activity_grants:
        yield "workers", "not to be read by this role, nor the queues; what it needs:"
        yield from (("", statement) for statement in found.activity_grants)
    if found.workers is not None:
        yield from _named("workers", tuple(map(str, found.workers)) or ("none alive",))
    if found.paused_grants:
        yield "paused", "whether worker functions are, this role may not read; what it needs:"
        yield from (("", statement) for statement in found.paused_grants)
    for function in found.paused or ():
        yield "paused", f"{function.function_name} since {_time(function.paused_at)}"
        yield "", function.reason
        yield "", f"When the cause is mended: {function.resume}"
    if found.queues is not None:
        yield from _named("queues", tuple(_queues(found.queues)) or ("none",))


def _queues(queues: tuple[Queue, ...]) -> Iterator[str]:
    """What wants to be looked at, the deepest first; the rest as a number."""
    shown = [queue for queue in queues if queue.problem]
    shown += sorted((q for q in queues if q.total), key=lambda q: (-(q.total or 0), q.queue_name))
    empty = sum(queue.total == 0 for queue in queues)
    for queue in shown[:_QUEUES]:
        if queue.problem:
            yield f"{queue.queue_name}: {_PROBLEMS[queue.problem]}"
        else:
            age = "" if queue.oldest_age is None else f", the oldest {durations.age(queue.oldest_age)} old"
            yield f"{queue.queue_name}: {queue.visible:,} visible of {queue.total:,}{age}"
    if len(shown) > _QUEUES:
        yield f"… and {len(shown) - _QUEUES} more"
    if empty:
        yield f"{layout.plural(empty, 'empty queue')}"


_PROBLEMS = {"absent": "there is no such queue", "unreadable": "not to be read by this role"}


def _audit(found: Status) -> str:
    audit = found.audit
    if audit is None:
        return "not made"
    numbers = ", ".join(
        layout.plural(number, name)
        for number, name in ((audit.errors, "error"), (audit.warnings, "warning"), (audit.notes, "note"))
        if number
    )
    blocking = f" ({', '.join(audit.blocking)})" if audit.blocking else ""
    # One made now may take long and is later than the rest; one of an earlier reading is told with its time.
    earlier = audit.taken_at < found.taken_at - timedelta(seconds=1)
    at = f", at {_time(audit.taken_at)}" if earlier else ""
    return f"{numbers or 'clean'}{blocking}{at}"


def _lost(audit: AuditSummary | None) -> Iterator[tuple[str, str]]:
    if audit is not None and audit.lost_tasks:
        have = layout.plural(audit.lost_tasks, "live task has", "live tasks have")
        will = "it will" if audit.lost_tasks == 1 else "they will"
        yield "", f"{have} no message: {will} never run; pgflow-migrate docs findings says what to do"


def _timeouts(found: Status) -> str:
    limits = [f"{limit.name} {limit.value} ({limit.source})" for limit in found.timeouts if limit.value]
    return ", ".join(limits) or "none"


def _named(name: str, lines: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return ((name if not number else "", line) for number, line in enumerate(lines))


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S %Z}"


def _release(found: Status) -> str:
    if found.closest is None:
        return "not installed"
    return found.release or f"matches no release; the closest is {found.closest}"


def _drift(found: Status) -> str:
    if not found.differences:
        return "none"
    return f"{layout.plural(len(found.differences), 'difference')} from {found.closest}:"
