"""Telling the documented pruning helper from a customised one."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import psycopg
import pytest

from pgflow_migrate.audit.run import run_audit

Database = psycopg.Connection[dict[str, Any]]

BODY = """
begin
  -- Workers that are long gone
  delete from pgflow.workers where last_heartbeat_at < now() - retention_interval;
end
"""
CREATE = (
    "create function pgflow.prune_data_older_than(retention_interval interval) returns void language plpgsql "
)


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def normalised(body: str) -> str:
    return re.sub(r"\s", "", re.sub(r"--[^\n]*", "", body.lower()))


def helpers(database: Database, *md5s: str) -> list[tuple[str, int, tuple[str, ...]]]:
    return [
        (finding.code, finding.count, finding.samples)
        for finding in run_audit(database, stock_prune_md5s=md5s).findings
        if finding.code.startswith("prune-helper")
    ]


ONE = ("pgflow.prune_data_older_than(interval)",)


def test_none_is_an_info(database: Database) -> None:
    assert helpers(database) == [("prune-helper-absent", 0, ())]


def test_the_very_text_is_stock(database: Database) -> None:
    database.execute(f"{CREATE} as $body${BODY}$body$".encode())
    assert helpers(database, md5(BODY)) == [("prune-helper-stock", 1, ONE)]
    assert helpers(database) == [("prune-helper-customised", 1, ONE)]


def test_other_indentation_comments_line_ends_and_case_are_stock(database: Database) -> None:
    body = (
        BODY.replace("\n", "\r\n")
        .replace("  ", "\t")
        .replace("delete from", "DELETE  FROM")
        .replace("end", "-- done\nEND")
    )
    database.execute(f"{CREATE} as $body${body}$body$".encode())
    assert helpers(database, md5(normalised(BODY))) == [("prune-helper-stock", 1, ONE)]


@pytest.mark.parametrize(
    "attribute", ["security definer", "set search_path = ''", "stable"], ids=lambda text: str(text).split()[0]
)
def test_another_attribute_makes_it_customised(attribute: str, database: Database) -> None:
    database.execute(f"{CREATE} {attribute} as $body${BODY}$body$".encode())
    assert helpers(database, md5(BODY)) == [("prune-helper-customised", 1, ONE)]


def test_overloads_are_reported_each(database: Database) -> None:
    database.execute(f"{CREATE} as $body${BODY}$body$".encode())
    database.execute(
        "create function pgflow.prune_data_older_than(days integer) returns void language sql as 'select'"
    )
    assert helpers(database, md5(BODY)) == [
        ("prune-helper-customised", 1, ("pgflow.prune_data_older_than(integer)",)),
        ("prune-helper-stock", 1, ONE),
    ]


def test_a_helper_of_that_name_elsewhere_is_none(database: Database) -> None:
    database.execute(f"{CREATE.replace('pgflow.', 'public.')} as $body${BODY}$body$".encode())
    assert helpers(database) == [("prune-helper-absent", 0, ())]
