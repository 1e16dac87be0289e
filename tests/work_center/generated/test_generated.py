"""Every step on stores of a generator, each from the step before; what befalls a store comes in between."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from hypothesis import given, settings
from tests.work_center.generated.generator import Walk, walks
from tests.work_center.generated.invariants import Picture, check, check_ledger, ledger

from pgflow_migrate import resources
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.work_center import values
from pgflow_migrate.work_center.chain import STEPS, Step
from pgflow_migrate.work_center.upgrade import upgrade_connection

_SETTINGS = settings(derandomize=True, deadline=None, database=None)


@pytest.fixture
def _read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Alembic read its folder once: that takes it longer than a step takes us."""
    config = Config(str(resources.alembic_ini()), ini_section="work_center")
    folder = ScriptDirectory.from_config(config)
    monkeypatch.setattr(ScriptDirectory, "from_config", lambda _: folder)


@pytest.mark.usefixtures("_read_once")
@pytest.mark.parametrize(("wild", "examples", "least"), [(False, 40, 20), (True, 12, 1)])
def test_invariants_hold_after_every_step(wild: bool, examples: int, least: int) -> None:
    reached: Counter[str] = Counter()

    @settings(_SETTINGS, max_examples=examples)
    @given(walk=walks(wild=wild))
    def go(walk: Walk) -> None:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.text_factory = values.text
            walk.create(connection)
            for step in STEPS:
                walk.befall(connection, step.number)
                if not _taken(connection, walk, step):
                    reached[f"refused {step.name}"] += 1
                    return
                reached[step.name] += 1
            _all_again(connection, walk)

    go()
    # Otherwise the strategy had become too wild to say anything about the last steps.
    assert reached[STEPS[-1].name] >= least, reached


def _taken(connection: sqlite3.Connection, walk: Walk, step: Step) -> bool:
    """Upgrade by ``step``, and by those that have been forgotten; check all that must hold then.

    False when it was refused, which has to leave the store as the last step that could be taken left it.
    """
    before, lines = Picture(connection), ledger(connection)
    due = [due for due in STEPS if due.number <= step.number and due.name not in lines]
    now = walk.now + step.number
    upgrade = partial(
        upgrade_connection, connection, source_schema_version=walk.source_schema_version, to=step.name
    )
    try:
        result = upgrade(now=now)
    except PgflowMigrateError:
        left = ledger(connection)
        done = [due.name for due in due if due.name in left]
        assert [name for name in left if name not in lines] == done, "recorded in the order of the steps"
        assert step.name not in left
        assert not connection.in_transaction
        if not done:
            assert Picture(connection).same() == before.same()
        return False
    assert [done.step for done in result.steps] == [step.name for step in due]
    after = Picture(connection)
    applied = [due for due in due if (due.alias or "") not in lines]
    check(connection, before, after, applied, walk.source_schema_version)
    check_ledger(lines, ledger(connection), now, step)
    assert upgrade(now=now).already_current
    if step.number == walk.twice:
        connection.execute("delete from schema_migrations where name = ?", (step.name,))
        upgrade(now=now + 1)
        assert Picture(connection).same() == after.same()
    return True


def _all_again(connection: sqlite3.Connection, walk: Walk) -> None:
    """Every step once more on a store that has them all."""
    before = Picture(connection)
    connection.execute("delete from schema_migrations")
    upgrade_connection(connection, now=walk.now + 99, source_schema_version=walk.source_schema_version)
    assert Picture(connection).same() == before.same()
