"""A database as a hosted one is, both ways of upgrading it, and its work afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.script import upgrade_script
from pgflow_migrate.upgrade.session import Fence

Session = psycopg.Connection[Any]

RUN = "00000000-0000-4000-8000-00000000000a"
WORKER = "00000000-0000-4000-8000-00000000000b"
ORDERS = f"""
  drop schema pgflow_migrate cascade;
  select pgflow.create_flow('Order_flow');
  select pgflow.add_step('Order_flow', 'pack');
  select pgflow.add_step('Order_flow', 'send', array['pack']);
  select pgflow.start_flow('Order_flow', '{{"a": 1}}', '{RUN}');
"""

SCRIPT = upgrade_script("0.16.0", Fence())


@pytest.fixture
def old(database_at: Callable[[str], str]) -> str:
    """A 0.16.0 database that we did not make, with a flow of two steps and a run of it."""
    dsn = database_at("core_0_16_0")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(ORDERS.encode())
    return dsn


@pytest.fixture
def reach() -> Iterator[Callable[[str], Session]]:
    """Open connections (autocommit, rows as tuples) that are closed at the end of the test."""
    with contextlib.ExitStack() as opened:
        yield lambda dsn: opened.enter_context(psycopg.connect(dsn, autocommit=True))


@pytest.fixture
def upgrade_by() -> Callable[[str, str], None]:
    """Audit and upgrade a 0.16.0 database, by "command" or by "script"."""

    def run(way: str, dsn: str) -> None:
        assert run_audit(dsn).blocking == ()
        if way == "command":
            assert upgrade(dsn).revision == HEAD
            return
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(SCRIPT.encode())

    return run


@pytest.fixture
def refuse_it(old: str) -> Callable[[str], list[tuple[str, tuple[str, ...]]]]:
    """What audit and script refuse, as codes and samples; the database is then as it was."""

    def run(dsn: str) -> list[tuple[str, tuple[str, ...]]]:
        before = _signature(old)
        found = [(finding.code, finding.samples) for finding in run_audit(dsn).blocking]
        with (
            psycopg.connect(dsn, autocommit=True) as connection,
            pytest.raises(psycopg.Error) as refused,
        ):
            connection.execute(SCRIPT.encode())
        assert refused.value.sqlstate == "PF001"
        assert all(f'"{sample}"' in str(refused.value.diag.message_detail) for _, s in found for sample in s)
        assert differences(before, _signature(old)) == ()
        return found

    return run


def _signature(dsn: str) -> signature.Signature:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return signature.take(connection)


@pytest.fixture
def work() -> Callable[[Session], str]:
    """Do all tasks of the run as a worker does, by functions alone; returns what becomes of the run."""

    def run(session: Session) -> str:
        values = psycopg.ClientCursor(session, row_factory=psycopg.rows.scalar_row)
        values.execute(
            "insert into pgflow.workers (worker_id, function_name, queue_name) values (%s, 'w', 'q')",
            (WORKER,),
        )
        for step in ("pack", "send"):
            messages = values.execute("select msg_id from pgmq.read('order_flow', 30, 5)").fetchall()
            call = "select pgflow.claim_tasks('order_flow', 'Order_flow', %s, %s)"
            claim = values.execute(call, (messages, WORKER)).fetchall()[0]
            assert [task["step_slug"] for task in claim["tasks"]] == [step], claim
            done = "select status from pgflow.complete_task(%s, %s, 0, '{}')"
            assert values.execute(done, (RUN, step)).fetchall() == ["completed"]
        return str(values.execute("select status from pgflow.runs where run_id = %s", (RUN,)).fetchall()[0])

    return run
