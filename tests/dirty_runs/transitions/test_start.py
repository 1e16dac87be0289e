"""start_flow_v2: all rows of a run, or none."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest
from tests.dirty_runs.changes import unchanged, watching
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.transitions.conftest import Queues, break_hints


def test_a_start_makes_every_row_of_the_run_and_dispatches_a(session: Session, queues: Queues) -> None:
    session.execute("update pgflow.steps set opt_start_delay = 7 where step_slug = 'a'")
    with watching(session) as seen:
        outcome = session.start(given={"b": 1, "a": [True, None]})
    run = UUID(outcome["run_id"])
    assert outcome == {"outcome": "started", "run_id": str(run), "replayed": False}

    definition = (
        '{"flow": "demo", "edges": [["a", "b"]], "steps": ['
        f'{{"slug": "a", "type": "single", "index": 0, "queue": "{queues.a}", "timeout": 60, '
        '"condition": false, "startDelay": 7, "maxAttempts": 1, "whenExhausted": "fail"}, '
        f'{{"slug": "b", "type": "single", "index": 1, "queue": "{queues.b}", "timeout": 60, '
        '"condition": false, "startDelay": 0, "maxAttempts": 1, "whenExhausted": "fail"}]}'
    )
    identity = session.value("select sha256(convert_to(%s, 'UTF8'))", definition)
    assert seen.added == {
        "runs": {
            (run,): {
                "run_id": run,
                "flow_slug": "demo",
                "status": "started",
                "input": {"a": [True, None], "b": 1},
                "remaining_steps": 2,
                "started_at": seen.now,
            }
        },
        "run_work": {
            (run,): {
                "run_id": run,
                "flow_slug": "demo",
                "protocol_version": 2,
                "definition_sha256": identity,
                "state": "clean",
                "requested_generation": 0,
                "processed_generation": 0,
                "failure_count": 0,
                "created_at": seen.now,
            }
        },
        "step_states": {
            (run, "a"): {
                "flow_slug": "demo",
                "run_id": run,
                "step_slug": "a",
                "status": "started",
                "remaining_tasks": 1,
                "remaining_deps": 0,
                "initial_tasks": 1,
                "created_at": seen.now,
                "started_at": seen.now,
            },
            (run, "b"): {
                "flow_slug": "demo",
                "run_id": run,
                "step_slug": "b",
                "status": "created",
                "remaining_deps": 1,
                "initial_tasks": 1,
                "created_at": seen.now,
            },
        },
        "step_tasks": {
            (run, "a", 0): {
                "flow_slug": "demo",
                "run_id": run,
                "step_slug": "a",
                "task_index": 0,
                "status": "queued",
                "queue_name": queues.a,
                "message_id": 1,
                "attempts_count": 0,
                "requeued_count": 0,
                "queued_at": seen.now,
            }
        },
        f"q_{queues.a}": {
            (1,): {
                "msg_id": 1,
                "read_ct": 0,
                "enqueued_at": seen.now,
                "vt": seen.after(7),
                "message": {"flow_slug": "demo", "run_id": str(run), "step_slug": "a", "task_index": 0},
            }
        },
    }
    assert (seen.changed, seen.removed) == ({}, {})
    assert seen.events == [
        (
            "run:started",
            {
                "event_type": "run:started",
                "flow_slug": "demo",
                "input": {"a": [True, None], "b": 1},
                "status": "started",
                "remaining_steps": 2,
            },
        ),
        (
            "step:a:started",
            {
                "event_type": "step:started",
                "step_slug": "a",
                "status": "started",
                "started_at": seen.now,
                "remaining_tasks": 1,
                "remaining_deps": 0,
            },
        ),
    ]


def test_each_start_without_a_run_id_is_a_run_of_its_own(demo: Session) -> None:
    assert demo.started() != demo.started()
    assert demo.messages() == [1, 2]


def test_the_input_is_kept_in_its_canonical_form(shared: Session) -> None:
    run = shared.started(given='{"bb": [1.500, -0.0, 2e2], "a": "1.500"}')
    kept = '{"a": "1.500", "bb": [1.5, 0, 200]}'
    assert shared.value("select input::text from pgflow.runs where run_id = %s", run) == kept
    claim = shared.value("select pgflow.claim_task_v2(%s, 'a', 0, null, null, %s)::text", run, run)
    assert f'"flow_input": {kept}' in claim


# -- replays and conflicts ---------------------------------------------------------------------------------


def test_the_same_start_again_is_replayed_whatever_came_after(demo: Session) -> None:
    run = uuid4()
    assert demo.start(given='{"x": 1.50, "y": {"b": 0, "a": ""}}', run=run)["replayed"] is False

    def again() -> None:
        for spelled in ('{"y": {"a": "", "b": -0}, "x": 1.5}', '{"x":15e-1,"y":{"b":0.0,"a":""}}'):
            with unchanged(demo):
                outcome = demo.start(given=spelled, run=run)
            assert outcome == {"outcome": "started", "run_id": str(run), "replayed": True}

    again()
    demo.complete(demo.claimed(run, "a"), 1)
    again()
    demo.settle_down(run)
    again()
    demo.fail(demo.claimed(run, "b"))
    assert demo.run(run)["status"] == "failed"
    again()


@pytest.mark.parametrize("given", ["0", "false", '""', "null", "{}", "[]", '{"x": null}'])
def test_another_input_under_the_same_run_id_is_a_conflict(shared: Session, given: str) -> None:
    inputs = ["0", "false", '""', "null", "{}", "[]", '{"x": null}', '"0"', "1"]
    run = uuid4()
    assert shared.start(given=given, run=run)["outcome"] == "started"
    assert shared.run(run)["input"] == json.loads(given)
    with unchanged(shared):
        outcomes = {other: shared.start(given=other, run=run) for other in inputs if other != given}
    expected = {"outcome": "conflict", "run_id": str(run), "reasons": ["run_id"]}
    assert outcomes == dict.fromkeys(outcomes, expected)


def test_another_flow_under_the_same_run_id_is_a_conflict(shared: Session) -> None:
    shared.define("other")
    run = shared.started()
    with unchanged(shared):
        outcomes = [shared.start(flow, run=run) for flow in ("other", "none at all")]
    # The id is asked before the definition.
    assert outcomes == [{"outcome": "conflict", "run_id": str(run), "reasons": ["run_id"]}] * 2


def test_the_id_of_a_run_of_protocol_1_is_a_conflict(shared: Session) -> None:
    run = shared.value("select run_id from pgflow.start_flow('demo', '{}')")
    with unchanged(shared):
        outcome = shared.start(run=run)
    assert outcome == {"outcome": "conflict", "run_id": str(run), "reasons": ["run_id"]}


# -- rejections --------------------------------------------------------------------------------------------


def test_null_and_oversized_inputs_are_rejected_before_anything_is_asked(shared: Session) -> None:
    run = shared.started()
    with unchanged(shared):
        assert shared.value("select pgflow.start_flow_v2(null, null, %s)", run) == {
            "outcome": "rejected",
            "reasons": ["flow_slug_is_null", "input_is_null"],
        }
        assert shared.value("select pgflow.start_flow_v2('demo', null, %s)", run) == {
            "outcome": "rejected",
            "reasons": ["input_is_null"],
        }
        # The run's id is taken, and the flow does not exist: neither is asked.
        assert shared.start("none", given=json.dumps("x" * 65_535), run=run) == {
            "outcome": "rejected",
            "reasons": ["input_bytes"],
        }


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_start_that_could_not_see_what_it_waited_for_is_rejected(demo: Session, level: str) -> None:
    run = demo.started()
    with unchanged(demo), demo.connection.transaction():
        demo.execute(f"set transaction isolation level {level}")
        # Also of a run that is there: it is asked before the run.
        for wanted in (run, None):
            assert demo.start(run=wanted) == {"outcome": "rejected", "reasons": ["transaction_isolation"]}
        assert demo.value("select pgflow.start_flow_v2(null, null)") == {
            "outcome": "rejected",
            "reasons": ["flow_slug_is_null", "input_is_null", "transaction_isolation"],
        }


OUTSIDE: dict[str, tuple[str, list[str]]] = {
    "no flow": ("select pgflow.delete_flow_and_data('demo')", ["no_such_flow"]),
    "no step": ("delete from pgflow.deps; delete from pgflow.steps", ["step_count", "edge_count"]),
    "one step": (
        "delete from pgflow.deps; delete from pgflow.steps where step_slug = 'b'",
        ["step_count", "edge_count"],
    ),
    "no edge": ("delete from pgflow.deps", ["edge_count"]),
    "third step": ("select pgflow.add_step('demo', 'c')", ["step_count"]),
    "chain of three": ("select pgflow.add_step('demo', 'c', '{b}')", ["step_count", "edge_count"]),
    "map": ("update pgflow.steps set step_type = 'map' where step_slug = 'b'", ["map_step"]),
    "required pattern": ("update pgflow.steps set required_input_pattern = '{}' where step_slug = 'a'",
        ["condition"]),
    "forbidden pattern": ("update pgflow.steps set forbidden_input_pattern = '{}' where step_slug = 'b'",
        ["condition"]),
    "skip": ("update pgflow.steps set when_exhausted = 'skip' where step_slug = 'b'", ["when_exhausted"]),
    "skip cascade": ("update pgflow.steps set when_exhausted = 'skip-cascade' where step_slug = 'a'",
        ["when_exhausted"]),
    "attempts of the flow": ("update pgflow.flows set opt_max_attempts = 2", ["max_attempts"]),
    "attempts of a step": ("update pgflow.steps set opt_max_attempts = 2 where step_slug = 'b'",
        ["max_attempts"]),
    "no attempt": ("update pgflow.flows set opt_max_attempts = 0", ["max_attempts"]),
    "timeout of the flow": ("update pgflow.flows set opt_timeout = 3601", ["timeout"]),
    "timeout of a step": ("update pgflow.steps set opt_timeout = 3601 where step_slug = 'a'", ["timeout"]),
    "start delay": ("update pgflow.steps set opt_start_delay = 3601 where step_slug = 'a'", ["start_delay"]),
    "everything": (
        "update pgflow.flows set opt_max_attempts = 3, opt_timeout = 9999;"
        "update pgflow.steps set step_type = 'map', forbidden_input_pattern = '{}', when_exhausted = 'skip',"
        " opt_start_delay = 9999 where step_slug = 'a';"
        "select pgflow.add_step('demo', 'c', '{a}')",
        ["step_count", "edge_count", "map_step", "condition", "when_exhausted", "max_attempts", "timeout",
            "start_delay"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reasons"), OUTSIDE.values(), ids=OUTSIDE)
def test_a_definition_outside_the_envelope_is_rejected(
    shared: Session, change: str, reasons: list[str]
) -> None:
    shared.execute(change)
    with unchanged(shared):
        outcome = shared.start(run=uuid4())
    assert outcome == {"outcome": "rejected", "reasons": reasons}


def test_the_effective_options_of_steps_count_and_not_the_defaults_of_the_flow(shared: Session) -> None:
    shared.execute("update pgflow.flows set opt_max_attempts = 3, opt_timeout = 9999")
    shared.execute("update pgflow.steps set opt_max_attempts = 1, opt_timeout = 5")
    run = shared.started()
    claim = shared.claim(run, "a")
    assert claim["policy"] == {"maxAttempts": 1, "whenExhausted": "fail", "timeout": 5}


def test_a_queue_that_is_not_whole_is_rejected_after_the_definition(session: Session) -> None:
    session.define(queues=True)
    session.execute("drop table pgmq.a_demo__b")
    with unchanged(session):
        assert session.start() == {"outcome": "rejected", "reasons": ["queue"]}
    session.execute("update pgflow.flows set opt_max_attempts = 2")
    with unchanged(session):
        assert session.start() == {"outcome": "rejected", "reasons": ["max_attempts"]}


def test_a_queue_that_is_missing_is_rejected(shared: Session) -> None:
    shared.execute("select pgmq.drop_queue('demo')")
    with unchanged(shared):
        assert shared.start() == {"outcome": "rejected", "reasons": ["queue"]}


def test_a_queue_of_one_flow_alone_is_no_reason_whatever_other_flows_there_are(session: Session) -> None:
    session.define()
    session.define("other")
    assert [session.start(flow)["outcome"] for flow in ("demo", "other")] == ["started"] * 2


def test_a_queue_that_steps_of_two_flows_use_is_rejected_for_both(session: Session) -> None:
    session.define()
    session.define("other")
    session.execute("update pgflow.steps set queue_name = 'demo' where flow_slug = 'other'")
    with unchanged(session):
        outcomes = [session.start(flow) for flow in ("demo", "other")]
    assert outcomes == [{"outcome": "rejected", "reasons": ["queue_of_another_flow"]}] * 2


def test_a_queue_that_bears_the_name_of_another_flow_is_rejected(session: Session) -> None:
    session.define()
    session.execute("select pgflow.create_flow('Other')")
    session.execute("select pgmq.create('other')")
    session.execute("update pgflow.steps set queue_name = 'other' where step_slug = 'b'")
    with unchanged(session):
        assert session.start() == {"outcome": "rejected", "reasons": ["queue_of_another_flow"]}


def test_a_queue_that_is_missing_and_of_another_flow_is_told_both(session: Session) -> None:
    session.define()
    session.execute("select pgflow.create_flow('other')")
    session.execute("update pgflow.steps set queue_name = 'other' where step_slug = 'b'")
    with unchanged(session):
        assert session.start() == {"outcome": "rejected", "reasons": ["queue", "queue_of_another_flow"]}


# -- hints -------------------------------------------------------------------------------------------------


def test_events_that_cannot_be_sent_are_warnings_and_the_run_starts(demo: Session) -> None:
    break_hints(demo)
    warnings: list[str | None] = []
    demo.connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    run = demo.started()
    assert warnings == [
        f"event run:started of run {run} was not sent: no events today",
        f"event step:started of run {run} was not sent: no events today",
    ]
    assert (demo.task(run, "a")["status"], demo.messages()) == ("queued", [1])
