"""Flow definitions: what is allowed, and the shape that is sent."""

from __future__ import annotations

from typing import Any

import pytest

from pgflow_migrate.worker import Context, Flow


def work(context: Context) -> None:
    """A handler."""


def test_a_flows_queue_is_its_slug_in_lower_case() -> None:
    flow = Flow("OrderIntake")
    assert (flow.slug, flow.queue_name) == ("OrderIntake", "orderintake")


def test_a_decorated_handler_stays_the_function_it_was() -> None:
    flow = Flow("orders")
    assert flow.step("load")(work) is work
    assert flow.map("charge", depends_on="load")(work) is work
    assert [(step.slug, step.step_type, step.depends_on) for step in flow.steps] == [
        ("load", "single", ()),
        ("charge", "map", ("load",)),
    ]
    assert flow.handler("charge") is work
    assert repr(flow) == "<Flow orders: load, charge>"


def test_the_shape_has_the_keys_that_the_database_compares() -> None:
    flow = Flow("orders")
    flow.step("b")(work)
    flow.step("a")(work)
    flow.step("report", depends_on=["b", "a"], if_={"a": {"ok": True}}, when_unmet="fail")(work)
    nothing = {"defined": False}
    common = {"whenUnmet": "skip", "whenExhausted": "fail", "requiredInputPattern": nothing}
    root = {"stepType": "single", "dependencies": [], **common, "forbiddenInputPattern": nothing}
    assert flow.shape() == {
        "steps": [
            {"slug": "b", **root},
            {"slug": "a", **root},
            {
                "slug": "report",
                "stepType": "single",
                "dependencies": ["a", "b"],
                "whenUnmet": "fail",
                "whenExhausted": "fail",
                "requiredInputPattern": {"defined": True, "value": {"a": {"ok": True}}},
                "forbiddenInputPattern": nothing,
            },
        ]
    }


def test_options_are_in_the_shape_only_when_they_are_set() -> None:
    flow = Flow("orders", max_attempts=0, timeout=7)
    flow.step("load", base_delay=0, start_delay=4)(work)
    flow.step("rest")(work)
    shape = flow.shape()
    assert shape["options"] == {"maxAttempts": 0, "timeout": 7}
    assert shape["steps"][0]["options"] == {"baseDelay": 0, "startDelay": 4}
    assert "options" not in shape["steps"][1]


def test_a_flow_made_from_a_shape_has_that_shape() -> None:
    flow = Flow("orders", max_attempts=2, base_delay=3, timeout=4)
    flow.step("load", max_attempts=5, base_delay=6, timeout=7, start_delay=8)(work)
    flow.map("charge", depends_on="load", if_={"x": 1}, if_not={}, when_exhausted="skip-cascade")(work)
    again = Flow.from_shape("orders", flow.shape(), work)
    assert again.shape() == flow.shape()
    assert again.steps == flow.steps


def test_a_flow_from_a_shape_takes_a_handler_for_each_step() -> None:
    flow = Flow("orders")
    flow.step("load")(work)
    other = Flow.from_shape("orders", flow.shape(), {"load": print})
    assert other.handler("load") is print
    with pytest.raises(KeyError, match="load"):
        Flow.from_shape("orders", flow.shape(), {})


def test_a_pattern_is_a_copy_of_what_was_given() -> None:
    flow = Flow("orders")
    pattern = {"vip": True}
    flow.step("gift", if_=pattern)(work)
    pattern["vip"] = False
    assert flow.shape()["steps"][0]["requiredInputPattern"]["value"] == {"vip": True}


