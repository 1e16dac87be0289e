"""The shape that Python sends is the one that the database keeps."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from pgflow_migrate.worker import Flow
from pgflow_migrate.worker.flow import MODES

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

_numbers = itertools.count(1)

slugs = st.from_regex(r"[a-zA-Z]([a-zA-Z0-9]|_[a-zA-Z0-9]){0,8}", fullmatch=True).filter(lambda s: s != "run")
# Doubles and jsonb's decimal numbers print differently; text without NUL, which jsonb refuses.
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
)
patterns = st.none() | st.dictionaries(st.sampled_from(["x", "Y", "z"]), values, max_size=2)
seconds = st.none() | st.integers(0, 2**31 - 1)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """Flows of up to six steps of any kind."""
    flow = Flow(
        f"flow_{next(_numbers)}",
        max_attempts=draw(seconds),
        base_delay=draw(seconds),
        timeout=draw(st.none() | st.integers(1, 100)),
    )
    names = draw(st.lists(slugs, max_size=6, unique_by=lambda slug: slug.lower()))
    for index, slug in enumerate(names):
        single = draw(st.booleans())
        before = st.sampled_from(names[:index]) if index else st.nothing()
        parents = draw(st.lists(before, max_size=4 if single else 1, unique=True)) if index else []
        options: dict[str, Any] = {
            "depends_on": parents,
            "max_attempts": draw(seconds),
            "base_delay": draw(seconds),
            "start_delay": draw(seconds),
            "timeout": draw(st.none() | st.integers(1, 100)),
            "if_": draw(patterns),
            "if_not": draw(patterns),
            "when_unmet": draw(st.sampled_from(MODES)),
            "when_exhausted": draw(st.sampled_from(MODES)),
        }
        (flow.step if single else flow.map)(slug, **options)(print)
    return flow


def _without_options(shape: dict[str, Any]) -> dict[str, Any]:
    return {"steps": [{k: v for k, v in step.items() if k != "options"} for step in shape["steps"]]}


def _sorted(shape: dict[str, Any]) -> dict[str, Any]:
    """The database sorts dependencies by its own collation."""
    return {"steps": [{**step, "dependencies": sorted(step["dependencies"])} for step in shape["steps"]]}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flow=flows())
def test_a_compiled_flow_has_the_shape_that_was_sent(bench: Bench, flow: Flow) -> None:
    bench.compile(flow)
    kept = bench.value("select pgflow._get_flow_shape(%s)", flow.slug)
    assert _sorted(kept) == _without_options(flow.shape())
    compared = "select pgflow._compare_flow_shapes(%s, pgflow._get_flow_shape(%s))"
    assert bench.value(compared, Jsonb(flow.shape()), flow.slug) == []
    assert Flow.from_shape(flow.slug, flow.shape(), print).shape() == flow.shape()
    assert _without_options(Flow.from_shape(flow.slug, kept, print).shape()) == _without_options(flow.shape())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flow=flows())
def test_options_arrive_in_the_columns(bench: Bench, flow: Flow) -> None:
    bench.compile(flow)
    row = bench.row("select * from pgflow.flows where flow_slug = %s", flow.slug)
    assert (row["opt_max_attempts"], row["opt_base_delay"], row["opt_timeout"]) == (
        3 if flow.max_attempts is None else flow.max_attempts,
        5 if flow.base_delay is None else flow.base_delay,
        60 if flow.timeout is None else flow.timeout,
    )
    rows = bench.rows(
        "select step_slug, opt_max_attempts, opt_base_delay, opt_timeout, opt_start_delay, queue_name"
        " from pgflow.steps where flow_slug = %s order by step_index",
        flow.slug,
    )
    assert [tuple(row.values()) for row in rows] == [
        (step.slug, step.max_attempts, step.base_delay, step.timeout, step.start_delay, flow.queue_name)
        for step in flow.steps
    ]
