"""Two sessions that define, compile or delete the same flow, in one spelling or in two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.queue_identity.races.conftest import Call, Race

REVISIONS = ("dirty_runs",)
COMPILED = ["flow orders", "queue orders", "step pack in orders", "table a_orders", "table q_orders"]
VARIANT = ["flow Orders", "queue orders", "step pack in orders", "table a_orders", "table q_orders"]
ALIAS = 'duplicate key value violates unique constraint "flows_slug_case_insensitive_key"'
COLLISION = 'queue "orders" cannot serve flow "{}": it is the queue of flow "{}"'


def other(flow: str) -> str:
    return "orders" if flow == "Orders" else "Orders"


# -- case variants


@pytest.mark.parametrize("flow", ["orders", "Orders"])
def test_of_two_compilations_of_case_variants_the_first_wins(race: Race, flow: str) -> None:
    outcome = race.run(lambda one: one.compile(flow, "pack"), lambda two: two.compile(other(flow), "pack"))
    assert outcome.first == "compiled"
    assert (outcome.sqlstate, outcome.message) == ("23505", ALIAS)
    assert race.one.traces("orders") == (COMPILED if flow == "orders" else VARIANT)


@pytest.mark.parametrize("flow", ["orders", "Orders"])
def test_a_compilation_succeeds_when_the_one_of_its_case_variant_is_rolled_back(
    race: Race, flow: str
) -> None:
    outcome = race.run(
        lambda one: one.compile(other(flow), "pack"), lambda two: two.compile(flow, "pack"), commit=False
    )
    assert outcome.second == "compiled"
    assert race.one.traces("orders") == (COMPILED if flow == "orders" else VARIANT)


@pytest.mark.parametrize("flow", ["orders", "Orders"])
def test_of_two_new_case_variants_the_first_wins(race: Race, flow: str) -> None:
    outcome = race.run(lambda one: one.create_flow(flow), lambda two: two.create_flow(other(flow)))
    assert (outcome.sqlstate, outcome.message) == ("23505", ALIAS)
    assert race.one.traces("orders") == [f"flow {flow}"]


def test_a_new_flow_takes_the_place_of_its_case_variant_that_is_rolled_back(race: Race) -> None:
    outcome = race.run(
        lambda one: one.create_flow("Orders"), lambda two: two.create_flow("orders"), commit=False
    )
    assert outcome.second == "orders"
    assert race.one.traces("orders") == ["flow orders"]


@pytest.mark.parametrize("compiler_first", [True, False])
def test_a_compilation_and_a_new_case_variant_cannot_both_be(race: Race, compiler_first: bool) -> None:
    calls: list[Call] = [lambda one: one.compile("orders", "pack"), lambda two: two.create_flow("Orders")]
    outcome = race.run(*(calls if compiler_first else reversed(calls)))
    assert (outcome.sqlstate, outcome.message) == ("23505", ALIAS)
    assert race.one.traces("orders") == (COMPILED if compiler_first else ["flow Orders"])


@pytest.mark.parametrize(("step", "second"), [("pack", "Pack"), ("Pack", "pack")])
def test_of_two_case_variants_of_a_step_the_first_wins(race: Race, step: str, second: str) -> None:
    race.one.create_flow("orders")
    outcome = race.run(lambda one: one.add_step("orders", step), lambda two: two.add_step("orders", second))
    assert outcome.sqlstate == "23505"
    assert 'unique constraint "steps_slug_case_insensitive_key"' in str(outcome.second)
    assert race.one.traces("orders") == [
        "flow orders", "queue orders", f"step {step} in orders", "table a_orders", "table q_orders"
    ]  # fmt: skip


def test_a_step_takes_the_place_of_its_case_variant_that_is_rolled_back(race: Race) -> None:
    race.one.create_flow("orders")
    outcome = race.run(
        lambda one: one.add_step("orders", "Pack"), lambda two: two.add_step("orders", "pack"), commit=False
    )
    assert outcome.second == "pack"
    assert race.one.traces("orders") == COMPILED


def test_two_first_steps_at_a_time_get_one_queue_and_their_own_index(race: Race) -> None:
    race.one.create_flow("orders")
    race.run(lambda one: one.add_step("orders", "pack"), lambda two: two.add_step("orders", "send"))
    assert race.one.rows(
        "select step_slug, step_index, queue_name from pgflow.steps order by step_index"
    ) == [
        {"step_slug": "pack", "step_index": 0, "queue_name": "orders"},
        {"step_slug": "send", "step_index": 1, "queue_name": "orders"},
    ]
    assert race.one.rows("select queue_name from pgmq.meta") == [{"queue_name": "orders"}]


@pytest.mark.parametrize("flow", ["orders", "Orders"])
def test_a_step_of_a_case_variant_of_the_flow_waits_and_finds_no_flow(race: Race, flow: str) -> None:
    """The flow is registered in one spelling; in another spelling it does not exist."""
    race.one.create_flow(flow)
    outcome = race.run(lambda one: one.add_step(flow, "pack"), lambda two: two.add_step(other(flow), "pack"))
    assert outcome.sqlstate == "23503"
    assert race.one.traces("orders") == (COMPILED if flow == "orders" else VARIANT)


# -- the same flow


def test_of_two_compilations_of_a_flow_the_second_verifies(race: Race) -> None:
    outcome = race.run(lambda one: one.compile("orders", "pack"), lambda two: two.compile("orders", "pack"))
    assert (outcome.first, outcome.second) == ("compiled", "verified")
    assert race.one.traces("orders") == COMPILED


def test_of_two_compilations_of_different_shapes_the_second_is_told_so(race: Race) -> None:
    outcome = race.run(
        lambda one: one.compile("orders", "pack"), lambda two: two.compile("orders", "pack", "send")
    )
    assert (outcome.first, outcome.second) == ("compiled", "mismatch")
    assert race.one.traces("orders") == COMPILED


def test_a_compilation_starts_afresh_when_the_one_before_is_rolled_back(race: Race) -> None:
    outcome = race.run(
        lambda one: one.compile("orders", "send"), lambda two: two.compile("orders", "pack"), commit=False
    )
    assert outcome.second == "compiled"
    assert race.one.traces("orders") == COMPILED


def test_of_two_local_compilations_of_different_shapes_the_second_replaces_the_first(race: Race) -> None:
    for session in (race.one, race.two):
        session.execute(
            "set app.settings.jwt_secret = 'super-secret-jwt-token-with-at-least-32-characters-long'"
        )
    race.one.compile("orders", "old")
    race.one.start("orders", {})
    outcome = race.run(lambda one: one.compile("orders", "send"), lambda two: two.compile("orders", "pack"))
    assert (outcome.first, outcome.second) == ("recompiled", "recompiled")
    assert race.one.traces("orders") == COMPILED


def test_two_compilations_of_different_flows_do_not_wait_for_each_other(race: Race) -> None:
    outcome = race.run_past(
        lambda one: one.compile("orders", "pack"), lambda two: two.compile("parcels", "pack")
    )
    assert (outcome.first, outcome.second) == ("compiled", "compiled")


# -- deletion


@pytest.mark.parametrize(("spelling", "left"), [("Orders", []), ("orders", VARIANT)])
def test_a_deletion_that_waits_for_the_first_compilation_deletes_its_own_spelling_only(
    race: Race, spelling: str, left: list[str]
) -> None:
    outcome = race.run(lambda one: one.compile("Orders", "pack"), lambda two: two.delete(spelling))
    assert outcome.second is None
    assert race.one.traces("orders") == left


def test_a_compilation_that_waited_for_the_deletion_compiles_anew(race: Race) -> None:
    race.one.compile("orders", "old")
    race.one.start("orders", {})
    outcome = race.run(lambda one: one.delete("orders"), lambda two: two.compile("orders", "pack"))
    assert outcome.second == "compiled"
    assert race.one.traces("orders") == COMPILED


def test_a_case_variant_that_waited_for_the_deletion_is_compiled(race: Race) -> None:
    race.one.compile("orders", "pack")
    outcome = race.run(lambda one: one.delete("orders"), lambda two: two.compile("Orders", "pack"))
    assert outcome.second == "compiled"
    assert race.one.traces("orders") == VARIANT


@pytest.mark.parametrize(("shape", "answer"), [(["pack"], "verified"), (["pack", "send"], "mismatch")])
def test_a_compilation_that_waited_for_a_deletion_that_fails_finds_the_flow(
    race: Race, shape: list[str], answer: str
) -> None:
    race.one.compile("orders", "pack")
    outcome = race.run(
        lambda one: one.delete("orders"), lambda two: two.compile("orders", *shape), commit=False
    )
    assert outcome.second == answer
    assert race.one.traces("orders") == COMPILED


@pytest.mark.parametrize("commit", [True, False])
def test_a_deletion_that_waited_for_a_compilation_deletes_what_has_come_of_it(
    race: Race, commit: bool
) -> None:
    outcome = race.run(
        lambda one: one.compile("orders", "pack"), lambda two: two.delete("orders"), commit=commit
    )
    assert outcome.second is None
    assert race.one.traces("orders") == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_step_that_waited_for_the_deletion_has_a_flow_only_if_that_failed(race: Race, commit: bool) -> None:
    race.one.compile("orders", "pack")
    outcome = race.run(
        lambda one: one.delete("orders"), lambda two: two.add_step("orders", "pack"), commit=commit
    )
    if commit:
        assert outcome.sqlstate == "23503"
        assert race.one.traces("orders") == []
    else:
        assert outcome.second == "pack"
        assert race.one.traces("orders") == COMPILED


@pytest.mark.parametrize("commit", [True, False])
def test_of_two_deletions_one_deletes_and_neither_fails(race: Race, commit: bool) -> None:
    race.one.compile("orders", "pack")
    race.one.start("orders", {})
    outcome = race.run(lambda one: one.delete("orders"), lambda two: two.delete("orders"), commit=commit)
    assert outcome.second is None
    assert race.one.traces("orders") == []


def test_deletions_of_two_flows_do_not_wait_for_each_other(race: Race) -> None:
    for flow in ("orders", "parcels"):
        race.one.compile(flow, "pack")
        race.one.start(flow, {})
    outcome = race.run_past(lambda one: one.delete("orders"), lambda two: two.delete("parcels"))
    assert outcome.second is None
    assert race.one.traces("orders") == race.one.traces("parcels") == []
