"""The script leaves what the command leaves, on every populated database that can be upgraded."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgflow_migrate import resources
from pgflow_migrate.replay import scenario, signature
from pgflow_migrate.replay.run import REVISIONS
from pgflow_migrate.replay.scenario import Scenario
from pgflow_migrate.replay.signature import VERSION
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server, attach_queues_to_extension
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.script import upgrade_script
from pgflow_migrate.upgrade.session import AMONG_WORKERS

SCENARIOS = {one.id: one for one in scenario.load_all(resources.fixtures()) if one.upgrade == "succeeds"}
# What is tried on every fixture: a script that was made for somebody else's transaction.
EVERYWHERE = ("psycopg in a transaction, without BEGIN",)
THOROUGH = ("0.15.0/running", "0.16.0/every_status")

Way = Callable[[str, str, Path], None]
_numbers = itertools.count(1)


def psql(server: Server) -> str:
    """psql of the server, else the one on the path."""
    found = str(server.bin_dir / "psql") if server.bin_dir else shutil.which("psql")
    if found is None or not Path(found).is_file():
        pytest.skip("NOT CHECKED: there is no psql here, neither the server's nor one on the path")
    return found


def by_psql(server: Server, dsn: str, script: str, folder: Path, *options: str) -> None:
    file = folder / "upgrade.sql"
    file.write_text(script, encoding="utf-8")
    done = subprocess.run(
        [psql(server), "-X", "-q", "-v", "ON_ERROR_STOP=1", *options, "-f", str(file), dsn],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def by_psycopg(dsn: str, script: str, *, autocommit: bool) -> None:
    with psycopg.connect(dsn, autocommit=autocommit) as connection:
        connection.execute(script.encode())


def run(way: str, server: Server, dsn: str, release: str, folder: Path) -> None:
    """Upgrade a database by a script, in one of the ways that there are to run it."""
    script = upgrade_script(release, AMONG_WORKERS, transaction="without BEGIN" not in way)
    if way == "psql -f":
        by_psql(server, dsn, script, folder)
    elif way == "psql -1 -f, without BEGIN":
        by_psql(server, dsn, script, folder, "-1")
    else:
        by_psycopg(dsn, script, autocommit="in a transaction" not in way)


def what_is_left(dsn: str) -> dict[str, object]:
    """Catalogue, every row but for the time of the upgrade, and sequences."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = signature.take(connection)
    left: dict[str, object] = dict(found.sequences)
    # Which file a table is in, and which version a row is, tells databases apart, not upgrades.
    left |= {name: re.sub(r" file \d+$", "", fact) for name, fact in found.catalogue.items()}
    for name, table in found.tables.items():
        kept = [place for place, column in enumerate(table.columns) if column not in (VERSION, "applied_at")]
        left[name] = sorted(repr([row[place] for place in kept]) for row in table.rows)
    return left


@pytest.fixture
def copies(server: Server, templates: Templates) -> Iterator[Callable[[Scenario], Callable[[], str]]]:
    """``copies(scenario)()`` clones the one database that was populated for the scenario."""
    made: list[str] = []

    def new() -> str:
        made.append(f"offline_{next(_numbers)}")
        return made[-1]

    def populate(one: Scenario) -> Callable[[], str]:
        if one.setup.pgmq not in (None, templates.pgmq):
            pytest.skip(f"it needs PGMQ as {one.setup.pgmq}; here it is {templates.pgmq}")
        original = new()
        dsn = templates.clone(REVISIONS[one.release], original)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(one.populate.encode())
            if one.setup.extension_members:
                attach_queues_to_extension(connection, *one.setup.extension_members)
        return lambda: server.create_database(new(), template=original)

    yield populate
    for name in made:
        server.drop_database(name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scripts_leave_what_the_command_leaves(
    name: str,
    server: Server,
    copies: Callable[[Scenario], Callable[[], str]],
    tmp_path: Path,
) -> None:
    one = SCENARIOS[name]
    ways = (
        (
            *EVERYWHERE,
            "psql -f",
            "psql -1 -f, without BEGIN",
            "psycopg, one text",
            "psycopg, one text without BEGIN",
        )
        if name in THOROUGH
        else EVERYWHERE
    )
    copy = copies(one)
    by_command = copy()
    upgrade(by_command, fence=AMONG_WORKERS)
    expected = what_is_left(by_command)
    for way in ways:
        dsn = copy()
        run(way, server, dsn, one.release, tmp_path)
        left = what_is_left(dsn)
        assert left.keys() == expected.keys(), way
        assert {key for key in left if left[key] != expected[key]} == set(), way


def test_every_release_is_among_them() -> None:
    assert {one.release for one in SCENARIOS.values()} == set(REVISIONS)
    assert set(THOROUGH) <= set(SCENARIOS)
