"""The start-up call of workers: who does not know queue identity is turned away before anything happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.queue_identity.conftest import LOCAL, shape

Connection = psycopg.Connection[dict[str, Any]]
Refused = Callable[..., psycopg.errors.Diagnostic]
Snapshot = Callable[[Connection], dict[str, Any]]

YES: dict[str, Any] = {"queueIdentity": True}


def ensure(session: Connection, *steps: str, capabilities: object = None, flow: str = "camelCase") -> Any:
    row = session.execute(
        "select pgflow.ensure_flow_compiled(%s, %s, %s) as answer",
        (flow, shape(*steps), Jsonb(capabilities or YES)),
    ).fetchone()
    assert row is not None
    return row["answer"]


@pytest.mark.parametrize("known", [False, True], ids=["new flow", "known flow"])
@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        Jsonb(None),
        {},
        [],
        [YES],
        True,
        "queueIdentity",
        1,
        {"queueIdentity": False},
        {"queueIdentity": None},
        {"queueIdentity": "true"},
        {"queueIdentity": 1},
        {"queueIdentity": [True]},
        {"queueIdentity": {"queueIdentity": True}},
        {"queueidentity": True},
        {"queue_identity": True},
        {"capabilities": YES},
        '{"queueIdentity": true}',  # encoded twice
    ],
    ids=repr,
)
def test_a_worker_that_does_not_claim_queue_identity_is_turned_away(
    superuser: Connection, refused: Refused, capabilities: object, known: bool
) -> None:
    if known:
        ensure(superuser, "first")
    value = capabilities if capabilities is None or isinstance(capabilities, Jsonb) else Jsonb(capabilities)
    found = refused(
        superuser, "select pgflow.ensure_flow_compiled('camelCase', %s, %s)", shape("first"), value
    )
    assert (found.sqlstate, found.message_primary) == (
        "PF002",
        "the worker does not say that it knows queue identity",
    )
    assert '"queueIdentity": true' in str(found.message_hint)


def test_it_comes_before_everything_else_that_could_be_wrong(superuser: Connection, refused: Refused) -> None:
    superuser.execute("select pgmq.create('taken')")
    for flow in ("taken", "bad__slug", "a" * 48, None):
        assert (
            refused(superuser, "select pgflow.ensure_flow_compiled(%s, '{}', '{}')", flow).sqlstate == "PF002"
        )


@pytest.mark.parametrize(
    "more",
    [{}, {"stepQueues": True}, {"routes": {"a": 1}, "": None}, {"queueIdentity ": False}, {"version": "2"}],
)
def test_keys_that_are_not_known_yet_are_ignored(superuser: Connection, more: dict[str, Any]) -> None:
    assert ensure(superuser, "first", capabilities=YES | more)["status"] == "compiled"


def test_the_start_up_call_of_older_workers_does_not_exist(superuser: Connection, refused: Refused) -> None:
    ensure(superuser, "first")
    for arguments in (
        "'camelCase', '{}'::jsonb",
        "flow_slug => 'camelCase', shape => '{}'::jsonb",
        "'camelCase', '{}'::jsonb, false",
        "flow_slug => 'camelCase', shape => '{}'::jsonb, allow_data_loss => true",
    ):
        assert refused(superuser, f"select pgflow.ensure_flow_compiled({arguments})").sqlstate == "42883"


@pytest.mark.parametrize("release", ["core_0_15_0", "core_0_15_1", "core_0_16_0"])
def test_a_new_worker_is_turned_away_by_an_old_database(
    database_at: Callable[[str], str],
    connect: Callable[[str], Connection],
    snapshot: Snapshot,
    release: str,
) -> None:
    session = connect(database_at(release))
    before = snapshot(session)
    with pytest.raises(psycopg.errors.UndefinedFunction):
        ensure(session, "first")
    assert snapshot(session) == before


def test_each_status_comes_with_the_canonical_queue(superuser: Connection) -> None:
    queue = {"queueName": "camelcase"}
    assert ensure(superuser, "first") == {"status": "compiled", "differences": []} | queue
    assert ensure(superuser, "first") == {"status": "verified", "differences": []} | queue
    differences = ["Step at index 0: slug differs 'other' vs 'first'"]
    assert ensure(superuser, "other") == {"status": "mismatch", "differences": differences} | queue
    superuser.execute(LOCAL.encode())
    assert ensure(superuser, "other") == {"status": "recompiled", "differences": differences} | queue
    assert superuser.execute("select step_slug, queue_name from pgflow.steps").fetchall() == [
        {"step_slug": "other", "queue_name": "camelcase"}
    ]


def test_a_mismatch_and_a_verification_change_nothing(superuser: Connection, snapshot: Snapshot) -> None:
    ensure(superuser, "first")
    superuser.execute("select pgflow.start_flow('camelCase', '{}')")
    before = snapshot(superuser)
    ensure(superuser, "first")
    ensure(superuser, "other")
    assert snapshot(superuser) == before


def test_a_recompilation_replaces_queue_and_all(superuser: Connection) -> None:
    ensure(superuser, "first")
    superuser.execute("select pgflow.start_flow('camelCase', '{}')")
    superuser.execute(LOCAL.encode())
    ensure(superuser, "other", "more")
    assert superuser.execute("select count(*) as n from pgflow.runs").fetchone() == {"n": 0}
    assert superuser.execute("select queue_name from pgmq.meta").fetchall() == [{"queue_name": "camelcase"}]
    superuser.execute("select pgflow.start_flow('camelCase', '{}')")
    assert superuser.execute("select msg_id from pgmq.q_camelcase order by 1").fetchall() == [
        {"msg_id": 1},
        {"msg_id": 2},
    ]


@pytest.mark.parametrize("step", ["run", "bad__slug", "_bad"])
def test_a_recompilation_that_fails_keeps_the_old_flow_and_its_queue(
    superuser: Connection, refused: Refused, step: str
) -> None:
    ensure(superuser, "first")
    superuser.execute("select pgflow.start_flow('camelCase', '{}')")
    superuser.execute(LOCAL.encode())
    found = refused(
        superuser,
        "select pgflow.ensure_flow_compiled('camelCase', %s, %s)",
        shape("other", step),
        Jsonb(YES),
    )
    assert (found.sqlstate, found.constraint_name) == ("23514", "steps_step_slug_check")


def test_case_variants_of_a_step_in_one_shape_are_refused_with_the_whole_flow(
    superuser: Connection, refused: Refused
) -> None:
    found = refused(
        superuser, "select pgflow.ensure_flow_compiled('f', %s, %s)", shape("pack", "Pack"), Jsonb(YES)
    )
    assert (found.sqlstate, found.constraint_name) == ("23505", "steps_slug_case_insensitive_key")
