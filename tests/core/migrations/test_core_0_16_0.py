"""The upgrade of 0.15.1 to 0.16.0: ``ensure_flow_compiled`` loses its third argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgflow_migrate.errors import SqlFileError

Connection = psycopg.Connection[dict[str, Any]]
State = dict[str, list[dict[str, Any]]]
Catalogue = Callable[[Connection], dict[str, Any]]
Upgrade = Callable[[str, str], None]

THREE = "pgflow.ensure_flow_compiled(text,jsonb,boolean)"
TWO = "pgflow.ensure_flow_compiled(text,jsonb)"
SHAPE = Jsonb({"steps": []})


@pytest.fixture
def old(database_at: Callable[[str], str], connect: Callable[[str], Connection]) -> tuple[str, Connection]:
    """A 0.15.1 with a flow, a run and a claimed task: its connection string, and a connection."""
    dsn = database_at("core_0_15_1")
    db = connect(dsn)
    db.execute("select pgflow.create_flow('f')")
    db.execute("select pgflow.add_step('f', 'a')")
    db.execute("select pgflow.start_flow('f', '{}')")
    db.execute("select pgflow.start_tasks('f', array_agg(message_id), null) from pgflow.step_tasks")
    return dsn, db


def test_the_function_with_three_arguments_gives_way_to_one_with_two(
    old: tuple[str, Connection], upgrade: Upgrade, catalogue_of: Catalogue
) -> None:
    dsn, db = old
    before = catalogue_of(db)
    upgrade(dsn, "core_0_16_0")
    after = catalogue_of(db)
    assert before["functions"].keys() - after["functions"].keys() == {THREE}
    assert after["functions"].keys() - before["functions"].keys() == {TWO}


def test_nothing_else_changes(
    old: tuple[str, Connection],
    upgrade: Upgrade,
    catalogue_of: Catalogue,
    state_of: Callable[[Connection], State],
) -> None:
    dsn, db = old
    before, rows_before = catalogue_of(db), state_of(db)
    upgrade(dsn, "core_0_16_0")
    after, rows_after = catalogue_of(db), state_of(db)
    del before["functions"][THREE], after["functions"][TWO]
    assert after == before
    assert rows_after == rows_before


def test_a_worker_of_0_16_0_works_on_both_sides_and_an_older_one_only_before(
    old: tuple[str, Connection], upgrade: Upgrade
) -> None:
    dsn, db = old
    older = "select pgflow.ensure_flow_compiled('new', %s, false) as answer"
    newer = "select pgflow.ensure_flow_compiled('new', %s) as answer"
    compiled = {"answer": {"status": "compiled", "differences": []}}
    verified = {"answer": {"status": "verified", "differences": []}}
    assert db.execute(older, (SHAPE,)).fetchall() == [compiled]
    assert db.execute(newer, (SHAPE,)).fetchall() == [verified]
    upgrade(dsn, "core_0_16_0")
    assert db.execute(newer, (SHAPE,)).fetchall() == [verified]
    with pytest.raises(psycopg.errors.UndefinedFunction) as caught:
        db.execute(older, (SHAPE,))
    assert caught.value.sqlstate == "42883"


@pytest.mark.parametrize("there_instead", [None, TWO])
def test_a_missing_function_is_refused_and_nothing_changes(
    old: tuple[str, Connection],
    refused_upgrade: Callable[[str, str], SqlFileError],
    there_instead: str | None,
) -> None:
    dsn, db = old
    db.execute(f"drop function {THREE}")
    if there_instead:
        db.execute(f"create function {there_instead} returns jsonb language sql return null::jsonb")
    error = refused_upgrade(dsn, "core_0_16_0").cause
    assert error.sqlstate == "42883"
    assert error.diag.message_primary == (
        "function pgflow.ensure_flow_compiled(text, jsonb, boolean) does not exist"
    )


def test_the_migrations_of_an_upgrade_succeed_or_fail_together(
    database_at: Callable[[str], str],
    connect: Callable[[str], Connection],
    refused_upgrade: Callable[[str, str], SqlFileError],
) -> None:
    dsn = database_at("core_0_15_0")
    db = connect(dsn)
    # Work for the repairs of 0.15.1, and a refusal of 0.16.0: the repairs must not remain.
    db.execute("select pgflow.create_flow('f')")
    db.execute("select pgflow.add_step('f', 'a')")
    db.execute("select pgflow.start_flow('f', '{}')")
    db.execute("update pgflow.runs set status = 'failed', failed_at = now()")
    db.execute(f"drop function {THREE}")
    error = refused_upgrade(dsn, "core_0_16_0")
    assert (error.revision, error.cause.sqlstate) == ("core_0_16_0", "42883")
    assert db.execute("select status from pgflow.step_tasks").fetchall() == [{"status": "queued"}]


def test_a_populated_0_15_0_reaches_0_16_0_in_one_upgrade_and_its_run_goes_on(
    database_at: Callable[[str], str], connect: Callable[[str], Connection], upgrade: Upgrade
) -> None:
    dsn = database_at("core_0_15_0")
    db = connect(dsn)
    db.execute("select pgflow.create_flow('f')")
    db.execute("select pgflow.add_step('f', 'a')")
    db.execute("select pgflow.add_step('f', 'b', array['a'])")
    db.execute("select pgflow.start_flow('f', '{}')")
    db.execute("select pgflow.start_tasks('f', array_agg(message_id), null) from pgflow.step_tasks")
    upgrade(dsn, "core_0_16_0")
    db.execute("select pgflow.complete_task(run_id, 'a', 0, '1') from pgflow.runs")
    db.execute(
        "select pgflow.start_tasks('f', array_agg(message_id), null) from pgflow.step_tasks"
        " where step_slug = 'b'"
    )
    db.execute("select pgflow.complete_task(run_id, 'b', 0, '2') from pgflow.runs")
    assert db.execute("select status, output from pgflow.runs").fetchall() == [
        {"status": "completed", "output": {"b": 2}}
    ]
