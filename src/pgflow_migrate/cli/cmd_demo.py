"""``demo``: audit and upgrade shown on an embedded PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pgflow_migrate.cli import output, signals
from pgflow_migrate.cli.options import format_option
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_OK
from pgflow_migrate.layout import lines, plural, show, width_of

if TYPE_CHECKING:
    from rich.console import Console

    from pgflow_migrate.audit.findings import AuditReport
    from pgflow_migrate.errors import BlockedError
    from pgflow_migrate.replay.demo import Busy, Routed, Verification
    from pgflow_migrate.upgrade.progress import Event
    from pgflow_migrate.upgrade.run import UpgradeResult


@click.command()
@format_option("table", "json")
@click.pass_context
def demo(ctx: click.Context, format_: str) -> None:
    """Show audit and upgrade on an embedded PostgreSQL, and check by SQL what they promise.

    Starts a server of its own, fills a 0.16.0 database with work in flight, audits, mends, upgrades and lets
    the work go on; then everything is deleted. Exits 0 when every promise was kept, 3 when one was not, 1
    when there is no embedded PostgreSQL.

    \b
    pgflow-migrate demo
    pgflow-migrate demo --format json 2> story.txt
    """
    from pgflow_migrate.replay.demo import demonstrate
    from pgflow_migrate.replay.templates import Templates
    from pgflow_migrate.servers import open_server

    started = time.perf_counter()
    narrator = _Narrator(output.console(stderr=format_ == "json"))
    narrator.say("Starting PostgreSQL 18 and building pgflow 0.16.0 in it")
    with signals.as_end_of_trial(), open_server("embedded:18") as server:
        dsn = Templates(server).clone("core_0_16_0", "demo")
        told = demonstrate(dsn, narrator)
    seconds = time.perf_counter() - started
    kept = sum(verification.kept for verification in told.verifications)
    promises = plural(len(told.verifications), "promise")
    narrator.end(f"{kept} of {promises} kept, in {seconds:.0f} s. Nothing is left behind.")
    if format_ == "json":
        output.print_json({"kept": told.kept, "seconds": round(seconds, 3), **output.plain(told)})
    ctx.exit(EXIT_OK if told.kept else EXIT_BLOCKED)


class _Narrator:
    """Prints the story as it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._chapters = 0
        self._audits = 0
        self._functions: set[str] = set()

    def say(self, text: str) -> None:
        stripped = text.lstrip()
        show(self._console, stripped, indent=text[: len(text) - len(stripped)])

    def end(self, text: str) -> None:
        self._console.print()
        show(self._console, text, style="bold")

    def chapter(self, title: str) -> None:
        self._chapters += 1
        self._console.print()
        show(self._console, f"{self._chapters}. {title}", style="bold cyan")

    def populated(self, flows: tuple[Busy, ...]) -> None:
        rows = [(flow.flow_slug, str(flow.runs), str(flow.tasks), str(flow.unfinished)) for flow in flows]
        self._table(("flow_slug",), ("runs", "tasks", "unfinished"), rows)

    def audited(self, report: AuditReport) -> None:
        from pgflow_migrate.audit import render

        self._audits += 1
        if self._audits == 1:
            render.table(report, self._console)
        else:
            # What the first report has shown already is left out.
            render.findings_table([*report.blocking, *report.of("warning")], self._console)
            self.say(f"   {render.words.verdict(report)}")

    def statements(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            # SQL as it is written: its lines are short, and their indents count.
            self._console.print(f"   {line}", style="dim", markup=False, soft_wrap=True)

    def refused(self, error: BlockedError) -> None:
        show(self._console, f"refused: {error}", style="yellow", indent="   ")

    def progress(self, event: Event) -> None:
        from pgflow_migrate.cli import progress
        from pgflow_migrate.upgrade.progress import FileDone, FileStarted, RevisionApplied

        if isinstance(event, FileDone):
            return
        if isinstance(event, FileStarted) and event.file.startswith("functions/"):
            self._functions.add(event.file)
            return
        if isinstance(event, RevisionApplied):
            self.say(f"     and {plural(len(self._functions), 'function')}")
        self.say(f"   {progress.line(event)}")

    def upgraded(self, result: UpgradeResult, routed: tuple[Routed, ...]) -> None:
        seconds = sum(applied.seconds for applied in result.applied)
        self.say(f"   committed: {result.from_release} is now {result.revision}, in {seconds:.2f} s")
        rows = [(flow.flow_slug, flow.queue_name, str(flow.tasks), str(flow.unfinished)) for flow in routed]
        self._table(("flow_slug", "queue_name"), ("tasks", "unfinished"), rows)

    def verified(self, verification: Verification) -> None:
        from rich.text import Text

        mark = (
            Text("   ok      ", style="green") if verification.kept else Text("   BROKEN  ", style="bold red")
        )
        found = f" ({verification.found})" if verification.found else ""
        told = lines(verification.promise + found, width_of(self._console), " " * len(mark))
        for number, line in enumerate(told):
            start = mark if not number else Text(" " * len(mark))
            self._console.print(start + Text(line[len(mark) :]), soft_wrap=True)

    def _table(self, texts: Sequence[str], numbers: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
        from rich.padding import Padding
        from rich.table import Table

        lines = Table(box=None, pad_edge=False, header_style="bold")
        for heading in texts:
            lines.add_column(heading)
        for heading in numbers:
            lines.add_column(heading, justify="right")
        for row in rows:
            lines.add_row(*row)
        self._console.print(Padding(lines, (0, 0, 0, 3), expand=False))
