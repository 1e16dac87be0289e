"""A role of its own for the worker: what docs/worker.md grants is enough, and what is missing ends it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgflow_migrate.worker import Context, Ending, Flow
from pgflow_migrate.worker.retries import RightMissingError

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "worker.md"
_numbers = itertools.count(1)


def orders() -> Flow:
    """A flow that uses every report."""
    flow = Flow("orders", base_delay=0, max_attempts=2)
    tried: set[int] = set()

    @flow.map("load", when_exhausted="skip")
    def load(context: Context) -> int:
        if context.input == "bad" or (context.input == "flaky" and context.task_index not in tried):
            tried.add(context.task_index)
            raise ValueError("no")
        return len(context.flow_input)

    flow.step("report", depends_on="load")(lambda context: context.input)
    return flow


@pytest.fixture
def limited(bench: Bench) -> Iterator[Bench]:
    """A bench whose workers connect as a role with the documented rights; the bench is the owner."""
    bench.compile(orders())
    role = f"orders_worker_{next(_numbers)}"
    bench.connection.execute(sql.SQL("create role {} login password 'x'").format(sql.Identifier(role)))
    (grants,) = re.findall(r"^```sql\n(grant.*?)^```", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    bench.execute(grants.replace("orders_worker", role))
    bench.dsn = make_conninfo(bench.dsn, user=role, password="x")  # noqa: S106
    yield bench
    bench.terminate_others()
    bench.connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
    bench.connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def test_the_documented_rights_are_enough_for_work_of_every_kind(limited: Bench) -> None:
    good, bad = limited.start("orders", ["ok", "flaky"]), limited.start("orders", ["ok", "bad"])
    limited.rows("select pgmq.send('orders', '{}')")
    summary = limited.work_off(orders())
    assert (summary.ending, summary.unreported) == (Ending.IDLE, 0)
    assert limited.run(good)["output"] == {"report": {"load": [2, 2]}}
    assert limited.run(bad)["output"] == {"report": {}}
    assert limited.value("select count(*) from pgmq.q_orders") == 0


def test_the_documented_rights_are_enough_for_a_fatal_outcome(limited: Bench) -> None:
    limited.rows("""select pgmq.send('orders', '{"flow_slug": "orders"}')""")
    assert limited.work_off(orders()).ending is Ending.FATAL
    assert limited.value("select paused_at is not null from pgflow.worker_functions") is True


@pytest.mark.parametrize(
    ("missing", "started"),
    [
        ("update on pgmq.q_orders", 0),
        ("update on pgflow.step_tasks", 0),
        ("update on pgflow.step_states", 1),
        ("delete on pgmq.q_orders", 1),
    ],
)
def test_a_missing_right_ends_the_worker_instead_of_being_tried_for_ever(
    limited: Bench, missing: str, started: int
) -> None:
    limited.start("orders", ["ok"])
    role = role_of(limited)
    limited.connection.execute(sql.SQL("revoke {} from {}").format(sql.SQL(missing), sql.Identifier(role)))
    worker = limited.worker(orders(), until_idle=None)
    with pytest.raises(RightMissingError, match=r"^The worker's role lacks a right: 42501 permission denied"):
        worker.run()
    assert limited.value("select count(*) from pgflow.step_tasks where status = 'started'") == started
    assert limited.worker_row(worker)["stopped_at"] is not None


def role_of(bench: Bench) -> str:
    """The role that the workers connect as."""
    (role,) = re.findall(r"user=(\S+)", bench.dsn)
    return str(role)
