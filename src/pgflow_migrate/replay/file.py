"""Taking the copy of a database, a file that ``export`` wrote, through audit and upgrade."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from pgflow_migrate import database
from pgflow_migrate.audit.findings import AuditReport, Finding
from pgflow_migrate.audit.render.words import samples
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.errors import BlockedError, PgflowMigrateError
from pgflow_migrate.export.document import Header
from pgflow_migrate.export.file import ExportFileError, Reader
from pgflow_migrate.export.rebuild import Rebuilt, rebuild
from pgflow_migrate.layout import plural, printable
from pgflow_migrate.releases.chain import HEAD, REVISIONS, release_of
from pgflow_migrate.releases.identify import identify
from pgflow_migrate.replay import checks, digest, standing
from pgflow_migrate.replay.results import Outcome, Report, Result
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.replay.trouble import explained
from pgflow_migrate.servers import How, Server, pgmq_as_extension
from pgflow_migrate.servers.server import ending_with
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import AMONG_WORKERS
from pgflow_migrate.verify.violations import Violation

# What the repairs of 0.15.1 are there for.
_REPAIRED = {"core_0_15_0": ("pgflow.step_tasks.status",)}

_DATABASE = "replay_file"
_RELEASES = {release_of(revision): revision for revision in REVISIONS}


def replay_file(
    server: Server,
    path: Path,
    *,
    pgmq: How | None = None,
    baseline_sql: Path | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
    on_rebuilding: Callable[[str, int, int], None] = lambda table, done, of: None,
) -> Report:
    """Rebuild the database, audit it, upgrade it as a trial, and verify what came of it.

    Args:
        server: where it is rebuilt; it is dropped again.
        path: the file.
        pgmq: how PGMQ is installed; by default as in the original, where the server can.
        baseline_sql: as for :class:`~pgflow_migrate.replay.templates.Templates`.
        on_phase: called with what begins, a few words.
        on_rebuilding: called while rows are written: their table, and how many bytes of the file are done of
            how many.

    Returns:
        One result: it upgrades, is blocked by findings, or differs from what an upgrade should leave.

    Raises:
        ExportFileError: it is no export, a damaged one, one of a newer format or of an unknown release.
        PgflowMigrateError: the copy is not a full one, or the database cannot be made.
    """
    started = time.perf_counter()
    with Reader(path) as reader, explained(server.label):
        revision = revision_to_build(reader)
        templates = Templates(server, pgmq=pgmq or _form(server, reader.header), baseline_sql=baseline_sql)
        with ending_with(templates.drop), ending_with(partial(server.drop_database, _DATABASE)):
            on_phase(f"Rebuilding {reader.header.release}")
            dsn = templates.clone(revision, _DATABASE)
            with database.connect(dsn, autocommit=True) as connection:
                rebuilt = rebuild(
                    connection, reader, lambda table: on_rebuilding(table, reader.position, reader.size)
                )
                connection.execute("analyze")
                outcome, details, notes = _taken_through(dsn, connection, revision, on_phase)
        notes = (*_circumstances(server, reader.header, rebuilt, templates.pgmq), *notes)
    name = path.name
    seconds = time.perf_counter() - started
    release = reader.header.release or ""
    return Report(
        server.label, templates.pgmq, (Result(release, name, outcome, details, seconds, notes),), "database"
    )


def revision_to_build(reader: Reader) -> str:
    """The revision of the file's database.

    Raises:
        ExportFileError: it is of no release that is known.
        PgflowMigrateError: the copy is not a full one, so that its verdict would not be the original's.
    """
    release = reader.header.release
    if release is None:
        raise ExportFileError(
            f"{reader.path} is of a database that matches no known release of pgflow; the closest is"
            f" {reader.header.closest}.",
            "Undo the differences that pgflow-migrate status lists there, and export again.",
        )
    if reader.header.unread:
        raise PgflowMigrateError(
            f"{reader.path} is not a full copy: the role that exported could not read everything.",
            "Grant what is missing, and export again.",
            reader.header.unread,
        )
    revision = _RELEASES.get(release)
    if revision is None:
        raise ExportFileError(
            f"{reader.path} is of release {release}, which this pgflow-migrate does not know.",
            "Upgrade pgflow-migrate.",
        )
    return revision


def _form(server: Server, header: Header) -> How | None:
    if header.pgmq is None:
        return None
    if header.pgmq.form == "extension":
        with database.connect(server.admin_dsn) as connection:
            return "extension" if pgmq_as_extension(connection) else "sql"
    return "sql"


def _circumstances(server: Server, header: Header, rebuilt: Rebuilt, pgmq: str) -> Iterator[str]:
    """What of the surroundings is not as in the original."""
    with database.connect(server.admin_dsn) as connection:
        here = str(connection.info.parameter_status("server_version")).split()[0]
    yield f"Rebuilt: {plural(rebuilt.rows, 'row')} in {plural(rebuilt.tables, 'table')}."
    if here != header.server:
        yield f"The original runs on PostgreSQL {printable(header.server)}; this is {here}."
    if header.pgmq is not None and header.pgmq.form != pgmq:
        yield f"The original has PGMQ as {header.pgmq.form}; here it is {pgmq}."
    yield from map(printable, rebuilt.notes)


def _taken_through(
    dsn: str, connection: psycopg.Connection[Any], revision: str, on_phase: Callable[[str], None]
) -> tuple[Outcome, tuple[str, ...], tuple[str, ...]]:
    """How it ends, what contradicts or blocks it, and what else there is to know."""
    on_phase("Auditing")
    before = digest.take(connection)
    report = run_audit(connection)
    problems = [f"The audit changed something: {text}." for text in _changed(before, connection)]
    notes = tuple(f"Warning: {_words(finding)}" for finding in report.of("warning"))
    if report.blocking:
        on_phase("Trying an upgrade that the audit says is blocked")
        problems += _refused(dsn, connection, report)
        if problems:
            return Outcome.DIFFERS, tuple(problems), notes
        return Outcome.BLOCKED, tuple(_words(finding) for finding in report.blocking), notes
    so_before: list[str] = []
    problems += _upgraded(dsn, connection, revision, before, so_before, on_phase)
    outcome = Outcome.DIFFERS if problems else Outcome.UPGRADES
    return outcome, tuple(problems), (*notes, *so_before)


def _refused(dsn: str, connection: psycopg.Connection[Any], report: AuditReport) -> Iterator[str]:
    before = digest.take(connection)
    try:
        upgrade(dsn, fence=AMONG_WORKERS)
    except BlockedError as error:
        if Counter(map(_key, error.findings)) != Counter(map(_key, report.blocking)):
            yield f"The upgrade was refused for other findings than the audit's: {printable(str(error))}"
    except PgflowMigrateError as error:
        if identify(connection).release is not None:
            yield f"The upgrade could not run instead of being refused: {printable(str(error))}"
    else:
        yield "The upgrade succeeded although the audit found what blocks it."
    yield from (f"The refused upgrade changed something: {text}." for text in _changed(before, connection))


def _upgraded(
    dsn: str,
    connection: psycopg.Connection[Any],
    revision: str,
    before: digest.Digest,
    so_before: list[str],
    on_phase: Callable[[str], None],
) -> Iterator[str]:
    """What contradicts the upgrade's promise; ``so_before`` gets what did not hold before already."""
    known = standing.before(dsn, connection)
    on_phase("Upgrading")
    own = checks.release_differences(connection, identify(connection).release or "")
    try:
        result = upgrade(dsn, fence=AMONG_WORKERS)
    except PgflowMigrateError as error:
        yield f"The upgrade failed: {printable(str(error))}"
        yield from (f"The failed upgrade changed something: {text}." for text in _changed(before, connection))
        return
    on_phase("Verifying")
    if result.already_current != (revision == HEAD):
        yield "The upgrade did nothing." if result.already_current else "The upgrade did something."
    history = digest.history_differences(before, digest.take(connection), _REPAIRED.get(revision, ()))
    yield from (f"The upgrade changed what it should keep: {printable(text)}." for text in history)
    release = checks.release_differences(connection, besides=own)
    yield from (f"The upgraded schema is not {HEAD}'s: {printable(text)}." for text in release)
    if not release:  # they read the columns that it should have
        yield from checks.identity_differences(connection)
        if revision != HEAD:
            yield from checks.protocol_differences(connection)
    try:
        new, old = standing.after(dsn, known)
    except PgflowMigrateError as error:
        yield f"The invariants could not be verified: {printable(str(error))}"
        return
    yield from (f"An invariant does not hold: {_lines(found)}" for found in new)
    so_before += (f"It was so before the upgrade: {_lines(found)}" for found in old)


def _changed(before: digest.Digest, connection: psycopg.Connection[Any]) -> tuple[str, ...]:
    return tuple(map(printable, digest.differences(before, digest.take(connection))))


def _key(finding: Finding) -> tuple[Any, ...]:
    return (finding.code, finding.flow_slug, finding.step_slug, finding.queue_name, finding.count)


def _lines(violation: Violation) -> str:
    """What, and how often; what it was found in; what to do."""
    found = f"{violation.check}, {violation.subject}: {violation.count:,}"
    return "\n".join(printable(line) for line in (found, violation.sampled, violation.hint) if line)


def _words(finding: Finding) -> str:
    named = [
        f"{kind} {name}"
        for kind, name in (
            ("flow", finding.flow_slug),
            ("step", finding.step_slug),
            ("queue", finding.queue_name),
        )
        if name is not None
    ]
    where = f" ({', '.join(named)})" if named else ""
    found = f"{finding.code}{where}: {finding.count:,}"
    return "\n".join(printable(line) for line in (found, samples(finding), finding.hint) if line)
