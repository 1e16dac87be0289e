"""``--log-format json``: what goes to stderr is an object a line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pgflow_migrate.cli import cmd_worker, output
from pgflow_migrate.errors import EXIT_OK, EXIT_USAGE

Invoke = Callable[..., Result]


def events(text: str) -> list[dict[str, Any]]:
    """Every line, which has to be an object with time, level and event."""
    found = [json.loads(line) for line in text.splitlines()]
    for event in found:
        assert list(event)[:3] == ["time", "level", "event"]
        assert datetime.fromisoformat(event["time"]).utcoffset() == timedelta(0)
        assert event["level"] in ("debug", "info", "warning", "error")
    return found


def test_progress_is_events_and_the_result_stays_text(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("queue_identity")
    result = invoke("--log-format", "json", "upgrade", "--dry-run", "--dsn", dsn)
    assert result.exit_code == EXIT_OK
    assert result.stdout.startswith("Would upgrade from queue_identity to dirty_runs in ")
    told = [event["event"] for event in events(result.stderr)]
    assert told[0] == "Found queue_identity (recorded)."
    assert told[1] == "dirty_runs (1 of 1)"


def test_an_error_is_one_event_with_remedy_details_and_exit_code(invoke: Invoke) -> None:
    result = invoke("--log-format", "json", "replay", "--scenario", "nope")
    (event,) = events(result.stderr)
    assert (event["level"], event["event"]) == ("error", "No scenario is called 'nope'.")
    assert event["remedy"].startswith("Known scenarios: ")
    assert (event["details"], event["exit_code"]) == ([], result.exit_code)
    assert not output.stderr_is_json()  # it ends with the call


def test_a_usage_error_is_an_event_too(invoke: Invoke) -> None:
    result = invoke("--log-format", "json", "upgrade", "--lock-timeout", "5")
    (event,) = events(result.stderr)
    assert (result.exit_code, event["exit_code"]) == (EXIT_USAGE, EXIT_USAGE)
    assert "'5' is no duration" in event["event"]


def test_a_traceback_is_one_event(invoke: Invoke) -> None:
    result = invoke("--log-format", "json", "--debug", "replay", "--scenario", "nope")
    trace, event = events(result.stderr)
    assert trace["level"] == "debug"
    assert trace["event"].startswith("Traceback (most recent call last):\n")
    assert event["level"] == "error"


def test_a_file_and_the_environment_may_ask_for_it(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pgflow-migrate.toml").write_text('log-format = "json"', encoding="utf-8")
    (event,) = events(invoke("replay", "--release", "9.9").stderr)
    assert event["event"] == "There are no scenarios for release 9.9."
    assert invoke("--log-format", "text", "replay", "--release", "9.9").stderr.startswith("error: ")
    monkeypatch.setenv("PGFLOW_MIGRATE_LOG_FORMAT", "text")
    assert invoke("replay", "--release", "9.9").stderr.startswith("error: ")


def test_a_workers_log_keeps_its_levels(capsys: pytest.CaptureFixture[str]) -> None:
    with output.stderr_as("json"), cmd_worker._logging(debug=False) as log:
        log.warning("late: %s", "task 7")
        log.debug("not told")
        try:
            raise ValueError("of this kind")
        except ValueError:
            log.exception("it broke")
    late, broke = events(capsys.readouterr().err)
    assert (late["level"], late["event"]) == ("warning", "late: task 7")
    assert (broke["level"], broke["event"]) == ("error", "it broke")
    assert broke["traceback"].endswith("ValueError: of this kind")


def test_a_workers_lines_have_their_time_in_utc(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        with cmd_worker._logging(debug=False) as log:
            log.info("here")
    finally:
        monkeypatch.undo()
        time.tzset()
    at, _, said = capsys.readouterr().err.partition(" UTC ")
    assert said == "INFO here\n"
    told = datetime.strptime(f"{at} +0000", "%Y-%m-%d %H:%M:%S.%f %z")
    assert abs(datetime.now(timezone.utc) - told) < timedelta(minutes=5)


def test_neither_colours_nor_spinners_come_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with output.stderr_as("json"):
        console = output.console(stderr=True)
        assert not console.is_terminal
        console.print("[red]one[/red]\ntwo")
        output.echo("\x1b[1mthree\x1b[0m", err=True)
    assert [event["event"] for event in events(capsys.readouterr().err)] == ["one", "two", "three"]


def test_the_document_on_stdout_and_events_on_stderr_go_together(invoke: Invoke) -> None:
    result = invoke("--log-format", "json", "replay", "--scenario", "nope", "--format", "json")
    assert json.loads(result.stdout)["error"]["message"] == "No scenario is called 'nope'."
    assert [event["level"] for event in events(result.stderr)] == ["error"]
