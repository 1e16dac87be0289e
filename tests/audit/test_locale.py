"""A database in which the lower case of I is not i: Debian's servers can have one, embedded ones cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.replay.templates import upgrade_to
from pgflow_migrate.servers import install_pgmq, install_surroundings, open_server

Database = psycopg.Connection[dict[str, Any]]
Audited = Callable[[Database], list[tuple[Any, ...]]]

INVOICE = "\N{LATIN SMALL LETTER DOTLESS I}nvo\N{LATIN SMALL LETTER DOTLESS I}ce"


@pytest.fixture
def turkish(connect: Callable[[str], Database]) -> Iterator[Database]:
    """An empty database at 0.16.0 in Turkish."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not binaries:
        pytest.skip("no PostgreSQL with ICU: /usr/lib/postgresql is empty (.ci/debian-packages installs one)")
    with open_server(f"binaries:{binaries[-1]}") as server:
        with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
            admin.execute(
                "create database turkish template template0 encoding utf8 locale 'C' "
                "locale_provider icu icu_locale 'tr-TR'"
            )
        dsn = server.dsn("turkish")
        with psycopg.connect(dsn) as connection:
            install_pgmq(connection)
            install_surroundings(connection)
        upgrade_to(dsn, "core_0_16_0")
        database = connect(dsn)
        yield database
        database.close()


def test_slugs_are_judged_by_what_lower_makes_of_them(turkish: Database, audited: Audited) -> None:
    turkish.execute("select pgflow.create_flow('INVOICE'); select pgflow.create_flow('orders')")
    assert audited(turkish) == [("error", "queue-name-invalid", "INVOICE", None, INVOICE, 1, ())]


def test_the_hint_tells_the_locale_from_the_length(turkish: Database) -> None:
    for length in (47, 48):
        turkish.execute("insert into pgflow.flows (flow_slug) values (repeat('I', %s))", [length])
    hints = {f.flow_slug: f.hint for f in run_audit(turkish).findings if f.code == "queue-name-invalid"}
    assert hints["I" * 47].startswith("In this database's locale, lower case makes something else than a-z")
    assert hints["I" * 48].startswith("A queue name has at most 47 characters, this one would have 48.")


def test_case_duplicates_are_found_by_ascii(turkish: Database, audited: Audited) -> None:
    turkish.execute("select pgflow.create_flow('INVOICE'); select pgflow.create_flow('invoice')")
    turkish.execute("select pgflow.add_step('invoice', 'Fill'); select pgflow.add_step('invoice', 'FILL')")
    assert audited(turkish) == [
        ("error", "flow-slug-case-duplicate", "INVOICE", None, None, 1, ("invoice",)),
        ("error", "flow-slug-case-duplicate", "invoice", None, None, 1, ("INVOICE",)),
        ("error", "queue-name-invalid", "INVOICE", None, INVOICE, 1, ()),
        ("error", "step-slug-case-duplicate", "invoice", "FILL", None, 1, ("Fill",)),
        ("error", "step-slug-case-duplicate", "invoice", "Fill", None, 1, ("FILL",)),
    ]
