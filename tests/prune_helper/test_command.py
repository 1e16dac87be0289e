"""``pgflow-migrate prune-helper``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from pgflow_migrate import prune_helper
from pgflow_migrate.cli import main
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from tests.prune_helper.conftest import StandIn, World

INSTALL = 'pgflow-migrate prune-helper --sql | psql "$PGFLOW_DSN" -X -v ON_ERROR_STOP=1'


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection string from the environment that the tests run in."""
    for name in ("PGFLOW_DSN", "DATABASE_URL", "PGSERVICE", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)


def invoke(*arguments: str) -> Result:
    """Run the command; stdout and stderr are apart."""
    options: dict[str, Any] = (
        {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    )
    return CliRunner(**options).invoke(main, ["prune-helper", *arguments], prog_name="pgflow-migrate")


def table(world: World) -> tuple[int, list[str]]:
    """Exit code, and the lines without the database's name."""
    result = invoke("--dsn", world.connection.info.dsn)
    assert result.stderr == ""
    name = str(world.rows("select current_database()::text")[0][0])
    return result.exit_code, result.stdout.replace(name, "DB").splitlines()


def test_none(database_at: Callable[[str], str], worlds: Callable[[str], World]) -> None:
    assert table(worlds(database_at("core_0_16_0"))) == (
        EXIT_OK,
        [
            "database  DB, before queue identity",
            "helper    pgflow.prune_data_older_than(interval): not installed",
            "to do     Nothing.",
        ],
    )
    assert table(worlds(database_at("queue_identity"))) == (
        EXIT_OK,
        [
            "database  DB, at queue identity or later",
            "helper    pgflow.prune_data_older_than(interval): not installed",
            "to do     Nothing. Should you want one:",
            f"          {INSTALL}",
        ],
    )


@pytest.mark.parametrize("kind", ["stock", "original"])
def test_a_documented_one(
    database_at: Callable[[str], str],
    worlds: Callable[[str], World],
    stand_in: Callable[[str], StandIn],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    installed = stand_in(kind)
    monkeypatch.setattr(prune_helper, f"{kind.upper()}_MD5S", (installed.md5,))
    before, after = worlds(database_at("core_0_16_0")), worlds(database_at("queue_identity"))
    for world in (before, after):
        world.do(installed.create)
    exit_code, lines = table(before)
    assert exit_code == EXIT_OK
    assert lines[2].startswith("to do     Nothing before the upgrade, which leaves it alone.")
    assert lines[2].endswith(" Afterwards replace it:")
    assert lines[3:] == [f"          {INSTALL}"]
    exit_code, lines = table(after)
    assert exit_code == EXIT_BLOCKED
    assert lines[2].startswith("to do     Replace it.")
    assert lines[3:] == [f"          {INSTALL}"]


def test_a_customised_one(
    database_at: Callable[[str], str], worlds: Callable[[str], World], stand_in: Callable[[str], StandIn]
) -> None:
    before, after = worlds(database_at("core_0_16_0")), worlds(database_at("queue_identity"))
    for world in (before, after):
        world.do(stand_in("customised").create)
    exit_code, lines = table(before)
    assert exit_code == EXIT_OK
    assert lines[1].endswith(": not a documented one: somebody has changed it")
    assert "For afterwards: Read it." in lines[2]
    exit_code, lines = table(after)
    assert exit_code == EXIT_BLOCKED
    assert lines[2].startswith("to do     Read it.")
    assert "drop function pgflow.prune_data_older_than(interval);" in lines[4]
    assert lines[5] == f"          {INSTALL}"


def test_the_queue_aware_one_and_a_function_of_ones_own(world: World) -> None:
    assert table(world) == (
        EXIT_OK,
        [
            "database  DB, at queue identity or later",
            "helper    pgflow.prune_data_older_than(interval): the queue-aware one of this pgflow-migrate",
            "to do     Nothing.",
        ],
    )
    world.do("create function pgflow.prune_data_older_than(integer) returns void language sql as 'select'")
    exit_code, lines = table(world)
    assert exit_code == EXIT_BLOCKED
    assert lines[3] == "helper    pgflow.prune_data_older_than(integer): a function of your own"


def test_the_queue_aware_one_from_before_protocol_2(
    database_at: Callable[[str], str], worlds: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_helper, "FORMER_MD5S", (prune_helper.own_md5(),))
    monkeypatch.setattr(prune_helper, "own_md5", lambda: "0" * 32)
    for revision, exit_code in (("queue_identity", EXIT_OK), ("dirty_runs", EXIT_BLOCKED)):
        world = worlds(database_at(revision))
        world.do(prune_helper.script())
        assert table(world) == (
            exit_code,
            [
                "database  DB, at queue identity or later",
                f"helper    {prune_helper.SIGNATURE}: the queue-aware one from before protocol 2",
                "to do     Replace it. It works until the first run of protocol 2 is old; then it fails, and"
                " deletes nothing.",
                f"          {INSTALL}",
            ],
        )


def test_json(world: World) -> None:
    result = invoke("--dsn", world.connection.info.dsn, "--format", "json")
    assert result.exit_code == EXIT_OK
    assert json.loads(result.stdout) == {
        "database": world.rows("select current_database()::text")[0][0],
        "queue_identity": True,
        "helpers": [
            {
                "signature": "pgflow.prune_data_older_than(interval)",
                "kind": "queue-aware",
                "to_do": False,
                "advice": ["Nothing."],
            }
        ],
        "to_do": False,
    }


def test_sql_connects_to_nothing_and_is_the_file() -> None:
    result = invoke("--sql", "--dsn", "host=127.0.0.1 port=1")
    assert (result.exit_code, result.stdout, result.stderr) == (EXIT_OK, prune_helper.script(), "")


def test_sql_has_no_format() -> None:
    result = invoke("--sql", "--format", "json")
    assert result.exit_code == EXIT_USAGE
    assert "--sql prints a script, which has no --format" in result.stderr


def test_a_database_without_pgflow_could_not_be_asked(database_at: Callable[[str], str]) -> None:
    result = invoke("--dsn", database_at(""))
    assert (result.exit_code, result.stdout) == (EXIT_COULD_NOT_RUN, "")
    assert result.stderr.startswith("error: There is no pgflow in database")
