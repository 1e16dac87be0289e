"""The structural freeze, as users of protocol 1 meet it."""

from __future__ import annotations

import json
import re

import pytest
from psycopg.errors import ObjectNotInPrerequisiteState, UniqueViolation
from tests.dirty_runs.isolation.conftest import World
from tests.dirty_runs.protocol import Row, Session

HELD = (
    r'the definition of flow "demo" is frozen: run [0-9a-f-]{36} of protocol 2: '
    r"(it is live|its replay evidence is kept until .*)"
)
LOCAL = (
    "select set_config('app.settings.jwt_secret',"
    " 'super-secret-jwt-token-with-at-least-32-characters-long', false)"
)
CAPABILITIES = '{"queueIdentity": true}'


def step_shape(slug: str, *dependencies: str, **options: int) -> dict[str, object]:
    """A single step as a worker describes it."""
    nothing = {"defined": False}
    return {
        "slug": slug, "stepType": "single", "dependencies": list(dependencies), "whenUnmet": "skip",
        "whenExhausted": "fail", "requiredInputPattern": nothing, "forbiddenInputPattern": nothing,
        "options": options,
    }  # fmt: skip


def shape(*steps: dict[str, object]) -> str:
    """The shape of a flow as ``Session.define`` makes it, in JSON."""
    return json.dumps({"steps": steps, "options": {"maxAttempts": 1, "baseDelay": 0, "timeout": 60}})


SAME = shape(step_shape("a"), step_shape("b", "a", startDelay=0))
OTHER = shape(step_shape("a"), step_shape("b", "a", startDelay=0), step_shape("c", "b"))


@pytest.mark.parametrize(
    "change",
    [
        "select pgflow.add_step('demo', 'c')",
        "select pgflow.add_step('demo', 'c', '{a}')",
        "select pgflow.add_step('demo', 'a', '{b}')",
        f"select pgflow._create_flow_from_shape('demo', '{OTHER}')",
        "insert into pgflow.steps (flow_slug, step_slug, step_index, queue_name)"
        " values ('demo', 'c', 2, 'demo')",
        "insert into pgflow.deps (flow_slug, dep_slug, step_slug) values ('demo', 'b', 'a')",
        "update pgflow.flows set opt_timeout = 61 where flow_slug = 'demo'",
        "update pgflow.flows set opt_max_attempts = 2 where flow_slug = 'demo'",
        "update pgflow.steps set queue_name = 'plain' where (flow_slug, step_slug) = ('demo', 'b')",
        "update pgflow.steps set opt_start_delay = 1 where (flow_slug, step_slug) = ('demo', 'b')",
        "update pgflow.steps set when_exhausted = 'skip' where (flow_slug, step_slug) = ('demo', 'a')",
        "update pgflow.steps set required_input_pattern = '{}' where (flow_slug, step_slug) = ('demo', 'a')",
        "update pgflow.steps set step_type = 'map' where (flow_slug, step_slug) = ('demo', 'b')",
        "update pgflow.steps set flow_slug = 'demo', step_slug = 'c', step_index = 2"
        " where (flow_slug, step_slug) = ('spare', 'c')",
        "update pgflow.deps set dep_slug = 'b', step_slug = 'a' where flow_slug = 'demo'",
        "update pgflow.deps set flow_slug = 'demo', dep_slug = 'b', step_slug = 'a'"
        " where flow_slug = 'spare'",
        "delete from pgflow.deps where flow_slug = 'demo'",
        "delete from pgflow.steps where flow_slug = 'demo'",
        "delete from pgflow.flows where flow_slug = 'demo'",
    ],
)
def test_a_held_definition_is_frozen(demo_world: World, change: str) -> None:
    demo_world.session.define("spare")
    demo_world.session.execute("select pgflow.add_step('spare', 'c')")
    with demo_world.unchanged():
        error = demo_world.error(change)
        assert error.sqlstate == "55000"
        assert re.fullmatch(HELD, str(error.diag.message_primary))
        assert error.diag.message_hint == "Nothing was changed."


