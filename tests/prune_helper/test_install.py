"""Installing the queue-aware helper: over what it may replace, and not over what somebody has changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pglast
import psycopg
import pytest

from pgflow_migrate import prune_helper
from pgflow_migrate.prune_helper import SIGNATURE
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences

if TYPE_CHECKING:
    from tests.prune_helper.conftest import StandIn, World

DEFINITION = f"select pg_get_functiondef('{SIGNATURE}'::regprocedure)"


@pytest.fixture
def upgraded(database_at: Callable[[str], str], worlds: Callable[[str], World]) -> World:
    """A database with queue identity, without a helper."""
    return worlds(database_at("queue_identity"))


def refused(world: World, script: str) -> psycopg.errors.ObjectNotInPrerequisiteState:
    """The error that installing raises; nothing is changed."""
    with psycopg.connect(world.connection.info.dsn, autocommit=True) as observer:
        before = signature.take(observer)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as caught:
            world.do(script)
        assert differences(before, signature.take(observer)) == ()
    return caught.value


def test_it_is_one_statement_that_parses_and_lines_are_short() -> None:
    script = prune_helper.script()
    (statement,) = json.loads(pglast.parser.parse_sql_json(script))["stmts"]
    assert "DoStmt" in statement["stmt"]
    create = re.search(r"create or replace function.*?\$prune\$;", script, re.DOTALL)
    assert create is not None
    assert len(pglast.parse_plpgsql(create[0])) == 1
    assert [line for line in script.splitlines() if len(line) > 120] == []
    assert script.startswith("-- ")


def test_what_is_installed(upgraded: World) -> None:
    upgraded.do(prune_helper.script())
    assert upgraded.rows(
        """
        select pg_get_function_arguments(p.oid), p.prorettype::regtype::text, l.lanname::text,
          p.provolatile::text, p.prosecdef, p.proconfig, p.pronargdefaults,
          left(obj_description(p.oid, 'pg_proc'), 21)
        from pg_proc p join pg_language l on l.oid = p.prolang
        where p.oid = %s::regprocedure
        """,
        SIGNATURE,
    ) == [
        (
            "retention_interval interval",
            "void",
            "plpgsql",
            "v",
            False,
            ["search_path=pg_catalog, pg_temp"],
            0,
            "Optional maintenance:",
        )
    ]


@pytest.mark.parametrize("kind", ["stock", "original"])
def test_the_documented_ones_are_replaced_and_grants_stay(
    upgraded: World, stand_in: Callable[[str], StandIn], kind: str
) -> None:
    installed = stand_in(kind)
    upgraded.do(installed.create)
    upgraded.do(f"revoke execute on function {SIGNATURE} from public")
    upgraded.do(prune_helper.script([installed.md5]))
    (found,) = prune_helper.find(upgraded.connection.info.dsn).helpers
    assert found.kind == "queue-aware"
    assert upgraded.rows("select proacl::text from pg_proc where oid = %s::regprocedure", SIGNATURE) == [
        ("{postgres=X/postgres}",)
    ]


def test_it_is_replaced_by_itself(upgraded: World) -> None:
    upgraded.do(prune_helper.script())
    before = upgraded.rows(DEFINITION)
    upgraded.do(prune_helper.script())
    assert upgraded.rows(DEFINITION) == before


@pytest.mark.parametrize("kind", ["stock", "customised"])
def test_an_unknown_one_is_refused_and_stays(
    upgraded: World, stand_in: Callable[[str], StandIn], kind: str
) -> None:
    upgraded.do(stand_in(kind).create)  # the stand-in for the stock one is not known as such without its sum
    error = refused(upgraded, prune_helper.script())
    assert error.diag.message_primary == (
        "pgflow.prune_data_older_than(interval) is not the documented one: somebody has changed it"
    )
    assert str(error.diag.message_hint).startswith("Nothing was installed.")
    upgraded.do("drop function pgflow.prune_data_older_than(interval);")  # as the hint says
    upgraded.do(prune_helper.script())


@pytest.mark.parametrize("change", ["security definer", "set statement_timeout = '5s'"])
def test_attributes_of_ones_own_are_refused(upgraded: World, change: str) -> None:
    upgraded.do(prune_helper.script())
    upgraded.do(f"alter function {SIGNATURE} {change}")
    refused(upgraded, prune_helper.script())


def test_functions_with_other_arguments_are_left_alone(upgraded: World) -> None:
    upgraded.do("create function pgflow.prune_data_older_than(integer) returns void language sql as 'select'")
    upgraded.do(prune_helper.script())
    assert [h.kind for h in prune_helper.find(upgraded.connection.info.dsn).helpers] == [
        "queue-aware",
        "other-arguments",
    ]


@pytest.mark.parametrize("revision", ["core_0_15_0", "core_0_16_0", ""])
def test_without_queue_identity_nothing_is_installed(
    database_at: Callable[[str], str], worlds: Callable[[str], World], revision: str
) -> None:
    world = worlds(database_at(revision))
    error = refused(world, prune_helper.script())
    assert error.diag.message_primary == (
        "this pruning helper needs queue identity: pgflow.step_tasks has no column queue_name"
    )
    assert error.diag.message_hint == (
        "Nothing was installed. Upgrade the database first, then install the helper."
    )


def test_sums_are_sums() -> None:
    with pytest.raises(ValueError, match="not an md5 sum"):
        prune_helper.script(["'"])
