"""What --format json prints is what the published schemas say, neither less nor more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator, ValidationError

from pgflow_migrate import resources
from pgflow_migrate.cli import failures, main
from pgflow_migrate.errors import Blocker, FenceError, LiveWorker, LiveWorkersError
from pgflow_migrate.replay import render
from pgflow_migrate.replay.matrix import Cell, Matrix
from pgflow_migrate.replay.results import Outcome, Report, Result

COMMANDS = ("audit", "upgrade", "verify", "status", "replay")


def _closed(schema: Any) -> Any:
    """``schema`` without room for what it does not name."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if closed.get("type") == "object" and "properties" in closed:
        closed["additionalProperties"] = False
    return closed


def _invoke(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Run a command; its document, once the command's schema has taken it."""
    result = CliRunner().invoke(main, [*arguments, "--format", "json"])
    document: dict[str, Any] = json.loads(result.stdout)
    _validate(arguments[0], document)
    return result.exit_code, document


def _validate(command: str, document: dict[str, Any]) -> None:
    schema = json.loads(resources.schema(command).read_text(encoding="utf-8"))
    Draft202012Validator(_closed(schema)).validate(document)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_its_schema_and_nothing_else(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGFLOW_DSN", "host=/nowhere dbname=x")
    result = CliRunner().invoke(main, [command, "--json-schema"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == resources.schema(command).read_text(encoding="utf-8")
    schema = json.loads(result.stdout)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:pgflow-migrate:{command}:1"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_failure_is_of_the_schema(command: str) -> None:
    option = "--server" if command == "replay" else "--dsn"
    exit_code, document = _invoke(command, option, "host=127.0.0.1 port=1 user=x")
    assert (exit_code, document["status"]) == (1, "failed")


def test_documents_of_an_upgrade_before_at_and_after_it_are_of_their_schemas(
    database_at: Callable[[str], str], connect: Callable[[str], Any]
) -> None:
    dsn = database_at("core_0_16_0")
    database = connect(dsn)
    database.execute("select pgflow.create_flow('a_'); select pgflow.create_flow('b')")
    seen = [
        (arguments[0], exit_code, document["status"], document.get("schema"))
        for arguments in (("audit", "--dsn", dsn), ("upgrade", "--dsn", dsn))
        for exit_code, document in (_invoke(*arguments),)
    ]
    assert _invoke("status", "--dsn", dsn)[1]["audit"]["blocking"] == ["slug-trailing-underscore"]
    database.execute("select pgflow.delete_flow_and_data('a_')")
    for command in ("audit", "upgrade", "upgrade", "verify"):
        exit_code, document = _invoke(command, "--dsn", dsn)
        seen.append((command, exit_code, document["status"], document.get("schema")))
    database.execute(
        """
        alter table pgflow.steps add column mine text;
        insert into pgflow.worker_functions (function_name, paused_at, pause_reason)
        values ('w', now(), 'cause');
        insert into pgflow.workers (worker_id, queue_name, function_name)
        values (gen_random_uuid(), 'b', 'w');
        """
    )
    status = _invoke("status", "--dsn", dsn)[1]
    assert [queue["queue_name"] for queue in status["queues"]] == ["b"]
    assert (len(status["workers"]), len(status["paused"])) == (1, 1)
    exit_code, document = _invoke("verify", "--dsn", dsn)
    seen.append(("verify", exit_code, document["status"], document.get("schema")))
    assert seen == [
        ("audit", 3, "blocked", "urn:pgflow-migrate:audit:1"),
        ("upgrade", 3, "blocked", None),
        ("audit", 0, "clean", "urn:pgflow-migrate:audit:1"),
        ("upgrade", 0, "upgraded", "urn:pgflow-migrate:upgrade:1"),
        ("upgrade", 0, "already-upgraded", "urn:pgflow-migrate:upgrade:1"),
        ("verify", 0, "clean", "urn:pgflow-migrate:verify:1"),
        ("verify", 3, "violated", "urn:pgflow-migrate:verify:1"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        LiveWorkersError(
            "Workers are at work.", "Stop them.", (LiveWorker("1", "f", "q", "http", "now", 1.5),)
        ),
        FenceError(
            "No locks.",
            "Repeat it.",
            blockers=(Blocker(None, "u", "a", "active", None, 1.5, "select", ("pgflow.runs",)),),
        ),
    ],
    ids=["live workers", "fence"],
)
def test_what_holds_an_upgrade_up_is_of_its_schema(error: Any) -> None:
    document = failures._document(error, ())
    _validate("upgrade", json.loads(json.dumps(document)))


def test_replays_of_every_kind_are_of_their_schema() -> None:
    scenarios = tuple(
        Result("0.16.0", outcome.name, outcome, ("why",), 0.5)
        for outcome in (Outcome.AS_EXPECTED, Outcome.DIFFERS, Outcome.SKIPPED, Outcome.COULD_NOT_RUN)
    )
    databases = tuple(
        Result("0.15.0", outcome.name, outcome, (), 0.5, ("noted",))
        for outcome in (Outcome.UPGRADES, Outcome.BLOCKED)
    )
    reports = [Report("here", "sql", scenarios), Report("here", "extension", databases, of="database")]
    cells = (
        *(Cell("here", "sql", report) for report in reports),
        Cell("there", "sql", None, "It is not installed."),
        Cell("there", "extension", None, "It does not start.", failed=True),
    )
    for text in (*map(render.as_json, reports), render.grid_json(Matrix(cells))):
        _validate("replay", json.loads(text))
    with pytest.raises(ValidationError):
        _validate("replay", {**json.loads(render.as_json(reports[0])), "more": 1})
