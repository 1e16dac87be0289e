"""A replay on several servers, with PGMQ in both forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pgflow_migrate import database
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, EXIT_OK, PgflowMigrateError
from pgflow_migrate.replay.results import Report
from pgflow_migrate.replay.trouble import explained
from pgflow_migrate.servers import How, Server, open_server, pgmq_as_extension
from pgflow_migrate.servers.installation import in_wheels

FORMS: tuple[How, ...] = ("extension", "sql")


@dataclass(frozen=True)
class Cell:
    """One server with PGMQ in one form.

    Attributes:
        server: the server's label, or the word that none could be made of.
        pgmq: ``extension`` or ``sql``.
        report: what came out; None when it did not run.
        reason: why it did not run, or, with a report, what went wrong afterwards: a sentence.
        failed: whether it should have run, or something went wrong afterwards.
    """

    server: str
    pgmq: How
    report: Report | None
    reason: str = ""
    failed: bool = False


@dataclass(frozen=True)
class Matrix:
    """All of them, in the order in which they ran."""

    cells: tuple[Cell, ...]

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases that were replayed, in the order in which they first came."""
        reports = [cell.report for cell in self.cells if cell.report is not None]
        return tuple(dict.fromkeys(result.release for report in reports for result in report.results))

    @property
    def exit_code(self) -> int:
        """3 when anything differs or is blocked, else 1 when anything could not run, else 0."""
        codes = {cell.report.exit_code for cell in self.cells if cell.report is not None}
        if EXIT_BLOCKED in codes:
            return EXIT_BLOCKED
        ran = any(cell.report is not None for cell in self.cells)
        failed = not ran or EXIT_COULD_NOT_RUN in codes or any(cell.failed for cell in self.cells)
        return EXIT_COULD_NOT_RUN if failed else EXIT_OK


def kinds() -> tuple[str, ...]:
    """Every embedded server that is installed here, as words for ``open_server``."""
    return tuple(f"embedded:{version}" for version in sorted(in_wheels()))


def run(
    servers: Sequence[str],
    forms: Sequence[How],
    play: Callable[[Server, How], Report],
    on_cell: Callable[[Cell], None] = lambda cell: None,
) -> Matrix:
    """Replay on each server in each form; what cannot run does not stop the others.

    Args:
        servers: words for :func:`~pgflow_migrate.servers.open_server`.
        forms: how PGMQ is installed.
        play: the replay.
        on_cell: called after each.
    """
    cells: list[Cell] = []

    def add(cell: Cell) -> None:
        cells.append(cell)
        on_cell(cell)

    for kind in servers:
        left = list(forms)
        label = kind if "://" not in kind and "=" not in kind else "server"
        try:
            with explained(), open_server(kind) as server:
                label = server.label
                while left:
                    add(_cell(server, left.pop(0), play))
        except PgflowMigrateError as error:
            for form in left:
                add(Cell(label, form, None, str(error), failed=True))
            # When it is left, its databases perhaps: what ran, ran.
            if not left and not cells[-1].failed:
                cells[-1] = replace(cells[-1], reason=str(error), failed=True)
    return Matrix(tuple(cells))


def _cell(server: Server, form: How, play: Callable[[Server, How], Report]) -> Cell:
    try:
        with explained(server.label):
            if form == "extension":
                with database.connect(server.admin_dsn) as connection:
                    if not pgmq_as_extension(connection):
                        return Cell(server.label, form, None, "This server has no extension pgmq.")
            return Cell(server.label, form, play(server, form))
    except PgflowMigrateError as error:
        return Cell(server.label, form, None, str(error), failed=True)
