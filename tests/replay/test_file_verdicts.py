"""``replay --from`` tells of an upgrade that does what it must not: each contradiction, provoked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgflow_migrate import resources
from pgflow_migrate.errors import BlockedError, PgflowMigrateError
from pgflow_migrate.export import export
from pgflow_migrate.replay import Outcome, file, replay_file
from pgflow_migrate.replay.scenario import load
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server
from pgflow_migrate.upgrade import UpgradeResult, upgrade

Upgrade = Callable[..., UpgradeResult]


@pytest.fixture(scope="module")
def exports(
    server: Server, templates: Templates, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The exports of a database that upgrades and of one that is blocked."""
    folder = tmp_path_factory.mktemp("verdicts")
    made = {}
    for name in ("map_in_flight", "queue_absent"):
        dsn = templates.clone("core_0_16_0", "replay_verdict")
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(load(resources.fixtures() / "0.16.0" / name).populate.encode())
            made[name] = folder / name
            export(dsn, made[name])
        finally:
            server.drop_database("replay_verdict")
    return made


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def upgrading_and_then(statement: str) -> Upgrade:
    def faulty(dsn: str, **options: Any) -> UpgradeResult:
        result = upgrade(dsn, **options)
        execute(dsn, statement)
        return result

    return faulty


def raising(error: PgflowMigrateError, statement: str = "select") -> Upgrade:
    def faulty(dsn: str, **_: Any) -> UpgradeResult:
        execute(dsn, statement)
        raise error

    return faulty


def claiming_nothing_to_do(dsn: str, **options: Any) -> UpgradeResult:
    return replace(upgrade(dsn, **options), already_current=True)


def ignoring_what_blocks(dsn: str, **options: Any) -> UpgradeResult:
    execute(dsn, "select pgmq.create(flow_slug) from pgflow.flows")
    return upgrade(dsn, **options)


FORGET = "update pgflow.flows set opt_timeout = opt_timeout + 1"


@pytest.mark.parametrize(
    ("name", "faulty", "told"),
    [
        (
            "map_in_flight",
            upgrading_and_then("update pgflow.runs set input = '\"changed\"'"),
            {"The upgrade changed what it should keep: "},
        ),
        (
            "map_in_flight",
            upgrading_and_then("alter table pgflow.step_tasks drop column queue_name cascade"),
            {"The upgraded schema is not dirty_runs's: ", "The invariants could not be verified: "},
        ),
        (
            "map_in_flight",
            upgrading_and_then("update pgflow.step_tasks set message_id = message_id + 1000"),
            {"The upgrade changed what it should keep: ", "An invariant does not hold: "},
        ),
        ("map_in_flight", claiming_nothing_to_do, {"The upgrade did nothing."}),
        (
            "map_in_flight",
            raising(PgflowMigrateError("It broke."), FORGET),
            {"The upgrade failed: It broke.", "The failed upgrade changed something: "},
        ),
        (
            "queue_absent",
            raising(BlockedError("Refused.", findings=()), FORGET),
            {
                "The upgrade was refused for other findings than the audit's: Refused.",
                "The refused upgrade changed something: ",
            },
        ),
        (
            "queue_absent",
            raising(PgflowMigrateError("No rights.")),
            {"The upgrade could not run instead of being refused: No rights."},
        ),
        (
            "queue_absent",
            ignoring_what_blocks,
            {
                "The upgrade succeeded although the audit found what blocks it.",
                "The refused upgrade changed something: ",
            },
        ),
    ],
)
def test_what_contradicts_the_promise_is_told(
    server: Server,
    exports: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    faulty: Upgrade,
    told: set[str],
) -> None:
    monkeypatch.setattr(file, "upgrade", faulty)
    (result,) = replay_file(server, exports[name]).results
    assert result.outcome is Outcome.DIFFERS
    assert [line for line in result.details if not line.startswith(tuple(told))] == []
    for start in told:
        assert any(line.startswith(start) for line in result.details), (start, result.details)
