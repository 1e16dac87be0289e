"""A queue of the flow's name that somebody creates past pgflow while pgflow provisions it: never adopted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.queue_identity.races.conftest import Call, Race, Session

WHOLE = ["queue orders", "table a_orders", "table q_orders"]

# What the other session has not committed yet when we look; and what is left of it in the end.
CREATIONS = {
    "a queue": ("select pgmq.create('orders')", WHOLE),
    "a queue in another spelling": (
        "select pgmq.create('Orders')",
        ["queue Orders", "table a_orders", "table q_orders"],
    ),
    "a bare queue table": ("create table pgmq.q_orders (msg_id bigint primary key)", ["table q_orders"]),
    "a bare archive table": ("create table pgmq.a_orders (msg_id bigint primary key)", ["table a_orders"]),
    "both tables, bare": (
        "create table pgmq.q_orders (like pgmq.q_other including all);"
        " create table pgmq.a_orders (like pgmq.a_other including all)",
        ["table a_orders", "table q_orders"],
    ),
    "a row of the metadata": (
        "insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('orders', false, false)",
        ["queue orders"],
    ),
}

# Each way to provision, and what is there of the flow before.
WAYS: dict[str, tuple[Call, Call, list[str]]] = {
    "a compilation": (lambda one: None, lambda two: two.compile("orders", "pack"), []),
    "a compilation of an empty flow": (lambda one: None, lambda two: two.compile("orders"), []),
    "a first step": (
        lambda one: one.create_flow("orders"),
        lambda two: two.add_step("orders", "pack"),
        ["flow orders"],
    ),
    "a compilation of an empty flow that was registered alone": (
        lambda one: one.create_flow("orders"),
        lambda two: two.compile("orders"),
        ["flow orders"],
    ),
}


def outsider(statement: str) -> Call:
    """Whatever is done past pgflow."""

    def call(session: Session) -> Any:
        session.execute(statement)

    return call


# Every creation against the two ways with steps; the empty flow's ways against a whole queue only.
PAIRS = [(way, creation) for way in ("a compilation", "a first step") for creation in CREATIONS] + [
    (way, "a queue") for way in WAYS if "empty" in way
]


def has_queue_locks(session: Session) -> bool:
    """Whether PGMQ (since 1.6.0) lets creations and drops of one queue wait for each other."""
    return bool(session.value("select to_regprocedure('pgmq.acquire_queue_lock(text)') is not null"))


@pytest.mark.parametrize(("way", "creation"), PAIRS)
def test_what_is_created_between_preflight_and_provisioning_is_refused(
    race: Race, way: str, creation: str
) -> None:
    prepare, provision, before = WAYS[way]
    statement, left = CREATIONS[creation]
    race.one.execute("select pgmq.create('other')")
    prepare(race.one)
    outcome = race.run(outsider(statement), provision)
    assert outcome.sqlstate == "55000"
    assert outcome.message == (
        'queue "orders" is not flow "orders"\'s own: somebody else created it at the same moment'
    )
    assert race.one.traces("orders") == [*before, *left]
    race.tidy = "drop table if exists pgmq.q_orders, pgmq.a_orders; delete from pgmq.meta"


@pytest.mark.parametrize(("way", "creation"), PAIRS)
def test_what_is_rolled_back_between_preflight_and_provisioning_is_no_hindrance(
    race: Race, way: str, creation: str
) -> None:
    prepare, provision, before = WAYS[way]
    race.one.execute("select pgmq.create('other')")
    prepare(race.one)
    outcome = race.run(outsider(CREATIONS[creation][0]), provision, commit=False)
    if outcome.sqlstate is not None:
        # PGMQ before 1.6.0 may lose against a creation that is rolled back. Then the next try succeeds.
        assert not has_queue_locks(race.one), outcome
        assert (outcome.sqlstate, race.one.traces("orders")) == ("55000", before)
        provision(race.two)
    steps = [] if "empty" in way else ["step pack in orders"]
    assert race.one.traces("orders") == ["flow orders", "queue orders", *steps, *WHOLE[1:]]
    assert race.one.compile("orders", *(["pack"] if steps else [])) == "verified"


def test_an_outsider_that_waited_for_our_provisioning_spoils_nothing(race: Race) -> None:
    """PGMQ's create is idempotent: the outsider may think that the queue is its own; ours it is."""
    outcome = race.run(lambda one: one.compile("orders", "pack"), outsider("select pgmq.create('orders')"))
    assert outcome.sqlstate == (None if has_queue_locks(race.one) else "23505")
    assert race.one.traces("orders") == ["flow orders", "queue orders", "step pack in orders", *WHOLE[1:]]
    assert race.one.compile("orders", "pack") == "verified"
    run = race.one.start("orders", {})
    assert race.two.claimed("orders", race.two.read("orders"), race.two.worker()) == {"claimed": [1]}
    race.two.complete(run, "pack", "done")
    assert race.one.progress(run) == ("completed", {"pack": "completed"}, {"pack/0": ("completed", 1, 0)})


