"""A paused worker function is not started by HTTP until a person lifts the pause."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.queue_identity.conftest import LOCAL

Connection = psycopg.Connection[dict[str, Any]]

HOSTED = (
    "select vault.create_secret('service-key', 'supabase_service_role_key'),"
    " vault.create_secret('abc', 'supabase_project_id')"
)
ORPHAN = "select pgmq.send('orders', '{\"run_id\": \"gone\"}'::jsonb)"
WORKER = "11111111-1111-1111-1111-111111111111"


@pytest.fixture(params=[LOCAL, HOSTED], ids=["local stack", "hosted project"])
def project(request: pytest.FixtureRequest, superuser: Connection) -> Connection:
    """Two functions that would both be pinged; the first one's worker is registered, but silent."""
    superuser.execute(request.param.encode())
    superuser.execute("select pgflow.track_worker_function('one'), pgflow.track_worker_function('two')")
    superuser.execute("select pgflow.create_flow('orders'); select pgflow.add_step('orders', 'pack')")
    superuser.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name, last_heartbeat_at)"
        " values (%s, 'orders', 'one', now() - interval '1 day')",
        (WORKER,),
    )
    return superuser


def pinged(session: Connection) -> list[str]:
    """Call ensure_workers() as if the last call were long ago; whom it pinged, each by a request."""
    session.execute("update pgflow.worker_functions set last_invoked_at = null")
    session.execute("delete from net.http_request_queue")
    names = [
        row["function_name"]
        for row in session.execute("select * from pgflow.ensure_workers() order by 1").fetchall()
    ]
    asked = session.execute("select url from net.http_request_queue order by url").fetchall()
    assert [row["url"].rpartition("/")[2] for row in asked] == names
    return names


def refuse_a_batch(session: Connection) -> None:
    """What makes a worker stop: work that has no task."""
    session.execute(ORPHAN.encode())
    row = session.execute(
        "select pgflow.claim_tasks('orders', 'orders', array_agg(msg_id), %s) as c from pgmq.q_orders",
        (WORKER,),
    ).fetchone()
    assert row is not None
    assert (row["c"]["outcome"], row["c"]["paused_function"]) == ("fatal", "one")


def function(session: Connection, name: str) -> dict[str, Any]:
    row = session.execute(
        "select * from pgflow.worker_functions where function_name = %s", (name,)
    ).fetchone()
    assert row is not None
    return row


def resume(session: Connection, name: str | None) -> bool:
    row = session.execute("select pgflow.resume_worker_function(%s) as lifted", (name,)).fetchone()
    assert row is not None
    return bool(row["lifted"])


def test_ensure_workers_leaves_a_paused_function_alone_and_pings_the_others(project: Connection) -> None:
    assert pinged(project) == ["one", "two"]
    refuse_a_batch(project)
    for _ in range(2):
        assert pinged(project) == ["two"]
    assert function(project, "one")["last_invoked_at"] is None


def test_resuming_lifts_the_pause_once(project: Connection) -> None:
    refuse_a_batch(project)
    before = function(project, "one")
    assert before["enabled"] is True
    assert before["paused_at"] is not None
    assert resume(project, "one") is True
    after = function(project, "one")
    assert after["updated_at"] > before["updated_at"]
    assert after == before | {"paused_at": None, "pause_reason": None, "updated_at": after["updated_at"]}
    assert pinged(project) == ["one", "two"]
    assert resume(project, "one") is False
    assert function(project, "one")["updated_at"] == after["updated_at"]


@pytest.mark.parametrize("name", ["two", "absent", "ONE", "", None])
def test_resuming_what_is_not_paused_says_so_and_changes_nothing(
    project: Connection, name: str | None
) -> None:
    refuse_a_batch(project)
    everything = "select to_jsonb(f) as f from pgflow.worker_functions f order by function_name"
    before = project.execute(everything.encode()).fetchall()
    assert resume(project, name) is False
    assert project.execute(everything.encode()).fetchall() == before


def test_a_worker_that_registers_does_not_lift_the_pause(project: Connection) -> None:
    refuse_a_batch(project)
    before = function(project, "one")
    project.execute(
        "select pgflow.track_worker_function('one', 'process'), pgflow.track_worker_function('one')"
    )
    project.execute("select pgflow.mark_worker_stopped(%s)", (WORKER,))
    after = function(project, "one")
    assert (after["paused_at"], after["pause_reason"]) == (before["paused_at"], before["pause_reason"])
    assert pinged(project) == ["two"]


def test_the_next_refusal_pauses_again_with_its_own_reason(project: Connection) -> None:
    refuse_a_batch(project)
    first = function(project, "one")["pause_reason"]
    resume(project, "one")
    refuse_a_batch(project)
    again = function(project, "one")["pause_reason"]
    assert first.endswith("1 message, 1 (missing_task)")
    assert again.endswith("2 messages, 1 (missing_task), 2 (missing_task)")


def test_a_function_that_is_switched_off_stays_off_when_its_pause_is_lifted(project: Connection) -> None:
    project.execute("update pgflow.worker_functions set enabled = false where function_name = 'one'")
    refuse_a_batch(project)
    assert resume(project, "one") is True
    assert pinged(project) == ["two"]


@pytest.mark.parametrize(("paused_at", "reason"), [("now()", "null"), ("null", "'because'")])
def test_a_pause_has_a_time_and_a_reason_or_neither(project: Connection, paused_at: str, reason: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        project.execute(
            f"update pgflow.worker_functions set paused_at = {paused_at}, pause_reason = {reason}".encode()
        )
    assert caught.value.diag.constraint_name == "pause_has_a_reason"


def test_new_functions_are_not_paused(project: Connection) -> None:
    project.execute("insert into pgflow.worker_functions (function_name) values ('fresh')")
    assert (function(project, "fresh")["paused_at"], function(project, "fresh")["pause_reason"]) == (
        None,
        None,
    )
    assert "fresh" in pinged(project)
