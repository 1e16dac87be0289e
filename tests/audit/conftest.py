"""A 0.16.0 database of the test's own, and its audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate.audit import Finding
from pgflow_migrate.audit.run import run_audit

Database = psycopg.Connection[dict[str, Any]]
Rows = list[tuple[Any, ...]]


@pytest.fixture
def database(database_at: Callable[[str], str], connect: Callable[[str], Database]) -> Database:
    """A superuser's connection to an empty database at 0.16.0."""
    return connect(database_at("core_0_16_0"))


@pytest.fixture
def row() -> Callable[[Finding], tuple[Any, ...]]:
    """A finding as a tuple of what identifies it: all but the hint."""

    def as_tuple(finding: Finding) -> tuple[Any, ...]:
        return (
            finding.severity,
            finding.code,
            finding.flow_slug,
            finding.step_slug,
            finding.queue_name,
            finding.count,
            finding.samples,
        )

    return as_tuple


@pytest.fixture
def audited(row: Callable[[Finding], tuple[Any, ...]]) -> Callable[[Database], Rows]:
    """Audit a database; the rows that matter: errors and warnings."""

    def errors_and_warnings(database: Database) -> Rows:
        return [row(finding) for finding in run_audit(database).findings if finding.severity != "info"]

    return errors_and_warnings