def test_an_outsider_that_waited_for_a_compilation_that_is_rolled_back_owns_the_queue(race: Race) -> None:
    outcome = race.run(
        lambda one: one.compile("orders", "pack"), outsider("select pgmq.create('orders')"), commit=False
    )
    if outcome.sqlstate is not None:
        assert (has_queue_locks(race.one), outcome.sqlstate) == (False, "42P01")
        race.two.execute("select pgmq.create('orders')")
    outcome = race.run_past(lambda one: None, lambda two: two.compile("orders", "pack"))
    assert outcome.sqlstate == "55000"
    assert race.one.traces("orders") == WHOLE


@pytest.mark.parametrize("statement", ["select pgmq.create('Orders')", "create table pgmq.q_orders ()"])
def test_an_outsider_that_would_spoil_the_queue_loses_against_our_provisioning(
    race: Race, statement: str
) -> None:
    outcome = race.run(lambda one: one.compile("orders", "pack"), outsider(statement))
    assert outcome.sqlstate == "23505"
    assert race.one.traces("orders") == ["flow orders", "queue orders", "step pack in orders", *WHOLE[1:]]
    assert race.one.compile("orders", "pack") == "verified"


@pytest.mark.parametrize("drop", ["select pgmq.drop_queue('orders')", "drop table pgmq.q_orders"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_deletion_that_waited_for_somebody_who_drops_its_queue_leaves_nothing(
    race: Race, drop: str, commit: bool
) -> None:
    race.one.compile("orders", "pack")
    race.one.start("orders", {})
    outcome = race.run(outsider(drop), lambda two: two.delete("orders"), commit=commit)
    if outcome.sqlstate is not None:
        # PGMQ before 1.6.0 fails to drop what is gone: then nothing is deleted.
        assert (has_queue_locks(race.one), commit, outcome.sqlstate) == (False, True, "42P01")
        assert "flow orders" in race.one.traces("orders")
        race.tidy = "truncate pgflow.flows cascade; drop table if exists pgmq.a_orders; delete from pgmq.meta"
    else:
        assert race.one.traces("orders") == []


@pytest.mark.parametrize("commit", [True, False])
def test_somebody_who_drops_the_queue_waits_for_the_deletion(race: Race, commit: bool) -> None:
    race.one.compile("orders", "pack")
    outcome = race.run(
        lambda one: one.delete("orders"), outsider("drop table if exists pgmq.q_orders"), commit=commit
    )
    assert outcome.sqlstate is None
    if commit:
        assert race.one.traces("orders") == []
    else:
        # Nothing that pgflow could prevent; it says so, and makes no other queue.
        outcome = race.run_past(lambda one: None, lambda two: two.compile("orders", "pack"))
        assert (outcome.sqlstate, outcome.message) == (
            "55000",
            'queue "orders" of flow "orders" cannot be used: pgmq.q_orders is missing',
        )
        race.tidy = "truncate pgflow.flows cascade; drop table pgmq.a_orders; delete from pgmq.meta"