def test_a_definition_that_is_there_is_returned_as_it_is(demo_world: World) -> None:
    session = demo_world.session
    with demo_world.unchanged():
        assert session.row("select * from pgflow.create_flow('demo', 7, 7, 7)") == session.row(
            "select * from pgflow.flows where flow_slug = 'demo'"
        )
        assert session.row("select * from pgflow.add_step('demo', 'b', '{a}', 7)") == session.row(
            "select * from pgflow.steps where (flow_slug, step_slug) = ('demo', 'b')"
        )
        session.execute("select pgflow._create_flow_from_shape('demo', %s)", SAME)
        session.execute("update pgflow.steps set opt_timeout = opt_timeout where flow_slug = 'demo'")


def test_flows_without_runs_of_protocol_2_are_changed_as_ever(demo_world: World) -> None:
    session = demo_world.session
    session.execute("select pgflow.add_step('plain', 'c', '{b}')")
    session.execute(
        "update pgflow.steps set queue_name = 'demo' where (flow_slug, step_slug) = ('plain', 'c')"
    )
    session.execute("update pgflow.flows set opt_timeout = 61 where flow_slug = 'plain'")
    session.execute("delete from pgflow.deps where (flow_slug, step_slug) = ('plain', 'c')")
    session.execute("delete from pgflow.steps where (flow_slug, step_slug) = ('plain', 'c')")
    assert session.rows("select step_slug from pgflow.steps where flow_slug = 'plain' order by 1") == [
        {"step_slug": "a"},
        {"step_slug": "b"},
    ]


def compiled(session: Session, given: str) -> Row:
    """What a worker is told when it starts."""
    found: Row = session.value("select pgflow.ensure_flow_compiled('demo', %s, %s)", given, CAPABILITIES)
    return found


def test_compilation_does_not_touch_a_held_flow(demo_world: World) -> None:
    session = demo_world.session
    with demo_world.unchanged():
        assert compiled(session, SAME)["status"] == "verified"
        assert compiled(session, OTHER)["status"] == "mismatch"
        session.execute(LOCAL)
        assert compiled(session, SAME)["status"] == "verified"
        with pytest.raises(ObjectNotInPrerequisiteState) as caught, session.connection.transaction():
            compiled(session, OTHER)
    session.execute("reset app.settings.jwt_secret")
    assert re.fullmatch(
        r'flow "demo" cannot be deleted: run [0-9a-f-]{36} of protocol 2: '
        r"(it is live|its replay evidence is kept until .*)",
        str(caught.value.diag.message_primary),
    )
    assert caught.value.diag.message_hint == "Nothing was deleted."


def test_a_local_stack_compiles_a_released_flow_anew(session: Session) -> None:
    session.define()
    run = session.started()
    session.fail(session.claimed(run, "a"))
    session.release(run)
    session.execute(LOCAL)
    assert compiled(session, OTHER)["status"] == "recompiled"
    assert session.rows("select from pgflow.runs") == []
    assert session.messages() == session.archived() == []
    assert session.value("select count(*) from pgflow.steps") == 3


@pytest.mark.parametrize("start", ["start_flow", "start_flow_with_states"])
def test_a_start_of_protocol_1_does_not_take_over_a_run(demo_world: World, start: str) -> None:
    with demo_world.unchanged():
        for run in demo_world.runs.values():
            error = demo_world.error(f"select pgflow.{start}('demo', '{{}}', %(run)s)", {"run": run})
            assert isinstance(error, UniqueViolation)
            assert error.diag.constraint_name == "runs_pkey"


def test_a_start_of_protocol_1_makes_a_run_of_protocol_1_also_in_a_held_flow(demo_world: World) -> None:
    session = demo_world.session
    (run,) = session.rows("select * from pgflow.start_flow('demo', '{}')")
    assert session.rows("select from pgflow.run_work where run_id = %s", run["run_id"]) == []
    assert session.request(run["run_id"]) == {"outcome": "wrong_protocol", "protocol_version": 1}
