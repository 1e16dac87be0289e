"""Every scenario comes out as expected; and one that does not is told."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pgflow_migrate import database, resources
from pgflow_migrate.audit.codes import CODES
from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.replay import checks, run
from pgflow_migrate.replay.results import Outcome, Result
from pgflow_migrate.replay.run import replay, run_scenario
from pgflow_migrate.replay.scenario import Check, ExpectedFinding, Scenario, Setup, load, load_all
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

SCENARIOS = load_all(resources.fixtures())
QUIET = load(resources.fixtures() / "0.16.0" / "definitions_without_runs")
UNKNOWN = load(resources.fixtures() / "0.16.0" / "release_unexpected")
BLOCKED = load(resources.fixtures() / "0.16.0" / "message_without_task")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_a_scenario_comes_out_as_expected(server: Server, templates: Templates, scenario: Scenario) -> None:
    result = run_scenario(server, templates, scenario)
    if result.outcome is Outcome.SKIPPED:
        pytest.skip(result.details[0])
    assert result.details == ()
    assert result.outcome is Outcome.AS_EXPECTED


def test_every_code_that_blocks_has_a_scenario_of_its_own() -> None:
    alone = {
        codes.pop()
        for scenario in SCENARIOS
        if len(codes := {finding.code for finding in scenario.findings if finding.severity == "error"}) == 1
    }
    blocking = {code.name for code in CODES.values() if code.severity == "error"}
    assert alone == blocking


def test_every_warning_has_a_scenario() -> None:
    warned = {f.code for scenario in SCENARIOS for f in scenario.findings if f.severity == "warning"}
    assert warned == {code.name for code in CODES.values() if code.severity == "warning"}


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        (
            replace(QUIET, findings=(ExpectedFinding("warning", "prune-helper-stock", count=1),)),
            "The audit lacks warning prune-helper-stock - - - 1.",
        ),
        (
            replace(QUIET, findings=(ExpectedFinding("info", "backfill-steps", "no_such_flow", count=1),)),
            "The audit lacks info backfill-steps 'no_such_flow' - - 1.",
        ),
        (
            replace(
                BLOCKED, findings=(ExpectedFinding("error", "queue-absent", "orders", None, "orders", 1),)
            ),
            "The audit has also error message-without-task 'orders' - 'orders' 3.",
        ),
        (
            replace(
                BLOCKED, findings=(ExpectedFinding("error", "queue-absent", "orders", None, "orders", 1),)
            ),
            "The refusal lacks error queue-absent 'orders' - 'orders' 1.",
        ),
        (replace(QUIET, upgrade="rejected"), "The upgrade succeeded instead of being rejected."),
        (replace(BLOCKED, upgrade="succeeds"), "[message-without-task]"),
        (
            replace(BLOCKED, populate=UNKNOWN.populate),
            "The upgrade could not run instead of being rejected: The database records revision core_0_16_0",
        ),
        (
            replace(BLOCKED, setup=Setup(secrets=("message-without-task",))),
            "The audit shows the scenario's secret number 1.",
        ),
        (
            replace(BLOCKED, setup=Setup(secrets=("message-without-task",))),
            "The refusal shows the scenario's secret number 1.",
        ),
        (
            replace(QUIET, changes=("pgflow.steps.step_slug",)),
            "column pgflow.steps.step_slug should change and did not.",
        ),
        (
            replace(QUIET, checks=(Check("two", "select 1, null", rows=((2, "NULL"),)),)),
            "Check 'two' gave [[1, 'NULL']], not [[2, 'NULL']].",
        ),
        (
            replace(QUIET, checks=(Check("zero", "select 1/0"),)),
            "Check 'zero' failed with 22012 division by zero",
        ),
        (
            replace(QUIET, checks=(Check("zero", "select 1", sqlstate="22012"),)),
            "Check 'zero' should fail with 22012 and gave 1 row.",
        ),
        (
            replace(QUIET, checks=(Check("run", "select 1", run="select nonsense"),)),
            "Check 'run' failed before its query: 42703",
        ),
    ],
)
def test_what_differs_is_told(server: Server, templates: Templates, scenario: Scenario, told: str) -> None:
    result = run_scenario(server, templates, scenario)
    assert result.outcome is Outcome.DIFFERS
    assert any(told in detail for detail in result.details), result.details


def test_an_upgraded_schema_that_is_not_the_snapshots_is_told(
    server: Server, templates: Templates, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = {release: catalogue.snapshot(release) for release in catalogue.releases()}
    objects = dict(snapshots[HEAD].objects)
    del objects["index step_tasks.step_tasks_queue_message_key"]
    snapshots[HEAD] = replace(snapshots[HEAD], objects=objects)
    monkeypatch.setattr(catalogue, "snapshot", snapshots.__getitem__)
    result = run_scenario(server, templates, QUIET)
    assert result.outcome is Outcome.DIFFERS
    assert (
        "The upgraded schema is not dirty_runs's: index step_tasks.step_tasks_queue_message_key"
        " is not part of the release."
    ) in result.details


def test_a_check_may_expect_a_failure(server: Server, templates: Templates) -> None:
    check = Check("division", "select 1/0", sqlstate="22012")
    assert run_scenario(server, templates, replace(QUIET, checks=(check,))).details == ()


def test_a_populate_script_that_fails_could_not_run(server: Server, templates: Templates) -> None:
    result = run_scenario(server, templates, replace(QUIET, populate="select 1; select nonsense;"))
    assert result.outcome is Outcome.COULD_NOT_RUN
    assert result.details[0].startswith(
        'populate.sql of 0.16.0/definitions_without_runs failed: column "nonsense" does not exist'
    )


def test_an_unknown_release_could_not_run(server: Server, templates: Templates) -> None:
    result = run_scenario(server, templates, replace(QUIET, release="0.14.0"))
    assert result.outcome is Outcome.COULD_NOT_RUN
    assert result.details == ("Release 0.14.0 is unknown.",)


def test_a_scenario_for_another_kind_of_pgmq_is_skipped_with_the_reason(server: Server) -> None:
    with_sql = Templates(server, pgmq="sql")
    scenario = load(resources.fixtures() / "0.16.0" / "camel_case_extension_members")
    result = run_scenario(server, with_sql, scenario)
    assert result.outcome is Outcome.SKIPPED
    assert result.details == ("It needs PGMQ as extension; here it is sql.",)


def test_scenarios_run_with_pgmq_as_sql(server: Server) -> None:
    with_sql = Templates(server, pgmq="sql")
    told: list[Result] = []
    chosen = [scenario for scenario in SCENARIOS if scenario.name in ("camel_case", "queue_absent")]
    report = replay(server, with_sql, chosen, told.append)
    assert [result.details for result in report.results] == [(), ()]
    assert tuple(told) == report.results
    assert (report.server, report.pgmq, report.exit_code) == (server.label, "sql", 0)


def test_a_scenarios_database_is_dropped_whatever_happens(server: Server, templates: Templates) -> None:
    def databases() -> set[object]:
        with database.connect(server.admin_dsn) as connection:
            return {name for (name,) in connection.execute("select datname from pg_database")}

    templates.at("core_0_16_0")
    before = databases()
    run_scenario(server, templates, QUIET)
    run_scenario(server, templates, replace(QUIET, populate="nonsense"))
    assert databases() == before


def test_a_scenario_whose_database_cannot_be_made_does_not_stop_the_others(
    server: Server, templates: Templates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_numbers", itertools.count(900_000))
    server.create_database("replay_900000")
    report = replay(server, templates, [QUIET, QUIET])
    first, second = report.results
    assert (first.outcome, first.details) == (
        Outcome.COULD_NOT_RUN,
        (
            f"The replay on {server.label} could not go on:"
            f' database "{server.prefix}replay_900000" already exists (SQLSTATE 42P04).',
        ),
    )
    assert (second.outcome, second.details) == (Outcome.AS_EXPECTED, ())
    assert report.exit_code == 1


@pytest.mark.parametrize("query", ["select 'infinity'::timestamptz", "select '0044-03-15 BC'::timestamptz"])
def test_a_check_that_gives_a_time_that_python_has_not_has_failed(
    query: str, database_at: Callable[[str], str], connect: Callable[[str], psycopg.Connection[Any]]
) -> None:
    connection = connect(database_at(""))
    which = "large (after year 10K)" if "infinity" in query else "small (before year 1)"
    check = Check("of a time", query, rows=(("2026-01-01 00:00:00+00:00",),))
    (told,) = checks.check_differences(connection, check)
    assert told.startswith("Check 'of a time' failed with ")
    assert "None" not in told
    assert f"timestamp too {which}" in told
