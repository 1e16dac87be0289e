"""``pgflow._create_flow_from_shape(p_flow_slug, p_shape)``: a definition from the worker's JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[dict[str, Any]]

CREATE = "select pgflow._create_flow_from_shape('f', %s)"
SHAPE = {
    "steps": [
        {
            "slug": "fetch",
            "stepType": "single",
            "dependencies": [],
            "whenUnmet": "fail",
            "whenExhausted": "skip",
            "requiredInputPattern": {"defined": True, "value": {"url": {}}},
            "forbiddenInputPattern": {"defined": False},
        },
        {
            "slug": "each",
            "stepType": "map",
            "dependencies": ["fetch"],
            "whenUnmet": "skip-cascade",
            "whenExhausted": "skip-cascade",
            "requiredInputPattern": {"defined": False},
            "forbiddenInputPattern": {"defined": True, "value": {}},
        },
        {
            "slug": "count",
            "stepType": "single",
            "dependencies": ["each", "fetch"],
            "whenUnmet": "skip",
            "whenExhausted": "fail",
            "requiredInputPattern": {"defined": False},
            "forbiddenInputPattern": {"defined": False},
        },
    ]
}


def test_the_shape_comes_back_as_it_was(value: Callable[..., Any]) -> None:
    value(CREATE, Jsonb(SHAPE))
    assert value("select pgflow._get_flow_shape('f')") == SHAPE


def test_returns_nothing(value: Callable[..., Any]) -> None:
    assert value("select pg_typeof(pgflow._create_flow_from_shape('f', %s))::text", Jsonb(SHAPE)) == "void"


def test_options_of_the_flow_and_of_steps_are_stored(
    row: Callable[..., dict[str, Any]], value: Callable[..., Any]
) -> None:
    value(
        CREATE,
        Jsonb(
            {
                "options": {"maxAttempts": 1, "baseDelay": 2, "timeout": 3},
                "steps": [
                    {
                        "slug": "s",
                        "options": {"maxAttempts": 4, "baseDelay": 5, "timeout": 6, "startDelay": 7},
                    }
                ],
            }
        ),
    )
    assert row("select opt_max_attempts, opt_base_delay, opt_timeout from pgflow.flows") == {
        "opt_max_attempts": 1,
        "opt_base_delay": 2,
        "opt_timeout": 3,
    }
    assert row("select opt_max_attempts, opt_base_delay, opt_timeout, opt_start_delay from pgflow.steps") == {
        "opt_max_attempts": 4,
        "opt_base_delay": 5,
        "opt_timeout": 6,
        "opt_start_delay": 7,
    }


def test_options_may_be_strings_of_digits(
    row: Callable[..., dict[str, Any]], value: Callable[..., Any]
) -> None:
    value(
        CREATE,
        Jsonb({"options": {"timeout": "30"}, "steps": [{"slug": "s", "options": {"startDelay": "9"}}]}),
    )
    assert row("select opt_timeout from pgflow.flows") == {"opt_timeout": 30}
    assert row("select opt_start_delay from pgflow.steps") == {"opt_start_delay": 9}


def test_what_is_missing_gets_the_defaults(
    row: Callable[..., dict[str, Any]], value: Callable[..., Any]
) -> None:
    value(CREATE, Jsonb({"steps": [{"slug": "s"}]}))
    flow = row("select opt_max_attempts, opt_base_delay, opt_timeout from pgflow.flows")
    assert list(flow.values()) == [3, 5, 60]
    assert row("select * from pgflow.steps") == {
        "flow_slug": "f",
        "step_slug": "s",
        "step_type": "single",
        "step_index": 0,
        "deps_count": 0,
        "opt_max_attempts": None,
        "opt_base_delay": None,
        "opt_timeout": None,
        "created_at": value("select now()"),
        "opt_start_delay": None,
        "required_input_pattern": None,
        "forbidden_input_pattern": None,
        "when_unmet": "skip",
        "when_exhausted": "fail",
    }


def test_options_set_in_part_leave_the_others_at_their_defaults(
    row: Callable[..., dict[str, Any]], value: Callable[..., Any]
) -> None:
    value(CREATE, Jsonb({"options": {"baseDelay": 0}, "steps": []}))
    flow = row("select opt_max_attempts, opt_base_delay, opt_timeout from pgflow.flows")
    assert list(flow.values()) == [3, 0, 60]


def test_a_pattern_that_is_not_defined_is_not_stored_whatever_its_value(
    row: Callable[..., dict[str, Any]], value: Callable[..., Any]
) -> None:
    undefined = {"defined": False, "value": {"x": 1}}
    step = {"slug": "s", "requiredInputPattern": undefined, "forbiddenInputPattern": undefined}
    value(CREATE, Jsonb({"steps": [step]}))
    assert row("select required_input_pattern as r, forbidden_input_pattern as f from pgflow.steps") == {
        "r": None,
        "f": None,
    }


@pytest.mark.parametrize("shape", [{}, {"steps": []}, {"options": {"timeout": 60}}])
def test_without_steps_only_the_flow_and_its_queue_are_made(
    rows: Callable[..., list[dict[str, Any]]], value: Callable[..., Any], shape: dict[str, object]
) -> None:
    value(CREATE, Jsonb(shape))
    assert value("select flow_slug from pgflow.flows") == "f"
    assert value("select queue_name from pgmq.list_queues()") == "f"
    assert rows("select from pgflow.steps") == []


@pytest.mark.parametrize("pattern", ["requiredInputPattern", "forbiddenInputPattern"])
@pytest.mark.parametrize("content", [None, [], "text", 1, False])
def test_a_defined_pattern_that_is_no_object_is_refused(
    violates: Callable[..., tuple[str, str]], pattern: str, content: object
) -> None:
    shape = {"steps": [{"slug": "ok"}, {"slug": "s", pattern: {"defined": True, "value": content}}]}
    column = {"requiredInputPattern": "required_input_pattern"}.get(pattern, "forbidden_input_pattern")
    assert violates(CREATE, Jsonb(shape)) == ("23514", f"{column}_is_object")


def test_steps_must_come_after_their_dependencies(violates: Callable[..., tuple[str, str]]) -> None:
    shape = {"steps": [{"slug": "b", "dependencies": ["a"]}, {"slug": "a"}]}
    assert violates(CREATE, Jsonb(shape)) == ("23503", "deps_flow_slug_dep_slug_fkey")


def test_dependencies_keep_the_given_order_in_messages(refused: Callable[..., psycopg.Error]) -> None:
    shape = {
        "steps": [
            {"slug": "a"},
            {"slug": "b"},
            {"slug": "m", "stepType": "map", "dependencies": ["b", "a"]},
        ]
    }
    error = refused(CREATE, Jsonb(shape))
    assert (error.sqlstate, error.diag.message_primary) == (
        "P0001",
        'Map step "m" can have at most one dependency, but 2 were provided: b, a',
    )


def test_an_existing_flow_is_not_updated_but_missing_steps_are_added(
    db: Connection, rows: Callable[..., list[dict[str, Any]]], value: Callable[..., Any]
) -> None:
    db.execute("select pgflow.create_flow('f', 1, 1, 1)")
    db.execute("select pgflow.add_step('f', 'a', timeout => 1)")
    value(
        CREATE,
        Jsonb(
            {
                "options": {"timeout": 99},
                "steps": [
                    {"slug": "a", "stepType": "map", "whenUnmet": "fail", "options": {"timeout": 99}},
                    {"slug": "b", "dependencies": ["a"]},
                ],
            }
        ),
    )
    assert value("select opt_timeout from pgflow.flows") == 1
    found = rows(
        "select step_slug, step_type, step_index, opt_timeout, when_unmet from pgflow.steps order by 3"
    )
    assert [tuple(step.values()) for step in found] == [
        ("a", "single", 0, 1, "skip"),
        ("b", "single", 1, None, "skip"),
    ]
