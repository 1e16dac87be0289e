"""Claims of protocol 1 that are given messages of protocol 2, alone and among others."""

from __future__ import annotations

import psycopg
import pytest
from tests.dirty_runs.isolation.conftest import WORKER_OF_1, World
from tests.dirty_runs.protocol import Row, Session


def message(session: Session, queue: str, msg_id: int) -> Row:
    """A message as it is in its queue."""
    return session.row(f'select * from pgmq."q_{queue}" where msg_id = %s', msg_id)


def claim(session: Session, queue: str, flow: str, ids: list[int]) -> Row:
    """claim_tasks() by a worker that is registered."""
    found: Row = session.value("select pgflow.claim_tasks(%s, %s, %s, %s)", queue, flow, ids, WORKER_OF_1)
    return found


def shared(session: Session, flow: str) -> int:
    """A run of protocol 1 of the same flow, and so in the same queue; its message."""
    run = session.value("select run_id from pgflow.start_flow(%s, '{}')", flow)
    found: int = session.value("select message_id from pgflow.step_tasks where run_id = %s", run)
    return found


def test_messages_of_protocol_2_are_left_as_read(world: World) -> None:
    session = world.session
    for queue in {task["queue_name"] for task in world.tasks()}:
        ids = [task["message_id"] for task in world.tasks() if task["queue_name"] == queue]
        session.execute("select pgmq.read(%s, 30, 100)", queue)
        with world.unchanged():
            assert claim(session, queue, world.flow, ids) == {
                "outcome": "claimed",
                "queue_name": queue,
                "tasks": [],
                "deferred": [],
                "archived": [],
                "busy": [],
                "foreign": [],
                "other_protocol": [str(msg_id) for msg_id in sorted(ids)],
            }


def test_the_plain_claim_leaves_them_too(demo_world: World) -> None:
    session = demo_world.session
    ids = [task["message_id"] for task in demo_world.tasks()]
    session.execute("select pgmq.read('demo', 30, 100)")
    with demo_world.unchanged():
        assert session.rows("select * from pgflow.start_tasks('demo', %s, %s)", ids, WORKER_OF_1) == []


def test_among_messages_of_protocol_1_only_these_are_claimed(demo_world: World) -> None:
    session = demo_world.session
    ids = [task["message_id"] for task in demo_world.tasks()]
    mine = shared(session, demo_world.flow)
    session.execute("select pgmq.read('demo', 30, 100)")
    theirs = {msg_id: message(session, "demo", msg_id) for msg_id in session.messages() if msg_id != mine}
    tasks = demo_world.tasks()
    outcome = claim(session, "demo", "demo", [*ids, mine])
    assert [task["msg_id"] for task in outcome["tasks"]] == [str(mine)]
    assert outcome["other_protocol"] == [str(msg_id) for msg_id in sorted(ids)]
    assert {msg_id: message(session, "demo", msg_id) for msg_id in theirs} == theirs
    assert demo_world.tasks() == tasks


def test_among_strangers_messages_only_these_are_archived(demo_world: World) -> None:
    session = demo_world.session
    ids = [task["message_id"] for task in demo_world.tasks()]
    stranger = session.value("select pgmq.send('demo', '{\"hello\": 1}')")
    session.execute("select pgmq.read('demo', 30, 100)")
    theirs = {msg_id: message(session, "demo", msg_id) for msg_id in session.messages() if msg_id != stranger}
    outcome = claim(session, "demo", "demo", [stranger, *ids])
    assert (outcome["outcome"], outcome["tasks"], outcome["foreign"]) == ("claimed", [], [str(stranger)])
    assert outcome["other_protocol"] == [str(msg_id) for msg_id in sorted(ids)]
    assert stranger in session.archived()
    assert {msg_id: message(session, "demo", msg_id) for msg_id in theirs} == theirs


def test_a_doubtful_batch_is_given_back_without_them(demo_world: World) -> None:
    session = demo_world.session
    ids = [task["message_id"] for task in demo_world.tasks()]
    mine = shared(session, demo_world.flow)
    doubtful = session.value(
        "select pgmq.send('demo', jsonb_build_object('flow_slug', 'demo', 'run_id', gen_random_uuid(),"
        " 'step_slug', 'a', 'task_index', 0))"
    )
    session.execute("select pgmq.read('demo', 30, 100)")
    theirs = {
        msg_id: message(session, "demo", msg_id)
        for msg_id in session.messages()
        if msg_id not in (mine, doubtful)
    }
    hidden = message(session, "demo", mine)["vt"]
    tasks = demo_world.tasks()
    outcome = claim(session, "demo", "demo", [*ids, mine, doubtful])
    assert outcome["outcome"] == "fatal"
    assert [named["msg_id"] for named in outcome["messages"]] == [str(doubtful)]
    assert message(session, "demo", mine)["vt"] < hidden
    assert {msg_id: message(session, "demo", msg_id) for msg_id in theirs} == theirs
    assert demo_world.tasks() == tasks


def test_a_foreign_flows_claim_on_their_queue_gives_nothing_back_of_them(demo_world: World) -> None:
    session = demo_world.session
    ids = [task["message_id"] for task in demo_world.tasks()]
    session.execute("select pgmq.read('demo', 30, 100)")
    theirs = {msg_id: message(session, "demo", msg_id) for msg_id in session.messages()}
    tasks = demo_world.tasks()
    outcome = claim(session, "demo", "plain", ids)
    assert (outcome["outcome"], outcome["reason"]) == (
        "fatal",
        'queue "demo" is not a queue of flow "plain"',
    )
    assert claim(session, "demo", "nobody", ids)["reason"] == 'flow "nobody" does not exist'
    assert {msg_id: message(session, "demo", msg_id) for msg_id in theirs} == theirs
    assert demo_world.tasks() == tasks


def test_claims_of_protocol_1_go_on_as_before_beside_them(demo_world: World) -> None:
    session = demo_world.session
    run = demo_world.plain["queued"]
    (task,) = session.rows("select message_id from pgflow.step_tasks where run_id = %s", run)
    outcome = claim(session, "plain", "plain", [task["message_id"]])
    assert sorted(outcome) == ["archived", "busy", "deferred", "foreign", "outcome", "queue_name", "tasks"]
    assert [claimed["run_id"] for claimed in outcome["tasks"]] == [str(run)]
    with pytest.raises(psycopg.errors.ForeignKeyViolation), session.connection.transaction():
        session.execute(
            "select pgflow.claim_tasks('plain', 'plain', %s, gen_random_uuid())",
            [shared(session, "plain")],
        )