@pytest.mark.parametrize(
    ("slug", "sentence"),
    [
        ("_orders", 'The slug "_orders" begins with "_".'),
        ("orders_", 'The slug "orders_" ends with "_".'),
        ("or__ders", 'The slug "or__ders" contains "__", which belongs to generated queue names.'),
        ("run", 'The slug "run" is a reserved word.'),
        ("", 'The slug "" is empty.'),
        ("a" * 48, f'The slug "{"a" * 48}" is longer than the 47 characters of a queue name.'),
    ],
)
def test_a_flow_slug_that_is_not_allowed_is_refused(slug: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        Flow(slug)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("slug", "options", "sentence"),
    [
        ("_b", {}, 'Step "_b" of flow "f": the slug begins with "_".'),
        ("load", {}, 'Step "load" of flow "f" is there already.'),
        ("LOAD", {}, 'Step "LOAD" of flow "f" is there already as "load", which differs in case only.'),
        (
            "b",
            {"depends_on": "a"},
            'Step "b" of flow "f" depends on "a", which is not defined before it.',
        ),
        (
            "b",
            {"depends_on": ["Load"]},
            'Step "b" of flow "f" depends on "Load", which is not defined before it.',
        ),
        ("b", {"depends_on": ["b"]}, 'Step "b" of flow "f" depends on "b", which is not defined before it.'),
        ("b", {"depends_on": ["load", "load"]}, 'Step "b" of flow "f" depends on "load" twice.'),
        (
            "b",
            {"max_attempts": -1},
            'Step "b" of flow "f": max_attempts is -1, not a whole number from 0 to 2147483647.',
        ),
        (
            "b",
            {"timeout": 0},
            'Step "b" of flow "f": timeout is 0, not a whole number from 1 to 2147483647.',
        ),
        (
            "b",
            {"base_delay": 2**31},
            'Step "b" of flow "f": base_delay is 2147483648, not a whole number from 0 to 2147483647.',
        ),
        (
            "b",
            {"start_delay": True},
            'Step "b" of flow "f": start_delay is True, not a whole number from 0 to 2147483647.',
        ),
        (
            "b",
            {"when_unmet": "never"},
            'Step "b" of flow "f": when_unmet is \'never\', not one of fail, skip, skip-cascade.',
        ),
        ("b", {"if_": [1]}, 'Step "b" of flow "f": if_ is [1], not a JSON object.'),
        (
            "b",
            {"if_not": {"x": {1}}},
            'Step "b" of flow "f": if_not is no JSON: Object of type set is not JSON serializable.',
        ),
    ],
)
def test_a_step_that_is_not_allowed_is_refused(slug: str, options: dict[str, Any], sentence: str) -> None:
    flow = Flow("f")
    flow.step("load")(work)
    with pytest.raises(ValueError) as caught:
        flow.step(slug, **options)(work)
    assert str(caught.value) == sentence
    assert [step.slug for step in flow.steps] == ["load"]


def test_a_map_of_two_dependencies_is_refused() -> None:
    flow = Flow("f")
    flow.step("a")(work)
    flow.step("b")(work)
    with pytest.raises(
        ValueError, match=r'^Step "c" of flow "f" is a map and can depend on one step, not on 2\.$'
    ):
        flow.map("c", depends_on=["a", "b"])


def test_an_async_handler_is_refused() -> None:
    async def later(context: Context) -> None:
        """Nobody would await it."""

    with pytest.raises(ValueError, match=r'^Step "a" of flow "f" needs a plain function as its handler\.$'):
        Flow("f").step("a")(later)


def test_an_option_of_the_flow_that_is_not_allowed_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r'^Flow "f": timeout is 0, not a whole number from 1 to 2147483647\.$'
    ):
        Flow("f", timeout=0)


def test_a_decorator_that_was_kept_cannot_add_the_step_twice() -> None:
    flow = Flow("f")
    add = flow.step("a")
    add(work)
    with pytest.raises(ValueError, match="is there already"):
        add(work)


def test_a_handler_can_be_called_without_a_worker() -> None:
    context = Context("f", "run", "a", 0, "f", "1", {"x": 1}, read_flow_input=lambda: {"y": 2})
    assert (context.input, context.flow_input) == ({"x": 1}, {"y": 2})
    with pytest.raises(AttributeError):
        context.input = {}  # type: ignore[misc]
