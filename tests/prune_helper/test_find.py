"""Which helper is installed: told from its attributes and its body, by a role without rights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgflow_migrate import prune_helper, resources
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.prune_helper import SIGNATURE, Helper, find
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences

if TYPE_CHECKING:
    from tests.prune_helper.conftest import StandIn, World

Stand = Callable[[str], "StandIn"]


@pytest.fixture(params=["core_0_16_0", "queue_identity"])
def at(
    request: pytest.FixtureRequest, database_at: Callable[[str], str], worlds: Callable[[str], World]
) -> World:
    """A database without a helper, before the upgrade and after it."""
    return worlds(database_at(request.param))


def helper(world: World, *, stock: str = "", original: str = "") -> tuple[str, bool]:
    """Kind of the only helper, and whether something is to be done after the upgrade only."""
    found = find(
        world.connection.info.dsn,
        stock_md5s=[stock] if stock else [],
        original_md5s=[original] if original else [],
    )
    (only,) = found.helpers
    assert only.signature == SIGNATURE
    assert only.to_do is found.to_do
    if not found.queue_identity:
        assert not only.to_do
    return only.kind, only.to_do if found.queue_identity else True


def test_none(at: World) -> None:
    assert find(at.connection.info.dsn).helpers == (Helper(SIGNATURE, "absent", False),)


def test_the_documented_one(at: World, stand_in: Stand) -> None:
    stock = stand_in("stock")
    at.do(stock.create)
    assert helper(at, stock=stock.md5) == ("stock", True)
    assert helper(at) == ("customised", True)


def test_the_one_documented_before(at: World, stand_in: Stand) -> None:
    original = stand_in("original")
    at.do(original.create)
    assert helper(at, original=original.md5) == ("original", True)


@pytest.mark.parametrize(
    "change",
    ["security definer", "set search_path = ''", "set statement_timeout = '5s'", "stable"],
)
def test_another_attribute_makes_the_documented_one_customised(
    at: World, stand_in: Stand, change: str
) -> None:
    stock = stand_in("stock")
    at.do(stock.create)
    at.do(f"alter function {SIGNATURE} {change}")
    assert helper(at, stock=stock.md5) == ("customised", True)


@pytest.mark.parametrize(
    "create",
    [
        "create function pgflow.prune_data_older_than(interval) returns void language sql as 'select'",
        "create function pgflow.prune_data_older_than(interval) returns void begin atomic select 1; end",
        "create function pgflow.prune_data_older_than(interval) returns bool language plpgsql as"
        " 'begin return true; end'",
    ],
)
def test_anything_else_is_customised(at: World, create: str) -> None:
    at.do(create)
    assert helper(at) == ("customised", True)


def test_the_shipped_one(world: World) -> None:
    assert find(world.connection.info.dsn).helpers == (Helper(SIGNATURE, "queue-aware", False),)


def test_comments_and_white_space_of_the_shipped_one_do_not_matter(world: World) -> None:
    script = prune_helper.script()
    world.do(script.replace("-- Decided once.", "-- Once.").replace("    ", "\t").replace("\n", "\r\n"))
    assert helper(world) == ("queue-aware", False)


@pytest.mark.parametrize("change", ["security definer", "reset search_path"])
def test_another_attribute_makes_the_shipped_one_customised(world: World, change: str) -> None:
    world.do(f"alter function {SIGNATURE} {change}")
    assert helper(world) == ("customised", True)


def test_other_arguments_are_told_apart(at: World) -> None:
    at.do("create function pgflow.prune_data_older_than(integer) returns void language sql as 'select'")
    at.do(
        "create function pgflow.prune_data_older_than(text, interval) returns void language sql as 'select'"
    )
    at.do("create function public.prune_data_older_than(interval) returns void language sql as 'select'")
    found = find(at.connection.info.dsn)
    assert [(h.signature, h.kind) for h in found.helpers] == [
        (SIGNATURE, "absent"),
        ("pgflow.prune_data_older_than(integer)", "other-arguments"),
        ("pgflow.prune_data_older_than(text, interval)", "other-arguments"),
    ]
    assert [h.to_do for h in found.helpers] == [False, found.queue_identity, found.queue_identity]


def test_a_role_without_any_rights_can_ask_and_nothing_changes(world: World) -> None:
    dsn = world.connection.info.dsn
    world.do("drop role if exists prune_asker")
    world.do("create role prune_asker login")
    try:
        with psycopg.connect(dsn, autocommit=True) as observer:
            before = signature.take(observer)
            asked = find(make_conninfo(dsn, user="prune_asker"))
            assert differences(before, signature.take(observer)) == ()
        assert asked.helpers == (Helper(SIGNATURE, "queue-aware", False),)
    finally:
        world.do("drop role prune_asker")


def test_a_body_that_may_not_be_read_is_said_to_be_unreadable(world: World) -> None:
    dsn = world.connection.info.dsn
    world.do("drop role if exists prune_asker")
    world.do("create role prune_asker login")
    world.do("revoke select on pg_proc from public")
    world.do(
        "grant select (oid, proname, pronamespace, prolang, proargtypes, proconfig, prokind, prorettype,"
        " provolatile, prosecdef) on pg_proc to public"
    )
    try:
        assert find(make_conninfo(dsn, user="prune_asker")).helpers == (
            Helper(SIGNATURE, "unreadable", True),
        )
    finally:
        world.do("drop owned by prune_asker")
        world.do("drop role prune_asker")


def test_a_database_without_pgflow_is_an_error(database_at: Callable[[str], str]) -> None:
    dsn = database_at("")
    with pytest.raises(PgflowMigrateError, match="There is no pgflow in database"):
        find(dsn)


def test_the_sums_are_those_of_the_audit_and_of_the_script() -> None:
    preflight = resources.revision_sql("queue_identity") / "preflight_findings.sql"
    script = prune_helper.script()
    for md5 in (*prune_helper.STOCK_MD5S, *prune_helper.ORIGINAL_MD5S):
        assert f"'{md5}'" in preflight.read_text(encoding="utf-8")
    for md5 in (prune_helper.STOCK_MD5S[1], prune_helper.ORIGINAL_MD5S[1], prune_helper.own_md5()):
        assert f"    '{md5}'" in script


def test_the_own_sum_is_that_of_the_installed_body(world: World) -> None:
    ((body,),) = world.rows("select prosrc from pg_proc where oid = %s::regprocedure", SIGNATURE)
    normalised = prune_helper.normalised(body).encode()
    assert hashlib.md5(normalised, usedforsecurity=False).hexdigest() == prune_helper.own_md5()


def test_the_queue_aware_one_from_before_protocol_2_is_to_be_replaced_where_there_is_protocol_2(
    database_at: Callable[[str], str], worlds: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_helper, "FORMER_MD5S", (prune_helper.own_md5(),))
    monkeypatch.setattr(prune_helper, "own_md5", lambda: "0" * 32)
    for revision, to_do in (("queue_identity", False), ("dirty_runs", True)):
        world = worlds(database_at(revision))
        world.do(prune_helper.script())
        assert find(world.connection.info.dsn).helpers == (Helper(SIGNATURE, "former", to_do),)


def test_the_former_sums_are_replaceable() -> None:
    for md5 in prune_helper.FORMER_MD5S:
        assert f"    '{md5}'" in prune_helper.script()
