"""Taking scenarios through audit and upgrade, each in a database of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import psycopg

from pgflow_migrate import database
from pgflow_migrate.errors import BlockedError, PgflowMigrateError
from pgflow_migrate.releases.chain import HEAD, STARTS, release_of
from pgflow_migrate.releases.identify import identify
from pgflow_migrate.replay import checks, expectations, signature, standing
from pgflow_migrate.replay.differences import differences, history_differences
from pgflow_migrate.replay.results import Outcome, Report, Result
from pgflow_migrate.replay.scenario import Scenario, ScenarioError
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.replay.trouble import explained
from pgflow_migrate.servers import Server, attach_queues_to_extension
from pgflow_migrate.servers.server import ending_with
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import AMONG_WORKERS

REVISIONS = {release_of(revision): revision for revision in STARTS}
"""The releases that can be populated, and the revision of each."""

_numbers = itertools.count(1)


def replay(
    server: Server,
    templates: Templates,
    scenarios: Iterable[Scenario],
    on_result: Callable[[Result], None] = lambda result: None,
    on_begin: Callable[[Scenario], None] = lambda scenario: None,
) -> Report:
    """Run every scenario; one that differs, or could not be run, does not stop the others.

    Args:
        server: where the databases are created, and dropped again.
        templates: of that server.
        scenarios: what to run.
        on_result: called after each.
        on_begin: called before each.

    Raises:
        PgflowMigrateError: the old core of a release cannot be built.
    """
    pgmq = templates.pgmq
    results = []
    for scenario in scenarios:
        on_begin(scenario)
        results.append(run_scenario(server, templates, scenario))
        on_result(results[-1])
    return Report(server.label, pgmq, tuple(results))


def run_scenario(server: Server, templates: Templates, scenario: Scenario) -> Result:
    """Run one scenario in a fresh database.

    Raises:
        PgflowMigrateError: the old core of its release cannot be built.
    """
    started = time.perf_counter()

    def result(outcome: Outcome, *details: str) -> Result:
        return Result(scenario.release, scenario.name, outcome, details, time.perf_counter() - started)

    if scenario.release not in REVISIONS:
        return result(Outcome.COULD_NOT_RUN, f"Release {scenario.release} is unknown.")
    if scenario.setup.pgmq not in (None, templates.pgmq):
        return result(
            Outcome.SKIPPED, f"It needs PGMQ as {scenario.setup.pgmq}; here it is {templates.pgmq}."
        )
    template = templates.at(REVISIONS[scenario.release])
    name = f"replay_{next(_numbers)}"
    try:
        with explained(server.label), ending_with(partial(server.drop_database, name)):
            dsn = server.create_database(name, template=template)
            with database.connect(dsn, autocommit=True) as connection:
                found = tuple(_differences(dsn, connection, scenario))
    except PgflowMigrateError as error:
        return result(Outcome.COULD_NOT_RUN, str(error))
    return result(Outcome.DIFFERS if found else Outcome.AS_EXPECTED, *found)


def _differences(dsn: str, connection: psycopg.Connection[Any], scenario: Scenario) -> Iterator[str]:
    _populate(connection, scenario)
    before = signature.take(connection)
    yield from expectations.audit_differences(connection, scenario)
    audited = signature.take(connection)
    yield from (f"The audit changed something: {text}." for text in differences(before, audited))
    if scenario.upgrade == "rejected":
        yield from _rejected(dsn, connection, scenario, audited)
    else:
        yield from _succeeds(dsn, connection, scenario, audited)


def _populate(connection: psycopg.Connection[Any], scenario: Scenario) -> None:
    try:
        connection.execute(scenario.populate.encode())
        if scenario.setup.extension_members:  # without names it would be every queue
            attach_queues_to_extension(connection, *scenario.setup.extension_members)
    except psycopg.Error as error:
        raise ScenarioError(f"populate.sql of {scenario.id} failed: {error}") from error
    # What populate.sql made in pg_temp must not be in the way of what comes.
    connection.execute("discard all")


def _rejected(
    dsn: str, connection: psycopg.Connection[Any], scenario: Scenario, before: signature.Signature
) -> Iterator[str]:
    try:
        upgrade(dsn, fence=AMONG_WORKERS)
    except BlockedError as error:
        yield from expectations.blocked_differences(error, scenario)
    except PgflowMigrateError as error:
        if not _refused_as_unknown(connection, scenario):
            yield f"The upgrade could not run instead of being rejected: {error}"
    else:
        yield "The upgrade succeeded instead of being rejected."
    after = signature.take(connection)
    yield from (f"The rejected upgrade changed something: {text}." for text in differences(before, after))


def _refused_as_unknown(connection: psycopg.Connection[Any], scenario: Scenario) -> bool:
    """Whether the upgrade has to refuse already at the catalogue, before its preflight finds anything."""
    expected = {finding.code for finding in scenario.findings if finding.severity == "error"}
    return expected == {"release-unexpected"} and identify(connection).release is None


def _succeeds(
    dsn: str, connection: psycopg.Connection[Any], scenario: Scenario, before: signature.Signature
) -> Iterator[str]:
    own = checks.release_differences(connection, scenario.release)
    known = standing.before(dsn, connection)
    try:
        upgrade(dsn, fence=AMONG_WORKERS)
    except PgflowMigrateError as error:
        findings = error.findings if isinstance(error, BlockedError) else ()
        codes = ", ".join(sorted({finding.code for finding in findings}))
        yield f"The upgrade failed: {error}" + (f" [{codes}]" if codes else "")
        after = signature.take(connection)
        yield from (f"The failed upgrade changed something: {text}." for text in differences(before, after))
        return
    after = signature.take(connection)
    history = history_differences(before, after, scenario.changes)
    yield from (f"The upgrade changed what it should keep: {text}." for text in history)
    yield from checks.identity_differences(connection)
    yield from checks.protocol_differences(connection)
    release = checks.release_differences(connection, besides=own)
    yield from (f"The upgraded schema is not {HEAD}'s: {text}." for text in release)
    try:
        if not upgrade(dsn, fence=AMONG_WORKERS).already_current:
            yield "A second upgrade did not say that the database is upgraded already."
    except PgflowMigrateError as error:
        yield f"A second upgrade failed: {error}"
    again = differences(after, signature.take(connection))
    yield from (f"A second upgrade changed something: {text}." for text in again)
    yield from _violated(dsn, known, "after the upgrade")
    for check in scenario.checks:
        yield from checks.check_differences(connection, check)
    if scenario.checks:
        yield from _violated(dsn, known, "after the checks")


def _violated(dsn: str, known: standing.Standing, when: str) -> Iterator[str]:
    try:
        new, _ = standing.after(dsn, known)
    except PgflowMigrateError as error:
        yield f"The invariants could not be verified {when}: {error}"
    else:
        yield from (f"An invariant does not hold {when}: {found}" for found in new)
