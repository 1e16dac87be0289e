"""``pgflow.add_step(...)``: a step and its dependencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]

COLUMNS = [
    "flow_slug",
    "step_slug",
    "step_type",
    "step_index",
    "deps_count",
    "opt_max_attempts",
    "opt_base_delay",
    "opt_timeout",
    "created_at",
    "opt_start_delay",
    "required_input_pattern",
    "forbidden_input_pattern",
    "when_unmet",
    "when_exhausted",
]


@pytest.fixture(autouse=True)
def flow(db: Connection) -> None:
    """Flow ``f`` with the steps ``a`` and ``b``."""
    db.execute("select pgflow.create_flow('f')")
    db.execute("select pgflow.add_step('f', 'a')")
    db.execute("select pgflow.add_step('f', 'b')")


def test_defaults(row: Callable[..., dict[str, Any]]) -> None:
    step = row("select * from pgflow.add_step('f', 's')")
    assert step == row("select * from pgflow.steps where step_slug = 's'")
    assert list(step) == COLUMNS
    assert step == {
        "flow_slug": "f",
        "step_slug": "s",
        "step_type": "single",
        "step_index": 2,
        "deps_count": 0,
        "opt_max_attempts": None,
        "opt_base_delay": None,
        "opt_timeout": None,
        "created_at": row("select now()")["now"],
        "opt_start_delay": None,
        "required_input_pattern": None,
        "forbidden_input_pattern": None,
        "when_unmet": "skip",
        "when_exhausted": "fail",
    }


def test_every_argument_is_stored(
    row: Callable[..., dict[str, Any]], rows: Callable[..., list[dict[str, Any]]]
) -> None:
    step = row(
        """
        select * from pgflow.add_step(
          flow_slug => 'f', step_slug => 's', deps_slugs => array['b'], max_attempts => 0, base_delay => 1,
          timeout => 2, start_delay => 3, step_type => 'map', required_input_pattern => '{"x": 1}',
          forbidden_input_pattern => '{}', when_unmet => 'fail', when_exhausted => 'skip-cascade')
        """
    )
    assert [step[name] for name in COLUMNS if name != "created_at"] == [
        *("f", "s", "map", 2, 1, 0, 1, 2, 3, {"x": 1}, {}, "fail", "skip-cascade")
    ]
    assert rows("select flow_slug, dep_slug, step_slug from pgflow.deps") == [
        {"flow_slug": "f", "dep_slug": "b", "step_slug": "s"}
    ]


def test_arguments_come_in_the_documented_order(row: Callable[..., dict[str, Any]]) -> None:
    step = row(
        "select * from pgflow.add_step('f', 's', array['a'], 1, 2, 3, 4, 'map', '{\"r\": 1}', '{\"n\": 2}',"
        " 'skip-cascade', 'skip')"
    )
    assert (step["opt_max_attempts"], step["opt_base_delay"], step["opt_timeout"]) == (1, 2, 3)
    assert (step["opt_start_delay"], step["step_type"]) == (4, "map")
    assert (step["required_input_pattern"], step["forbidden_input_pattern"]) == ({"r": 1}, {"n": 2})
    assert (step["when_unmet"], step["when_exhausted"]) == ("skip-cascade", "skip")


def test_null_dependencies_are_none_and_a_null_type_is_single(
    row: Callable[..., dict[str, Any]], value: Callable[..., Any]
) -> None:
    step = row("select * from pgflow.add_step('f', 's', deps_slugs => null, step_type => null)")
    assert (step["deps_count"], step["step_type"]) == (0, "single")
    assert value("select count(*) from pgflow.deps") == 0


@pytest.mark.parametrize(("dependencies", "count"), [("null", 0), ("'{}'", 0), ("'{a}'", 1)])
def test_a_map_may_have_no_or_one_dependency(
    row: Callable[..., dict[str, Any]], dependencies: str, count: int
) -> None:
    step = row(f"select * from pgflow.add_step('f', 'm', {dependencies}, step_type => 'map')")
    assert (step["step_type"], step["deps_count"]) == ("map", count)


@pytest.mark.parametrize(
    ("dependencies", "listed"),
    [(["a", "b"], "2 were provided: a, b"), (["b", "a", "b"], "3 were provided: b, a, b")],
)
def test_a_map_with_more_dependencies_is_refused(
    refused: Callable[..., psycopg.Error], dependencies: list[str], listed: str
) -> None:
    error = refused("select pgflow.add_step('f', 'm', %s::text[], step_type => 'map')", dependencies)
    assert error.sqlstate == "P0001"
    assert error.diag.message_primary == f'Map step "m" can have at most one dependency, but {listed}'


def test_the_map_rule_is_checked_before_everything_else(refused: Callable[..., psycopg.Error]) -> None:
    error = refused(
        "select pgflow.add_step('ghost', 'run', '{x,y}', -1, step_type => 'map', when_unmet => 'never')"
    )
    assert error.diag.message_primary == (
        'Map step "run" can have at most one dependency, but 2 were provided: x, y'
    )


def test_step_indexes_count_up_from_zero_in_each_flow(
    db: Connection, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    db.execute("select pgflow.create_flow('g')")
    db.execute("select pgflow.add_step('g', 'b')")
    db.execute("select pgflow.add_step('f', 'c')")
    db.execute("select pgflow.add_step('g', 'a')")
    found = rows("select flow_slug, step_slug, step_index from pgflow.steps order by 1, 3")
    assert [tuple(step.values()) for step in found] == [
        ("f", "a", 0),
        ("f", "b", 1),
        ("f", "c", 2),
        ("g", "b", 0),
        ("g", "a", 1),
    ]


def test_the_next_index_follows_the_highest(db: Connection, row: Callable[..., dict[str, Any]]) -> None:
    db.execute("update pgflow.steps set step_index = 7 where step_slug = 'b'")
    assert row("select * from pgflow.add_step('f', 's')")["step_index"] == 8


def test_an_existing_step_is_returned_as_it_is(
    db: Connection, row: Callable[..., dict[str, Any]], state_of: Callable[[Connection], object]
) -> None:
    first = row("select * from pgflow.add_step('f', 's', array['a'], 1, 2, 3, 4)")
    before = state_of(db)
    repeated = row(
        """
        select * from pgflow.add_step('f', 's', array['a'], 5, 6, 7, 8, 'map', '{"x": 1}', '{"y": 1}',
          'fail', 'skip')
        """
    )
    assert repeated == first
    assert row("select * from pgflow.add_step('f', 's')") == first
    assert state_of(db) == before


def test_a_repeated_call_does_not_fill_options_that_were_null(
    row: Callable[..., dict[str, Any]],
) -> None:
    first = row("select * from pgflow.add_step('f', 's')")
    assert row("select * from pgflow.add_step('f', 's', '{}', 5, 6, 7, 8)") == first
    assert first["opt_max_attempts"] is None


def test_a_repeated_call_with_more_dependencies_adds_rows_but_keeps_the_count(
    row: Callable[..., dict[str, Any]], rows: Callable[..., list[dict[str, Any]]]
) -> None:
    row("select * from pgflow.add_step('f', 's', array['a'])")
    assert row("select * from pgflow.add_step('f', 's', array['a', 'b'])")["deps_count"] == 1
    found = rows("select dep_slug from pgflow.deps where step_slug = 's' order by 1")
    assert [dependency["dep_slug"] for dependency in found] == ["a", "b"]


def test_a_repeated_dependency_is_counted_twice_but_stored_once(
    row: Callable[..., dict[str, Any]], value: Callable[..., Any]
) -> None:
    assert row("select * from pgflow.add_step('f', 's', array['a', 'a'])")["deps_count"] == 2
    assert value("select count(*) from pgflow.deps where step_slug = 's'") == 1


def test_a_step_with_a_repeated_dependency_never_becomes_ready(
    db: Connection, row: Callable[..., dict[str, Any]]
) -> None:
    db.execute("select pgflow.add_step('f', 's', array['a', 'a'])")
    run_id = row("select run_id from pgflow.start_flow('f', '{}')")["run_id"]
    db.execute(
        "select pgflow.start_tasks('f', array_agg(message_id), null) from pgflow.step_tasks"
        " where step_slug = 'a'"
    )
    db.execute("select pgflow.complete_task(%s, 'a', 0, '1')", (run_id,))
    assert row("select status, remaining_deps from pgflow.step_states where step_slug = 's'") == {
        "status": "created",
        "remaining_deps": 1,
    }


def test_the_same_definition_twice_leaves_one_flow_and_its_steps(
    db: Connection, state_of: Callable[[Connection], object]
) -> None:
    def define() -> None:
        db.execute("select pgflow.create_flow('g')")
        db.execute("select pgflow.add_step('g', 'first')")
        db.execute("select pgflow.add_step('g', 'second', array['first'])")
        db.execute("select pgflow.add_step('g', 'last', array['first', 'second'])")

    define()
    before = state_of(db)
    define()
    assert state_of(db) == before


def test_definitions_carry_the_time_of_their_creation(
    db: Connection, rows: Callable[..., list[dict[str, Any]]], value: Callable[..., Any]
) -> None:
    db.execute("select pgflow.add_step('f', 's', array['a'])")
    found = rows(
        "select created_at from pgflow.flows union select created_at from pgflow.steps"
        " union select created_at from pgflow.deps"
    )
    assert found == [{"created_at": value("select now()")}]


def test_an_unknown_flow_is_refused(refused: Callable[..., psycopg.Error]) -> None:
    error = refused("select pgflow.add_step('ghost', 's')")
    assert error.sqlstate == "23503"
    assert error.diag.message_primary == (
        'insert or update on table "steps" violates foreign key constraint "steps_flow_slug_fkey"'
    )


@pytest.mark.parametrize("dependency", ["ghost", "later"])
def test_a_dependency_must_exist_already(refused: Callable[..., psycopg.Error], dependency: str) -> None:
    error = refused("select pgflow.add_step('f', 's', array['a', %s])", dependency)
    assert error.sqlstate == "23503"
    assert error.diag.message_primary == (
        'insert or update on table "deps" violates foreign key constraint "deps_flow_slug_dep_slug_fkey"'
    )


def test_a_dependency_on_a_step_of_another_flow_is_refused(
    db: Connection, violates: Callable[..., tuple[str, str]]
) -> None:
    db.execute("select pgflow.create_flow('g')")
    assert violates("select pgflow.add_step('g', 's', array['a'])") == (
        "23503",
        "deps_flow_slug_dep_slug_fkey",
    )


def test_a_step_cannot_depend_on_itself(refused: Callable[..., psycopg.Error]) -> None:
    error = refused("select pgflow.add_step('f', 's', array['s'])")
    assert error.sqlstate == "23514"
    assert error.diag.message_primary == 'new row for relation "deps" violates check constraint "deps_check"'


@pytest.mark.parametrize("slug", ["run", "", "1st", "with-dash", "a" * 129])
def test_an_invalid_or_reserved_slug_is_refused(violates: Callable[..., tuple[str, str]], slug: str) -> None:
    assert violates("select pgflow.add_step('f', %s)", slug) == ("23514", "steps_step_slug_check")


BAD_ARGUMENTS = [
    ("step_type => 'parallel'", "steps_step_type_check"),
    ("max_attempts => -1", "opt_max_attempts_is_nonnegative"),
    ("base_delay => -1", "opt_base_delay_is_nonnegative"),
    ("timeout => 0", "opt_timeout_is_positive"),
    ("start_delay => -1", "opt_start_delay_is_nonnegative"),
    ("when_unmet => 'ignore'", "when_unmet_is_valid"),
    ("when_exhausted => 'ignore'", "when_exhausted_is_valid"),
]


@pytest.mark.parametrize(("argument", "constraint"), BAD_ARGUMENTS)
def test_an_argument_out_of_its_domain_is_refused(
    violates: Callable[..., tuple[str, str]], argument: str, constraint: str
) -> None:
    assert violates(f"select pgflow.add_step('f', 's', {argument})") == ("23514", constraint)


@pytest.mark.parametrize(("argument", "constraint"), BAD_ARGUMENTS)
def test_an_argument_out_of_its_domain_is_refused_also_when_the_step_exists(
    violates: Callable[..., tuple[str, str]], argument: str, constraint: str
) -> None:
    assert violates(f"select pgflow.add_step('f', 'a', {argument})") == ("23514", constraint)


@pytest.mark.parametrize("mode", ["when_unmet", "when_exhausted"])
def test_a_null_mode_is_refused(refused: Callable[..., psycopg.Error], mode: str) -> None:
    error = refused(f"select pgflow.add_step('f', 's', {mode} => null)")
    assert (error.sqlstate, error.diag.column_name) == ("23502", mode)


@pytest.mark.parametrize("mode", ["fail", "skip", "skip-cascade"])
def test_each_mode_is_accepted(row: Callable[..., dict[str, Any]], mode: str) -> None:
    step = row("select * from pgflow.add_step('f', 's', when_unmet => %s, when_exhausted => %s)", mode, mode)
    assert (step["when_unmet"], step["when_exhausted"]) == (mode, mode)


@pytest.mark.parametrize("pattern", ["[]", '"text"', "1", "true", "null"])
@pytest.mark.parametrize("name", ["required_input_pattern", "forbidden_input_pattern"])
def test_a_pattern_that_is_no_object_is_refused(
    violates: Callable[..., tuple[str, str]], name: str, pattern: str
) -> None:
    assert violates(f"select pgflow.add_step('f', 's', {name} => %s::jsonb)", pattern) == (
        "23514",
        f"{name}_is_object",
    )


def test_step_dependencies_do_not_leave_the_flow(
    db: Connection, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    db.execute("select pgflow.create_flow('g')")
    db.execute("select pgflow.add_step('g', 'a')")
    db.execute("select pgflow.add_step('g', 'c', array['a'])")
    assert rows("select flow_slug, dep_slug, step_slug from pgflow.deps") == [
        {"flow_slug": "g", "dep_slug": "a", "step_slug": "c"}
    ]
