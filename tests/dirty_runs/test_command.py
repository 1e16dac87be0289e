"""``pgflow-migrate dirty-runs``: contract, inventory, status, reconcile."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import Result
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.cli.conftest import runner
from tests.dirty_runs.conftest import Open
from tests.dirty_runs.protocol import WORKER, Session

from pgflow_migrate.cli import main
from pgflow_migrate.dirty_runs import contract
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, EXIT_OK, EXIT_USAGE

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+\d\d:\d\d")


def invoke(*arguments: str) -> Result:
    return runner().invoke(main, ["dirty-runs", *arguments])


def table(result: Result) -> list[str]:
    return [TIME.sub("TIME", line) for line in result.stdout.splitlines()]


def document(result: Result) -> Any:
    return json.loads(result.stdout)


def test_the_contract_is_printed_whole_as_text_and_as_data() -> None:
    assert invoke("contract").stdout.startswith("# Dirty Runs\n")
    found = document(invoke("contract", "--format", "json"))
    assert found["version"] == contract.CONTRACT_VERSION
    assert {limit["name"]: limit["value"] for limit in found["limits"]} == {
        limit.name: limit.value for limit in contract.LIMITS
    }
    assert [transition["name"] for transition in found["transitions"]] == [
        transition.name for transition in contract.TRANSITIONS
    ]


def test_the_inventory_names_guard_and_test_of_each_writer() -> None:
    found = document(invoke("inventory", "--format", "json"))
    shown = invoke("inventory").stdout
    assert len(found) > 50
    for entry in found:
        assert entry["name"] in shown
        assert entry["guard"]
        assert f"tests/dirty_runs/{entry['test']}" in shown


def test_the_contract_is_compared_with_a_database(demo: Session, dsn: str) -> None:
    result = invoke("contract", "--dsn", dsn)
    assert (result.exit_code, result.stdout, result.stderr) == (EXIT_OK, invoke("contract").stdout, "")
    other = demo.value("select pgflow._v2_limits() - 'tasks'") | {"steps": 3}
    demo.execute(
        "create or replace function pgflow._v2_limits() returns jsonb language sql immutable as"
        f" $$ select jsonb '{json.dumps(other)}' $$"
    )
    for how in ("markdown", "json"):
        result = invoke("contract", "--dsn", dsn, "--format", how)
        assert result.exit_code == EXIT_BLOCKED
        assert result.stderr.splitlines() == [
            "limit steps: 2 in the contract, 3 in the database",
            "limit tasks: 2 in the contract, nothing in the database",
        ]


def test_the_inventory_says_what_a_database_has(demo: Session, dsn: str) -> None:
    entries = document(invoke("inventory", "--format", "json"))
    result = invoke("inventory", "--dsn", dsn, "--format", "json")
    assert result.exit_code == EXIT_OK
    of_the_owner = ("cron", "shipped helper", "documented helper")
    assert document(result) == [
        entry | {"installed": None if entry["kind"] in of_the_owner else True} for entry in entries
    ]
    demo.execute("drop function pgflow.recover_task_v2")
    demo.execute("alter table pgflow.runs disable trigger protocol_2_identity")
    demo.execute("alter table pgflow.step_tasks enable replica trigger protocol_2_address")
    result = invoke("inventory", "--dsn", dsn, "--format", "json")
    assert result.exit_code == EXIT_BLOCKED
    missing = [entry["name"] for entry in document(result) if entry["installed"] is False]
    assert [name.partition("(")[0] for name in missing] == [
        "protocol_2_identity on runs",
        "protocol_2_address on step_tasks",
        "recover_task_v2",
    ]
    result = invoke("inventory", "--dsn", dsn)
    assert (result.exit_code, result.stdout.count("  installed  no\n")) == (EXIT_BLOCKED, 3)


def test_status_shows_what_waits_the_worst_first(demo: Session, dsn: str) -> None:
    calm, pending, attention = (demo.started() for _ in range(3))
    held = demo.claimed(calm, "a")
    demo.complete(demo.claimed(pending, "a"), 1)
    first = demo.claimed(attention, "a")
    demo.expire(first)
    demo.recover(attention, "a", first)
    second = demo.claimed(attention, "a")
    demo.expire(second)
    assert demo.recover(attention, "a", second)["outcome"] == "attention"

    before = demo.everything()
    result = invoke("status", "--dsn", dsn)
    assert result.exit_code == EXIT_BLOCKED
    assert table(result) == [
        f"{attention}  demo",
        "  run        started",
        "  work       attention, generation 0 of 0 processed",
        "  attention  claims_exhausted since TIME",
        f"  claim 1    a/0 revoked (lease_lost), message 3 in demo, worker {WORKER}, lease until TIME",
        f"  claim 2    a/0 active, lease over, message 3 in demo, worker {WORKER}, lease until TIME",
        f"{pending}  demo",
        "  run      started",
        "  work     pending, generation 0 of 1 processed, 1 behind since TIME",
        f"  claim 1  a/0 settled (completed), message 2 in demo, worker {WORKER}, lease until TIME",
        f"{calm}  demo",
        "  run      started",
        "  work     clean, generation 0 of 0 processed",
        f"  claim 1  a/0 active, message 1 in demo, worker {WORKER}, lease until TIME",
    ]
    found = document(invoke("status", "--dsn", dsn, "--format", "json"))
    assert found["attention"] == 1
    assert [work["run_id"] for work in found["work"]] == [str(attention), str(pending), str(calm)]
    assert {claim["claim_id"] for claim in found["claims"]} >= {str(held), str(first), str(second)}
    assert {claim["msg_id"] for claim in found["claims"]} == {"1", "2", "3"}
    assert demo.everything() == before


def test_status_leaves_out_what_is_over_unless_it_is_asked_for(demo: Session, dsn: str) -> None:
    assert invoke("status", "--dsn", dsn).stdout == "No runs of protocol 2 that have anything to do.\n"
    run = demo.started()
    demo.fail(demo.claimed(run, "a"))
    assert invoke("status", "--dsn", dsn).stdout == "No runs of protocol 2 that have anything to do.\n"
    result = invoke("status", "--dsn", dsn, "--all")
    assert (result.exit_code, table(result)[:2]) == (EXIT_OK, [f"{run}  demo", "  run      failed"])


def test_status_says_when_there_are_more(demo: Session, dsn: str) -> None:
    for _ in range(3):
        demo.started()
    result = invoke("status", "--dsn", dsn, "--limit", "2")
    assert len([line for line in table(result) if line.endswith("  demo")]) == 2
    assert result.stderr == "There are more: --limit.\n"
    assert document(invoke("status", "--dsn", dsn, "--limit", "2", "--format", "json"))["cut"] is True


def test_status_tells_times_that_python_has_not_as_the_first_or_last_that_it_has(
    demo: Session, dsn: str
) -> None:
    pending, held = demo.started(), demo.started()
    demo.complete(demo.claimed(pending, "a"), 1)
    demo.claimed(held, "a")
    demo.execute("set session_replication_role = replica")
    demo.execute("update pgflow.run_work set requested_at = '-infinity' where run_id = %s", pending)
    demo.execute("update pgflow.task_claims set claimed_at = '0044-03-15 BC', lease_expires_at = 'infinity'")
    # Where the last second in UTC is in another year, and psycopg does not read the text.
    demo.execute(
        "alter database "
        + str(conninfo_to_dict(dsn)["dbname"])
        + " set timezone to 'Asia/Tokyo'; alter database "
        + str(conninfo_to_dict(dsn)["dbname"])
        + " set datestyle to 'German'"
    )
    result = invoke("status", "--dsn", dsn, "--format", "json")
    assert (result.exit_code, result.stderr) == (EXIT_OK, "")
    first, last = "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999+00:00"
    found = document(result)
    assert {work["run_id"]: work["requested_at"] for work in found["work"]} == {
        str(pending): first,
        str(held): None,
    }
    assert {(claim["claimed_at"], claim["lease_expires_at"]) for claim in found["claims"]} == {(first, last)}
    assert {claim["lease_is_over"] for claim in found["claims"]} == {False}


def test_reconcile_does_one_chunk_and_says_what_it_did(demo: Session, dsn: str) -> None:
    run = demo.started()
    demo.complete(demo.claimed(run, "a"), 1)
    result = invoke("reconcile", "--dsn", dsn, "--next")
    assert (result.exit_code, table(result)) == (
        EXIT_OK,
        ["outcome    dispatched", f"run id     {run}", "step slug  b", "examined   9"],
    )
    assert demo.work(run)["state"] == "pending"
    found = document(invoke("reconcile", "--dsn", dsn, "--run", str(run), "--format", "json"))
    assert found == {"outcome": "clean", "run_id": str(run), "examined": 10}
    assert document(invoke("reconcile", "--dsn", dsn, "--next", "--format", "json")) == {
        "outcome": "idle",
        "busy": 0,
    }


def test_reconcile_passes_over_a_locked_run(demo: Session, open_session: Open, dsn: str) -> None:
    run = demo.started()
    demo.complete(demo.claimed(run, "a"), 1)
    with open_session().connection.transaction() as held:
        held.connection.execute("select from pgflow.runs where run_id = %s for update", (run,))
        for which in (["--next"], ["--run", str(run)]):
            result = invoke("reconcile", "--dsn", dsn, *which)
            assert (result.exit_code, table(result)) == (EXIT_OK, ["outcome  busy", "busy     1"])


def test_a_chunk_that_fails_is_recorded_and_exits_3(demo: Session, dsn: str) -> None:
    run = demo.started()
    demo.complete(demo.claimed(run, "a"), 1)
    demo.execute("drop table pgmq.q_demo")
    result = invoke("reconcile", "--dsn", dsn, "--run", str(run))
    assert result.exit_code == EXIT_BLOCKED
    assert table(result)[:2] == ["outcome          failed", f"run id           {run}"]
    assert demo.work(run)["last_error_sqlstate"] == "42P01"
    assert "  last error    42P01: " in invoke("status", "--dsn", dsn).stdout


@pytest.mark.parametrize(
    ("run", "outcome"), [(lambda _: uuid4(), "unknown"), (lambda session: v1_run(session), "wrong_protocol")]
)
def test_a_run_that_is_not_of_protocol_2_is_refused(
    demo: Session, dsn: str, run: Callable[[Session], UUID], outcome: str
) -> None:
    result = invoke("reconcile", "--dsn", dsn, "--run", str(run(demo)))
    assert result.exit_code == EXIT_BLOCKED
    assert table(result)[0].split() == ["outcome", outcome]


def v1_run(session: Session) -> UUID:
    session.execute("select pgflow.create_flow('one'), pgflow.add_step('one', 'a')")
    found: UUID = session.value("select run_id from pgflow.start_flow('one', '{}')")
    return found


@pytest.mark.parametrize("arguments", [[], ["--next", "--run", str(uuid4())], ["--run", "x"]])
def test_reconcile_wants_one_run_or_the_next(arguments: list[str]) -> None:
    assert invoke("reconcile", *arguments).exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "arguments", [["status"], ["reconcile", "--next"], ["contract"], ["inventory"]], ids=" ".join
)
def test_a_database_without_protocol_2_is_refused_with_words(
    database_at: Callable[[str], str], arguments: list[str]
) -> None:
    for revision in ("", "queue_identity"):
        result = invoke(*arguments, "--dsn", database_at(revision))
        assert result.exit_code == EXIT_COULD_NOT_RUN
        assert result.stderr.splitlines()[0] == (
            "error: This database has no protocol 2: the revision dirty_runs is not applied."
        )


@pytest.mark.parametrize(
    ("arguments", "what"), [(["status"], "look at protocol 2"), (["reconcile", "--next"], "chunk")]
)
def test_a_role_without_rights_is_told_so(dsn: str, arguments: list[str], what: str) -> None:
    result = invoke(*arguments, "--dsn", make_conninfo(dsn, options="-c role=anon"))
    assert result.exit_code == EXIT_COULD_NOT_RUN
    assert result.stderr.splitlines()[0] == (
        f"error: The server ended the {what}: permission denied for schema pgflow (SQLSTATE 42501)."
    )
