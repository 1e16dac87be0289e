"""Tasks: what the upgrade will fill, and what it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate.audit import Finding
from pgflow_migrate.audit.run import run_audit

Database = psycopg.Connection[dict[str, Any]]
Audited = Callable[[Database], list[tuple[Any, ...]]]
Row = Callable[[Finding], tuple[Any, ...]]

RUN = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def mapped(database: Database) -> Database:
    """Flow Orders with 5000 tasks of a map step, none of whose messages is active any more; flow billing."""
    database.execute("select pgflow.create_flow('Orders'); select pgflow.create_flow('billing');")
    database.execute("select pgflow.add_step('Orders', 'pack', step_type => 'map')")
    database.execute(
        "select pgflow.start_flow('Orders', (select jsonb_agg(i) from generate_series(1, 5000) as i), %s)",
        [RUN],
    )
    database.execute("truncate pgmq.q_orders")
    return database


def first_twenty(first: int = 0) -> tuple[str, ...]:
    return tuple(f"{RUN}/pack/{index}" for index in range(first, first + 20))


def test_steps_and_tasks_to_fill_are_counted_for_each_flow(mapped: Database, row: Row) -> None:
    mapped.execute("select pgflow.add_step('billing', 'a'); select pgflow.add_step('billing', 'b')")
    mapped.execute("select pgflow.start_flow('billing', '{}')")
    infos = [row(finding) for finding in run_audit(mapped).of("info")]
    assert infos[:-2] == [
        ("info", "backfill-steps", "Orders", None, "orders", 1, ()),
        ("info", "backfill-steps", "billing", None, "billing", 2, ()),
        ("info", "backfill-tasks", "Orders", None, "orders", 5000, ()),
        ("info", "backfill-tasks", "billing", None, "billing", 2, ()),
    ]


def test_tasks_without_a_message_are_an_info(mapped: Database, row: Row, audited: Audited) -> None:
    mapped.execute("update pgflow.step_tasks set message_id = null where task_index >= 100")
    assert audited(mapped) == []
    found = [row(finding) for finding in run_audit(mapped).findings if finding.code == "null-message-id"]
    assert found == [("info", "null-message-id", "Orders", None, "orders", 4900, first_twenty(100))]


def test_tasks_of_another_flow_than_their_runs(mapped: Database, audited: Audited) -> None:
    mapped.execute("update pgflow.step_tasks set flow_slug = 'billing'")
    assert audited(mapped) == [("error", "task-flow-mismatch", "billing", None, None, 5000, first_twenty())]


def test_each_task_is_judged_by_its_own_run(mapped: Database, audited: Audited) -> None:
    mapped.execute("select pgflow.start_flow('Orders', '[1, 2]') from generate_series(1, 3)")
    mapped.execute("truncate pgmq.q_orders")
    mapped.execute("update pgflow.step_tasks set flow_slug = 'billing' where run_id = %s", [RUN])
    assert audited(mapped) == [("error", "task-flow-mismatch", "billing", None, None, 5000, first_twenty())]


def test_tasks_without_a_run_count_as_a_mismatch(mapped: Database, audited: Audited) -> None:
    mapped.execute(
        "set session_replication_role = replica; delete from pgflow.runs; reset session_replication_role"
    )
    assert audited(mapped) == [("error", "task-flow-mismatch", "Orders", None, None, 5000, first_twenty())]


def test_tasks_and_steps_of_flows_that_do_not_exist(mapped: Database, audited: Audited) -> None:
    """A restore without triggers checks no foreign key."""
    mapped.execute(
        "set session_replication_role = replica; delete from pgflow.flows where flow_slug = 'Orders';"
        "insert into pgflow.steps (flow_slug, step_slug) values (repeat('x', 48), 'a');"
        "reset session_replication_role"
    )
    assert audited(mapped) == [
        ("error", "queue-name-invalid", "x" * 48, None, "x" * 48, 1, ()),
        ("error", "task-flow-mismatch", "Orders", None, None, 5000, first_twenty()),
    ]


def test_message_ids_that_several_tasks_have(mapped: Database, audited: Audited) -> None:
    mapped.execute("update pgflow.step_tasks set message_id = 9007199254740993 + task_index / 2")
    mapped.execute("select setval('pgmq.q_orders_msg_id_seq', max(message_id)) from pgflow.step_tasks")
    samples = tuple(f"orders/{9007199254740993 + number}" for number in range(20))
    assert audited(mapped) == [("error", "duplicate-queue-message", "Orders", None, "orders", 2500, samples)]


@pytest.mark.parametrize(
    ("counter", "sample"),
    [
        ("select nextval('pgmq.q_orders_msg_id_seq')", None),
        ("select setval('pgmq.q_orders_msg_id_seq', 5000)", None),
        ("select setval('pgmq.q_orders_msg_id_seq', 5001, false)", None),
        (
            "select setval('pgmq.q_orders_msg_id_seq', 5000, false)",
            "next msg_id 5000, highest message_id 5000",
        ),
        ("select setval('pgmq.q_orders_msg_id_seq', 4999)", "next msg_id 5000, highest message_id 5000"),
        ("alter sequence pgmq.q_orders_msg_id_seq restart", "next msg_id 1, highest message_id 5000"),
        (
            "drop table pgmq.q_orders, pgmq.a_orders; select pgmq.create('Orders')",
            "next msg_id 1, highest message_id 5000",
        ),
    ],
)
def test_the_next_message_must_get_an_id_that_no_task_has(
    counter: str, sample: str | None, mapped: Database, audited: Audited
) -> None:
    mapped.execute(counter.encode())
    expected = [("error", "queue-sequence-behind", "Orders", None, "orders", 1, (sample,))] if sample else []
    assert audited(mapped) == expected


def test_of_flows_that_share_a_queue_the_highest_id_counts(mapped: Database, audited: Audited) -> None:
    mapped.execute("select pgflow.create_flow('orders'); delete from pgmq.meta where queue_name = 'orders'")
    mapped.execute("select pgflow.add_step('orders', 'send'); select pgflow.start_flow('orders', '{}')")
    mapped.execute("truncate pgmq.q_orders; select setval('pgmq.q_orders_msg_id_seq', 7)")
    assert [row for row in audited(mapped) if row[1] != "flow-slug-case-duplicate"] == [
        (
            "error",
            "queue-sequence-behind",
            None,
            None,
            "orders",
            1,
            ("next msg_id 8, highest message_id 5001",),
        )
    ]


def test_only_the_sequence_that_hands_out_the_ids_is_looked_at(mapped: Database, audited: Audited) -> None:
    mapped.execute(
        """
        create sequence pgmq.of_another_column owned by pgmq.q_orders.read_ct;
        create table public.q_orders (
          msg_id bigint generated always as identity (sequence name public.elsewhere), message jsonb
        );
        insert into public.q_orders (message) values ('1'), ('2');
        """
    )
    assert audited(mapped) == []
    assert run_audit(mapped).findings[-1].samples[-1] == "0 messages in 2 queues"


def test_the_hint_moves_the_sequence(mapped: Database, audited: Audited) -> None:
    mapped.execute("alter sequence pgmq.q_orders_msg_id_seq restart")
    mapped.execute("alter sequence pgmq.q_orders_msg_id_seq rename to \"the 'counter'\"")
    (found,) = run_audit(mapped).blocking
    assert found.hint.startswith(
        "Messages to come would repeat ids of tasks. Move the sequence: select setval("
    )
    mapped.execute(found.hint.partition(": ")[2].encode())
    assert audited(mapped) == []
    assert mapped.execute("select pgmq.send('orders', '{}'::jsonb) as id").fetchone() == {"id": 5001}


def test_the_same_id_in_different_queues_is_fine(mapped: Database, audited: Audited) -> None:
    mapped.execute("select pgflow.add_step('billing', 'send'); select pgflow.start_flow('billing', '{}')")
    ids = mapped.execute("select count(*) from pgflow.step_tasks where message_id = 1").fetchone()
    assert ids == {"count": 2}
    assert audited(mapped) == []


def test_the_same_id_for_flows_that_share_a_queue_is_a_duplicate(mapped: Database, audited: Audited) -> None:
    mapped.execute("select pgflow.create_flow('orders'); delete from pgmq.meta where queue_name = 'orders'")
    mapped.execute("select pgflow.add_step('orders', 'send'); select pgflow.start_flow('orders', '{}')")
    mapped.execute("update pgflow.step_tasks set message_id = 1 where flow_slug = 'orders'")
    mapped.execute("truncate pgmq.q_orders")
    assert [row for row in audited(mapped) if row[1] != "flow-slug-case-duplicate"] == [
        ("error", "duplicate-queue-message", None, None, "orders", 1, ("orders/1",))
    ]
