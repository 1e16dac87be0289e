"""What the audit and a refusal say, against what the scenario expects of them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from psycopg import sql

from pgflow_migrate.audit.findings import Finding
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.errors import BlockedError, PgflowMigrateError
from pgflow_migrate.replay.scenario import ExpectedFinding, Scenario


def audit_differences(connection: psycopg.Connection[Any], scenario: Scenario) -> Iterator[str]:
    """Run the audit; yields a sentence for each finding too many or too few, and for a secret shown."""
    if not scenario.setup.audit:
        return
    try:
        with _role(connection, scenario.setup.audit_as):
            report = run_audit(connection, stock_prune_md5s=scenario.setup.stock_prune_md5s)
    except PgflowMigrateError as error:
        yield f"The audit could not run: {error}"
        return
    findings = report.findings
    strict = [finding for finding in findings if finding.severity != "info"]
    wanted = [finding for finding in scenario.findings if finding.severity != "info"]
    yield from _compared("The audit", wanted, strict)
    infos = Counter(_key(finding) for finding in findings if finding.severity == "info")
    for expected in scenario.findings:
        if expected.severity == "info" and not infos[_key(expected)]:
            yield f"The audit lacks {_words(expected)}."
    yield from _secrets("The audit", repr(report), scenario)


@contextlib.contextmanager
def _role(connection: psycopg.Connection[Any], role: str | None) -> Iterator[None]:
    """Be ``role`` for the body; ``None`` is whoever is connected."""
    if role is None:
        yield
        return
    connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
    try:
        yield
    finally:
        connection.execute("reset role")


def blocked_differences(error: BlockedError, scenario: Scenario) -> Iterator[str]:
    """Compare the findings that an upgrade was refused for with the expected errors."""
    wanted = [finding for finding in scenario.findings if finding.severity == "error"]
    yield from _compared("The refusal", wanted, error.findings)
    told = json.dumps([str(error), repr(error.findings), *error.details])
    yield from _secrets("The refusal", told, scenario)


def _compared(who: str, wanted: Iterable[ExpectedFinding], found: Iterable[Finding]) -> Iterator[str]:
    expected = Counter(_key(finding) for finding in wanted)
    actual = Counter(_key(finding) for finding in found)
    yield from (f"{who} lacks {' '.join(key)}." for key in sorted((expected - actual).elements()))
    yield from (f"{who} has also {' '.join(key)}." for key in sorted((actual - expected).elements()))


def _key(finding: Finding | ExpectedFinding) -> tuple[str, ...]:
    values = (finding.flow_slug, finding.step_slug, finding.queue_name, finding.count)
    return (finding.severity, finding.code, *("-" if value is None else repr(value) for value in values))


def _words(finding: ExpectedFinding) -> str:
    return " ".join(_key(finding))


def _secrets(who: str, told: str, scenario: Scenario) -> Iterator[str]:
    for number, secret in enumerate(scenario.setup.secrets, 1):
        if secret in told:
            yield f"{who} shows the scenario's secret number {number}."
