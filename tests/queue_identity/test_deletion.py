"""Deletion drops only queues that are the flow's alone, and whole; else it deletes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]
OTHERS = 'queue "billing" is used by flow "Billing", too'


@pytest.fixture
def session(database_at: Callable[[str], str], connect: Callable[[str], Connection]) -> Connection:
    """Two flows with a run each."""
    session = connect(database_at("queue_identity"))
    for flow in ("orders", "Billing"):
        session.execute("select pgflow.create_flow(%s)", (flow,))
        session.execute("select pgflow.add_step(%s, 'pack')", (flow,))
        session.execute("select pgflow.start_flow(%s, '{}')", (flow,))
    return session


def everything(session: Connection) -> list[dict[str, Any]]:
    return session.execute(
        """
        select 'flow ' || flow_slug as what from pgflow.flows
        union all select 'step ' || flow_slug from pgflow.steps
        union all select 'run ' || flow_slug from pgflow.runs
        union all select 'state ' || flow_slug from pgflow.step_states
        union all select 'task ' || flow_slug from pgflow.step_tasks
        union all select 'queue ' || queue_name from pgmq.meta
        union all
        select 'table ' || relname from pg_class
        where relnamespace = 'pgmq'::regnamespace and relkind = 'r' and relname ~ '^[qa]_'
        order by what
        """
    ).fetchall()


@pytest.mark.parametrize(
    ("arrange", "doubt"),
    [
        ("update pgflow.steps set queue_name = 'billing' where flow_slug = 'orders'", OTHERS),
        (
            "update pgflow.step_tasks set queue_name = 'billing', message_id = 9 where flow_slug = 'orders'",
            OTHERS,
        ),
        (
            "update pgflow.steps set queue_name = 'orders' where flow_slug = 'Billing'",
            'queue "orders" is used by flow "Billing", too',
        ),
        (
            "update pgflow.step_tasks set queue_name = 'orders', message_id = 9 where flow_slug = 'Billing'",
            'queue "orders" is used by flow "Billing", too',
        ),
        ("drop table pgmq.q_orders", "pgmq.q_orders is missing"),
        ("drop table pgmq.a_orders", "pgmq.a_orders is missing"),
        ("drop table pgmq.q_orders, pgmq.a_orders", "pgmq.a_orders is missing; pgmq.q_orders is missing"),
        (
            "update pgflow.steps set queue_name = 'nowhere' where flow_slug = 'orders'",
            "pgmq.a_nowhere is missing; pgmq.q_nowhere is missing",
        ),
    ],
)
def test_a_doubtful_queue_stops_it(session: Connection, arrange: str, doubt: str) -> None:
    session.execute(arrange.encode())
    before = everything(session)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as caught:
        session.execute("select pgflow.delete_flow_and_data('orders')")
    assert caught.value.diag.message_primary == f'flow "orders" cannot be deleted: {doubt}'
    assert everything(session) == before


def test_every_queue_of_the_flow_goes_and_no_other(session: Connection) -> None:
    session.execute("select pgmq.create('Orders_2')")
    session.execute("update pgflow.step_tasks set queue_name = 'orders_2' where flow_slug = 'orders'")
    session.execute("select pgflow.delete_flow_and_data('orders')")
    assert [row["what"] for row in everything(session)] == [
        "flow Billing",
        "queue Billing",
        "run Billing",
        "state Billing",
        "step Billing",
        "table a_billing",
        "table q_billing",
        "task Billing",
    ]
