"""``pgflow._get_flow_shape(p_flow_slug)``: a stored definition as the worker's JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]

UNDEFINED = {"defined": False}


def test_an_unknown_flow_and_a_flow_without_steps_have_no_steps(value: Callable[..., Any]) -> None:
    value("select pgflow.create_flow('empty')")
    assert value("select pgflow._get_flow_shape('empty')") == {"steps": []}
    assert value("select pgflow._get_flow_shape('ghost')") == {"steps": []}


def test_steps_come_in_definition_order_with_exactly_seven_keys(
    db: Connection, value: Callable[..., Any]
) -> None:
    db.execute("select pgflow.create_flow('f', 1, 2, 3)")
    db.execute("select pgflow.add_step('f', 'zulu', max_attempts => 1, base_delay => 2, start_delay => 3)")
    db.execute(
        "select pgflow.add_step('f', 'mike', timeout => 4, when_unmet => 'fail', when_exhausted => 'skip')"
    )
    db.execute("select pgflow.add_step('f', 'alpha', array['zulu', 'mike'], when_unmet => 'skip-cascade')")
    db.execute("select pgflow.add_step('f', 'each', array['alpha'], step_type => 'map')")
    # Neither the table's order nor an index may happen to be the right order.
    db.execute("update pgflow.steps set opt_timeout = 5 where step_slug = 'zulu'")
    db.execute("set local enable_indexscan = off")
    db.execute("set local enable_bitmapscan = off")
    assert value("select pgflow._get_flow_shape('f')") == {
        "steps": [
            {
                "slug": "zulu",
                "stepType": "single",
                "dependencies": [],
                "whenUnmet": "skip",
                "whenExhausted": "fail",
                "requiredInputPattern": UNDEFINED,
                "forbiddenInputPattern": UNDEFINED,
            },
            {
                "slug": "mike",
                "stepType": "single",
                "dependencies": [],
                "whenUnmet": "fail",
                "whenExhausted": "skip",
                "requiredInputPattern": UNDEFINED,
                "forbiddenInputPattern": UNDEFINED,
            },
            {
                "slug": "alpha",
                "stepType": "single",
                "dependencies": ["mike", "zulu"],
                "whenUnmet": "skip-cascade",
                "whenExhausted": "fail",
                "requiredInputPattern": UNDEFINED,
                "forbiddenInputPattern": UNDEFINED,
            },
            {
                "slug": "each",
                "stepType": "map",
                "dependencies": ["alpha"],
                "whenUnmet": "skip",
                "whenExhausted": "fail",
                "requiredInputPattern": UNDEFINED,
                "forbiddenInputPattern": UNDEFINED,
            },
        ]
    }


@pytest.mark.parametrize("pattern", ["{}", '{"a": null}', '{"a": {"b": [1, "x"]}}'])
def test_a_pattern_is_wrapped_so_that_none_differs_from_any_value(
    db: Connection, value: Callable[..., Any], pattern: str
) -> None:
    db.execute("select pgflow.create_flow('f')")
    db.execute("select pgflow.add_step('f', 's', required_input_pattern => %s::jsonb)", (pattern,))
    db.execute("select pgflow.add_step('f', 't', forbidden_input_pattern => %s::jsonb)", (pattern,))
    first, second = value("select pgflow._get_flow_shape('f')")["steps"]
    wrapped = {"defined": True, "value": value("select %s::jsonb", pattern)}
    assert (first["requiredInputPattern"], first["forbiddenInputPattern"]) == (wrapped, UNDEFINED)
    assert (second["requiredInputPattern"], second["forbiddenInputPattern"]) == (UNDEFINED, wrapped)


def test_flows_do_not_mix(db: Connection, value: Callable[..., Any]) -> None:
    for flow in ("f", "g"):
        db.execute("select pgflow.create_flow(%s)", (flow,))
        db.execute("select pgflow.add_step(%s, 'a')", (flow,))
        db.execute("select pgflow.add_step(%s, %s, array['a'])", (flow, f"only_{flow}"))
    steps = value("select pgflow._get_flow_shape('g')")["steps"]
    assert [(step["slug"], step["dependencies"]) for step in steps] == [("a", []), ("only_g", ["a"])]
