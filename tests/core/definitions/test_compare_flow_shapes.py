"""``pgflow._compare_flow_shapes(p_local, p_db)``: differences between two shapes, as sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb


def step(slug: str = "a", **changes: object) -> dict[str, object]:
    return {
        "slug": slug,
        "stepType": "single",
        "dependencies": [],
        "whenUnmet": "skip",
        "whenExhausted": "fail",
        "requiredInputPattern": {"defined": False},
        "forbiddenInputPattern": {"defined": False},
        **changes,
    }


def without(*keys: str) -> dict[str, object]:
    return {key: content for key, content in step().items() if key not in keys}


@pytest.fixture
def compare(value: Callable[..., Any]) -> Callable[[object, object], list[str]]:
    """Compare two documents, or two lists of steps."""

    def run(local: object, stored: object) -> list[str]:
        documents = [Jsonb({"steps": side} if isinstance(side, list) else side) for side in (local, stored)]
        found: list[str] = value("select pgflow._compare_flow_shapes(%s, %s)", *documents)
        return found

    return run


Compare = Callable[[object, object], list[str]]


def test_equal_shapes_have_no_differences(compare: Compare) -> None:
    shape = [
        step("a"),
        step("b", dependencies=["a"], stepType="map", requiredInputPattern={"defined": True, "value": {}}),
    ]
    assert compare(shape, shape) == []


def test_shapes_without_steps_are_equal(compare: Compare, value: Callable[..., Any]) -> None:
    assert compare([], []) == []
    assert compare({}, {"options": {}}) == []
    assert value("select pgflow._compare_flow_shapes(null, null)") == []
    assert value("select pgflow._compare_flow_shapes(null, '{\"steps\": []}')") == []


def test_a_missing_step_on_the_right_is_named_after_the_count(compare: Compare) -> None:
    assert compare([step("a"), step("b"), step("c")], [step("a")]) == [
        "Step count differs: 3 vs 1",
        "Step at index 1: missing in second shape (first has 'b')",
        "Step at index 2: missing in second shape (first has 'c')",
    ]


def test_a_missing_step_on_the_left_is_named_after_the_count(compare: Compare) -> None:
    assert compare([], [step("a"), step("b")]) == [
        "Step count differs: 0 vs 2",
        "Step at index 0: missing in first shape (second has 'a')",
        "Step at index 1: missing in first shape (second has 'b')",
    ]


@pytest.mark.parametrize("local", ["null", "'{}'"])
def test_a_missing_list_of_steps_counts_as_empty(value: Callable[..., Any], local: str) -> None:
    stored = Jsonb({"steps": [step("a")]})
    assert value(f"select pgflow._compare_flow_shapes({local}, %s)", stored) == [
        "Step count differs: 0 vs 1",
        "Step at index 0: missing in first shape (second has 'a')",
    ]
    assert value(f"select pgflow._compare_flow_shapes(%s, {local})", stored) == [
        "Step count differs: 1 vs 0",
        "Step at index 0: missing in second shape (first has 'a')",
    ]


PATTERN = {"defined": True, "value": {"b": 1, "a": [2, "x"]}}
# jsonb prints shorter keys first.
PRINTED = '{"value": {"a": [2, "x"], "b": 1}, "defined": true}'


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        ({"slug": "a"}, {"slug": "b"}, "slug differs 'a' vs 'b'"),
        ({"slug": "a"}, {"slug": "A"}, "slug differs 'a' vs 'A'"),
        ({"stepType": "single"}, {"stepType": "map"}, "type differs 'single' vs 'map'"),
        ({"dependencies": ["y", "x"]}, {"dependencies": ["x"]}, "dependencies differ [x, y] vs [x]"),
        ({"dependencies": []}, {"dependencies": ["z", "y"]}, "dependencies differ [] vs [y, z]"),
        ({"whenUnmet": "skip"}, {"whenUnmet": "fail"}, "whenUnmet differs 'skip' vs 'fail'"),
        (
            {"whenExhausted": "fail"},
            {"whenExhausted": "skip-cascade"},
            "whenExhausted differs 'fail' vs 'skip-cascade'",
        ),
        (
            {"requiredInputPattern": PATTERN},
            {},
            f"requiredInputPattern differs '{PRINTED}' vs '{{\"defined\": false}}'",
        ),
        (
            {},
            {"forbiddenInputPattern": PATTERN},
            f"forbiddenInputPattern differs '{{\"defined\": false}}' vs '{PRINTED}'",
        ),
    ],
)
def test_each_property_has_its_own_sentence(
    compare: Compare, left: dict[str, object], right: dict[str, object], difference: str
) -> None:
    shapes = [step("same"), step(**left)], [step("same"), step(**right)]  # type: ignore[arg-type]
    assert compare(*shapes) == [f"Step at index 1: {difference}"]


def test_differences_of_a_step_come_in_a_fixed_order_and_steps_by_position(compare: Compare) -> None:
    left = step("a")
    right = {
        "slug": "b",
        "stepType": "map",
        "dependencies": ["x"],
        "whenUnmet": "fail",
        "whenExhausted": "skip",
        "requiredInputPattern": {"defined": True, "value": {}},
        "forbiddenInputPattern": {"defined": True, "value": {}},
    }
    patterns = """'{"defined": false}' vs '{"value": {}, "defined": true}'"""
    assert compare([left, left], [right, step("c"), step("d")]) == [
        "Step count differs: 2 vs 3",
        "Step at index 0: slug differs 'a' vs 'b'",
        "Step at index 0: type differs 'single' vs 'map'",
        "Step at index 0: dependencies differ [] vs [x]",
        "Step at index 0: whenUnmet differs 'skip' vs 'fail'",
        "Step at index 0: whenExhausted differs 'fail' vs 'skip'",
        f"Step at index 0: requiredInputPattern differs {patterns}",
        f"Step at index 0: forbiddenInputPattern differs {patterns}",
        "Step at index 1: slug differs 'a' vs 'c'",
        "Step at index 2: missing in first shape (second has 'd')",
    ]


def test_swapped_steps_differ_at_both_positions(compare: Compare) -> None:
    assert compare([step("a"), step("b")], [step("b"), step("a")]) == [
        "Step at index 0: slug differs 'a' vs 'b'",
        "Step at index 1: slug differs 'b' vs 'a'",
    ]


@pytest.mark.parametrize("key", ["slug", "stepType", "whenUnmet", "whenExhausted"])
def test_a_missing_key_is_no_difference(compare: Compare, key: str) -> None:
    assert compare([without(key)], [step()]) == []
    assert compare([step()], [without(key)]) == []
    assert compare([without(key)], [without(key)]) == []


def test_missing_dependencies_equal_the_empty_list(compare: Compare) -> None:
    assert compare([without("dependencies")], [step()]) == []
    assert compare([step()], [without("dependencies")]) == []
    assert compare([without("dependencies")], [step(dependencies=["x"])]) == [
        "Step at index 0: dependencies differ [] vs [x]"
    ]


def test_the_order_of_dependencies_does_not_matter(compare: Compare) -> None:
    assert compare([step(dependencies=["x", "y"])], [step(dependencies=["y", "x"])]) == []


@pytest.mark.parametrize("key", ["requiredInputPattern", "forbiddenInputPattern"])
def test_a_missing_pattern_key_differs_from_an_undefined_pattern(compare: Compare, key: str) -> None:
    assert compare([without(key)], [step()]) == [
        f"Step at index 0: {key} differs '' vs '{{\"defined\": false}}'"
    ]
    assert compare([step()], [without(key)]) == [
        f"Step at index 0: {key} differs '{{\"defined\": false}}' vs ''"
    ]
    assert compare([without(key)], [without(key)]) == []


def test_options_and_other_keys_are_not_compared(compare: Compare) -> None:
    left = {"options": {"maxAttempts": 1}, "steps": [step(options={"timeout": 1}, note="x")]}
    right = {"options": {"maxAttempts": 2}, "steps": [step(options={"timeout": 2})], "extra": True}
    assert compare(left, right) == []


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({}, "cannot get array length of a non-array"),
        (None, "cannot get array length of a scalar"),
        ("text", "cannot get array length of a scalar"),
        (1, "cannot get array length of a scalar"),
        (True, "cannot get array length of a scalar"),
    ],
)
def test_steps_that_are_no_array_are_refused(
    refused: Callable[..., psycopg.Error], steps: object, message: str
) -> None:
    for call in ("(%s, '{}')", "('{}', %s)"):
        error = refused(f"select pgflow._compare_flow_shapes{call}", Jsonb({"steps": steps}))
        assert (error.sqlstate, error.diag.message_primary) == ("22023", message)
