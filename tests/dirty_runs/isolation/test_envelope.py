"""The envelope in Python and in SQL: one judgement."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb
from tests.dirty_runs.isolation.conftest import World
from tests.dirty_runs.protocol import Session

from pgflow_migrate.dirty_runs.envelope import faults
from pgflow_migrate.dirty_runs.limits import limit
from pgflow_migrate.worker import Flow
from pgflow_migrate.worker.flow import MODES

_numbers = itertools.count(1)

FAULTS = (
    "step_count", "edge_count", "map_step", "condition", "when_exhausted", "max_attempts", "timeout",
    "start_delay", "definition_bytes",
)  # fmt: skip


def rarely(usual: Any, *unusual: Any) -> st.SearchStrategy[Any]:
    """Mostly what the envelope allows."""
    return st.sampled_from([usual] * 6 + list(unusual))


attempts = rarely(None, 1, 0, 2, 3)
timeouts = rarely(None, 1, 60, 3600, 3601, 2**31 - 1)
patterns = rarely(None, {}, {"x": 1})


def slug(draw: st.DrawFn, prefix: str) -> str:
    """A slug, long now and then, in whose order collations differ."""
    text: str = draw(st.sampled_from(["a", "B", "c1", "Z9"]))
    length: int = draw(rarely(0, 60, 100, 118))
    return text + prefix + "x" * length


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """Flows in the envelope, and by one or several properties outside."""
    flow = Flow(
        f"flow_{next(_numbers)}",
        max_attempts=draw(st.sampled_from([1] * 6 + [None, 2])),
        base_delay=draw(rarely(None, 0)),
        timeout=draw(timeouts),
    )
    known: list[str] = []
    for index in range(draw(rarely(2, 0, 1, 3, 4, 5))):
        name = slug(draw, f"s{index}")
        kind = draw(rarely("single", "map"))
        if index == 1 and draw(rarely(True, False)):
            parents = list(known)
        else:
            parents = (
                draw(st.lists(st.sampled_from(known), unique=True, max_size=2)) if known and index > 1 else []
            )
        (flow.map if kind == "map" else flow.step)(
            name,
            depends_on=parents[:1] if kind == "map" else parents,
            max_attempts=draw(attempts),
            timeout=draw(timeouts),
            start_delay=draw(rarely(None, 0, 3600, 3601)),
            if_=draw(patterns),
            if_not=draw(patterns),
            when_exhausted=draw(rarely("fail", *MODES)),
            when_unmet=draw(st.sampled_from(MODES)),
        )(lambda context: None)
        known.append(name)
    return flow


def compile_(session: Session, flow: Flow) -> None:
    """As a worker does when it starts."""
    session.execute(
        "select pgflow.ensure_flow_compiled(%s, %s, '{\"queueIdentity\": true}')",
        flow.slug,
        Jsonb(flow.shape()),
    )


def define(session: Session, flow: Flow) -> None:
    """By the functions that people call."""
    session.execute(
        "select pgflow.create_flow(%s, %s, %s, %s)",
        flow.slug, flow.max_attempts, flow.base_delay, flow.timeout,
    )  # fmt: skip
    for step in flow.steps:
        session.execute(
            "select pgflow.add_step(%s, %s, %s::text[], %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            flow.slug, step.slug, list(step.depends_on), step.max_attempts, step.base_delay, step.timeout,
            step.start_delay, step.step_type, None if step.if_ is None else Jsonb(dict(step.if_)),
            None if step.if_not is None else Jsonb(dict(step.if_not)), step.when_unmet, step.when_exhausted,
        )  # fmt: skip


def plain(**options: Any) -> Flow:
    """The smallest flow of the envelope."""
    flow = Flow(f"flow_{next(_numbers)}", max_attempts=1)
    flow.step("a")(lambda context: None)
    flow.step("b", depends_on="a", **options)(lambda context: None)
    return flow


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(flow=flows(), compiled=st.booleans())
@example(flow=plain(), compiled=True)
@example(flow=plain(start_delay=3600, timeout=3600), compiled=False)
def test_the_worker_judges_a_flow_as_the_database_does(demo_world: World, flow: Flow, compiled: bool) -> None:
    session = demo_world.session
    with session.connection.transaction(force_rollback=True):
        (compile_ if compiled else define)(session, flow)
        judged = faults(flow)
        assert session.value("select faults from pgflow._v2_definition(%s)", flow.slug) == list(judged)
        started = session.start(flow.slug)
        if judged:
            assert started == {"outcome": "rejected", "reasons": list(judged)}
        else:
            assert started["outcome"] == "started"
            definition = session.value("select definition from pgflow._v2_definition(%s)", flow.slug)
            assert {step["queue"] for step in definition["steps"]} == {flow.queue_name}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone(demo_world: World, fault: str) -> None:
    outside: dict[str, Any] = {
        "condition": {"if_": {}},
        "when_exhausted": {"when_exhausted": "skip"},
        "max_attempts": {"max_attempts": 0},
        "timeout": {"timeout": limit("timeout_seconds_max") + 1},
        "start_delay": {"start_delay": limit("start_delay_seconds_max") + 1},
    }
    flow = plain(**outside.get(fault, {}))
    if fault in ("step_count", "edge_count", "map_step", "definition_bytes"):
        flow = Flow(f"flow_{next(_numbers)}", max_attempts=1)
        flow.step("a" * (128 if fault == "definition_bytes" else 1))(lambda context: None)
        (first,) = flow.steps
        (flow.map if fault == "map_step" else flow.step)(
            "b" * (128 if fault == "definition_bytes" else 1),
            depends_on=() if fault == "edge_count" else first.slug,
        )(lambda context: None)
        if fault == "step_count":
            flow.step("c")(lambda context: None)
    assert faults(flow) == (fault,)
    compile_(demo_world.session, flow)
    assert demo_world.session.value("select faults from pgflow._v2_definition(%s)", flow.slug) == [fault]


def test_the_size_is_judged_to_the_byte(demo_world: World) -> None:
    session = demo_world.session
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for length in range(40, 129):
        flow = Flow("sized", max_attempts=1)
        flow.step("a" * length)(lambda context: None)
        flow.step("b" * 100, depends_on="a" * length)(lambda context: None)
        with session.connection.transaction(force_rollback=True):
            define(session, flow)
            size = session.value(
                "select pgflow._v2_bytes(pgflow._canonical_json(definition))"
                " from pgflow._v2_definition('sized')"
            )
        sizes[faults(flow) == ()].append(size)
    assert max(sizes[True]) <= limit("definition_bytes") < min(sizes[False])
