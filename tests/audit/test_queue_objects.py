"""The physical side of a queue: its tables, sequence, metadata and membership."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.servers.membership import attach_queues_to_extension

Database = psycopg.Connection[dict[str, Any]]
Audited = Callable[[Database], list[tuple[Any, ...]]]


@pytest.fixture
def orders(database: Database) -> Database:
    """A flow called Orders, so that its queue is orders."""
    database.execute("select pgflow.create_flow('Orders'); select pgflow.add_step('Orders', 'pack');")
    return database


def malformed(*reasons: str) -> list[tuple[Any, ...]]:
    return [("error", "queue-malformed", "Orders", None, "orders", len(reasons), reasons)]


DEFECTS = {
    "a column is missing": (
        "alter table pgmq.q_orders drop column headers",
        ["pgmq.q_orders lacks column headers (jsonb)"],
    ),
    "a column of the archive is missing": (
        "alter table pgmq.a_orders drop column enqueued_at",
        ["pgmq.a_orders lacks column enqueued_at (timestamp with time zone not null default)"],
    ),
    "a column is unknown": (
        'alter table pgmq.q_orders add column "my tag" text',
        ['pgmq.q_orders has an extra column "my tag"'],
    ),
    "a column has another type": (
        "alter table pgmq.q_orders alter column read_ct type bigint",
        ["pgmq.q_orders.read_ct is bigint not null default, not integer not null default"],
    ),
    "a column may be null": (
        "alter table pgmq.q_orders alter column vt drop not null",
        ["pgmq.q_orders.vt is timestamp with time zone, not timestamp with time zone not null"],
    ),
    "a column may not be null": (
        "alter table pgmq.q_orders alter column headers set not null",
        ["pgmq.q_orders.headers is jsonb not null, not jsonb"],
    ),
    "a default is missing": (
        "alter table pgmq.a_orders alter column archived_at drop default",
        [
            "pgmq.a_orders.archived_at is timestamp with time zone not null, "
            "not timestamp with time zone not null default"
        ],
    ),
    "a column is generated": (
        "alter table pgmq.q_orders drop column headers, "
        "add column headers jsonb generated always as (message -> 'headers') stored",
        ["pgmq.q_orders.headers is jsonb generated, not jsonb"],
    ),
    "msg_id is no identity": (
        "alter table pgmq.q_orders alter column msg_id drop identity",
        [
            "pgmq.q_orders.msg_id does not own its sequence",
            "pgmq.q_orders.msg_id is bigint not null, not bigint not null identity",
        ],
    ),
    "the sequence is a stranger's": (
        "alter table pgmq.q_orders alter column msg_id drop identity;"
        "create sequence pgmq.q_orders_msg_id_seq;"
        "alter table pgmq.q_orders alter column msg_id set default nextval('pgmq.q_orders_msg_id_seq')",
        [
            "pgmq.q_orders.msg_id does not own its sequence",
            "pgmq.q_orders.msg_id is bigint not null default, not bigint not null identity",
        ],
    ),
    "the sequence is owned, but no identity's": (
        "alter table pgmq.q_orders alter column msg_id drop identity;"
        "create sequence pgmq.q_orders_msg_id_seq owned by pgmq.q_orders.msg_id;"
        "alter table pgmq.q_orders alter column msg_id set default nextval('pgmq.q_orders_msg_id_seq')",
        [
            "pgmq.q_orders.msg_id does not own its sequence",
            "pgmq.q_orders.msg_id is bigint not null default, not bigint not null identity",
        ],
    ),
    "another column has the sequence": (
        "alter table pgmq.q_orders alter column msg_id drop identity, alter column read_ct drop default;"
        "alter table pgmq.q_orders alter column read_ct add generated always as identity",
        [
            "pgmq.q_orders.msg_id does not own its sequence",
            "pgmq.q_orders.msg_id is bigint not null, not bigint not null identity",
            "pgmq.q_orders.read_ct is integer not null identity, not integer not null default",
        ],
    ),
    "the primary key is missing": (
        "alter table pgmq.q_orders drop constraint q_orders_pkey",
        ["pgmq.q_orders has no primary key on msg_id"],
    ),
    "the primary key has another column first": (
        "alter table pgmq.a_orders drop constraint a_orders_pkey, add primary key (read_ct, msg_id)",
        ["pgmq.a_orders has no primary key on msg_id"],
    ),
    "the primary key has a column more": (
        "alter table pgmq.q_orders drop constraint q_orders_pkey, add primary key (msg_id, read_ct)",
        ["pgmq.q_orders has no primary key on msg_id"],
    ),
    "msg_id is unique, and no primary key": (
        "alter table pgmq.q_orders drop constraint q_orders_pkey, add unique (msg_id)",
        ["pgmq.q_orders has no primary key on msg_id"],
    ),
    "the index on vt is missing": (
        "drop index pgmq.q_orders_vt_idx",
        ["pgmq.q_orders has no valid index on vt"],
    ),
    "the index on vt is partial": (
        "drop index pgmq.q_orders_vt_idx; create index on pgmq.q_orders (vt) where read_ct = 0",
        ["pgmq.q_orders has no valid index on vt"],
    ),
    "the index on archived_at is invalid": (
        "update pg_index set indisvalid = false "
        "where indexrelid = 'pgmq.\"archived_at_idx_Orders\"'::regclass",
        ["pgmq.a_orders has no valid index on archived_at"],
    ),
    "a table is unlogged": (
        "alter table pgmq.a_orders set unlogged",
        ["pgmq.a_orders is unlogged"],
    ),
    "the queue is a view": (
        "alter table pgmq.q_orders rename to kept; create view pgmq.q_orders as select * from pgmq.kept",
        ["pgmq.q_orders is a view"],
    ),
    "the queue is partitioned": (
        "drop table pgmq.q_orders;"
        "create table pgmq.q_orders (msg_id bigint, message jsonb) partition by range (msg_id)",
        ["pgmq.q_orders is partitioned"],
    ),
    "the archive's name is an index's": (
        "drop table pgmq.a_orders; create index a_orders on pgmq.q_orders (read_ct)",
        ["pgmq.a_orders is an index"],
    ),
    "a table has children": (
        "create table public.child () inherits (pgmq.a_orders)",
        ["pgmq.a_orders inherits or is inherited from"],
    ),
    "the metadata say partitioned": (
        "update pgmq.meta set is_partitioned = true",
        ["pgmq.meta says partitioned"],
    ),
    "the metadata say unlogged": (
        "update pgmq.meta set is_unlogged = true",
        ["pgmq.meta says unlogged"],
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_is_named(defect: str, orders: Database, audited: Audited) -> None:
    damage, reasons = DEFECTS[defect]
    orders.execute(damage.encode())
    assert audited(orders) == malformed(*reasons)


def test_a_queue_of_another_shape_is_read_if_it_can_be(orders: Database, audited: Audited) -> None:
    orders.execute("alter table pgmq.q_orders drop column headers")
    orders.execute("insert into pgmq.q_orders (vt, message) values (now(), '1')")
    assert [row[1] for row in audited(orders)] == ["message-without-task", "queue-malformed"]


def test_a_queue_whose_ids_have_another_type_is_not_read(orders: Database, audited: Audited) -> None:
    orders.execute("alter table pgmq.q_orders alter column msg_id type integer")
    orders.execute("insert into pgmq.q_orders (vt, message) values (now(), '1')")
    assert audited(orders) == malformed(
        "pgmq.q_orders.msg_id is integer not null identity, not bigint not null identity"
    )


def test_several_indexes_and_storage_options_are_no_defects(orders: Database, audited: Audited) -> None:
    orders.execute(
        "drop index pgmq.q_orders_vt_idx; create index on pgmq.q_orders (vt, msg_id);"
        "alter table pgmq.q_orders set (fillfactor = 70);"
        "create index on pgmq.q_orders using gin (message)"
    )
    assert audited(orders) == []


def test_the_name_of_the_sequence_does_not_matter(orders: Database, audited: Audited) -> None:
    orders.execute("alter sequence pgmq.q_orders_msg_id_seq rename to q_orders_msg_id_seq1")
    assert audited(orders) == []


def test_tables_of_a_release_without_last_read_at_are_accepted_where_this_pgmq_has_none(
    orders: Database, audited: Audited
) -> None:
    """The shape of PGMQ 1.5.1, whose message_record has no last_read_at."""
    orders.execute("alter table pgmq.q_orders drop column last_read_at")
    orders.execute("alter table pgmq.a_orders drop column last_read_at")
    assert audited(orders) == malformed(
        "pgmq.a_orders lacks column last_read_at (timestamp with time zone)",
        "pgmq.q_orders lacks column last_read_at (timestamp with time zone)",
    )
    orders.execute("alter type pgmq.message_record drop attribute last_read_at")
    assert audited(orders) == []


def test_last_read_at_is_one_too_many_where_this_pgmq_has_none(orders: Database, audited: Audited) -> None:
    """There set_vt returns whole rows, and fails on the extra column."""
    orders.execute("alter type pgmq.message_record drop attribute last_read_at")
    assert audited(orders) == malformed(
        "pgmq.a_orders has an extra column last_read_at", "pgmq.q_orders has an extra column last_read_at"
    )


def test_tables_upgraded_from_older_releases_have_last_read_at_last(
    orders: Database, audited: Audited
) -> None:
    orders.execute(
        "alter table pgmq.q_orders drop column last_read_at;"
        "alter table pgmq.a_orders drop column last_read_at;"
        "alter table pgmq.q_orders add column last_read_at timestamptz;"
        "alter table pgmq.a_orders add column last_read_at timestamptz"
    )
    assert audited(orders) == []


def test_without_its_tables_a_registered_queue_is_incomplete(orders: Database, audited: Audited) -> None:
    orders.execute("drop table pgmq.q_orders, pgmq.a_orders")
    assert audited(orders) == [
        ("error", "queue-incomplete", "Orders", None, "orders", 2, ("pgmq.a_orders", "pgmq.q_orders"))
    ]


def test_half_a_queue_without_metadata_is_both(orders: Database, audited: Audited) -> None:
    orders.execute("drop table pgmq.q_orders; delete from pgmq.meta")
    assert audited(orders) == [
        ("error", "queue-incomplete", "Orders", None, "orders", 1, ("pgmq.q_orders",)),
        ("error", "queue-metadata-missing", "Orders", None, "orders", 1, ()),
    ]


def test_one_other_spelling_in_the_metadata_is_enough(orders: Database, audited: Audited) -> None:
    orders.execute("update pgmq.meta set queue_name = 'oRDERS'")
    assert audited(orders) == []


def test_the_hint_completes_a_queue_under_its_registered_spelling(orders: Database) -> None:
    orders.execute("update pgmq.meta set queue_name = 'oRDERS'; drop table pgmq.a_orders")
    (found,) = run_audit(orders).blocking
    assert found.hint == "Create what is missing: select pgmq.create('oRDERS');"
    orders.execute(found.hint.partition(": ")[2].encode())
    assert run_audit(orders).blocking == ()


def test_flows_that_share_a_queue_get_one_row_without_a_flow(orders: Database, audited: Audited) -> None:
    orders.execute("select pgflow.create_flow('orders'); drop table pgmq.a_orders")
    assert [row for row in audited(orders) if row[1] != "flow-slug-case-duplicate"] == [
        ("error", "queue-incomplete", None, None, "orders", 1, ("pgmq.a_orders",)),
        ("error", "queue-metadata-ambiguous", None, None, "orders", 2, ("Orders", "orders")),
    ]


@pytest.mark.parametrize("column", ["is_partitioned", "is_unlogged"])
def test_what_one_of_two_spellings_says_is_told(orders: Database, audited: Audited, column: str) -> None:
    orders.execute(
        "insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('orders', false, false)"
    )
    orders.execute(f"update pgmq.meta set {column} = true where queue_name = 'Orders'".encode())
    said = f"pgmq.meta says {column.removeprefix('is_')}"
    assert [(row[1], row[6]) for row in audited(orders)] == [
        ("queue-malformed", (said,)),
        ("queue-metadata-ambiguous", ("Orders", "orders")),
    ]


def test_queues_that_no_flow_has_are_none_of_our_business(orders: Database, audited: Audited) -> None:
    orders.execute(
        "select pgmq.create('mine'); drop table pgmq.a_mine; alter table pgmq.q_mine drop column vt"
    )
    orders.execute(
        "insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('MINE', true, true)"
    )
    assert audited(orders) == []


@pytest.fixture
def extension(orders: Database) -> Database:
    """The same, where PGMQ is an extension."""
    if not orders.execute("select extname from pg_extension where extname = 'pgmq'").fetchone():
        pytest.skip("PGMQ is installed from plain SQL on this server: nothing can be a member of it")
    return orders


def test_full_membership_is_a_warning_where_pgmq_expects_none(extension: Database, audited: Audited) -> None:
    extension.execute("select pgflow.create_flow('billing')")
    attach_queues_to_extension(extension, "orders")
    members = ("a_orders", "q_orders", "q_orders_msg_id_seq")
    assert audited(extension) == [
        ("warning", "queue-extension-membership", "Orders", None, "orders", 3, members)
    ]
    hint = next(f.hint for f in run_audit(extension).findings if f.code == "queue-extension-membership")
    assert hint == (
        "Until this is done pgmq.drop_queue() fails: alter extension pgmq drop table pgmq.a_orders; "
        "alter extension pgmq drop table pgmq.q_orders; "
        "alter extension pgmq drop sequence pgmq.q_orders_msg_id_seq;"
    )
    extension.execute(hint.partition(": ")[2].encode())
    assert audited(extension) == []


def test_full_membership_is_normal_before_pgmq_1_6(extension: Database, audited: Audited) -> None:
    attach_queues_to_extension(extension, "orders")
    extension.execute("alter extension pgmq drop function pgmq.acquire_queue_lock(text)")
    extension.execute("drop function pgmq.acquire_queue_lock(text)")
    extension.execute("create function public.acquire_queue_lock(text) returns void language sql as 'select'")
    assert audited(extension) == []


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ("table pgmq.q_orders", "extension pgmq owns q_orders but not a_orders, q_orders_msg_id_seq"),
        ("table pgmq.a_orders", "extension pgmq owns a_orders but not q_orders, q_orders_msg_id_seq"),
        (
            "sequence pgmq.q_orders_msg_id_seq",
            "extension pgmq owns q_orders_msg_id_seq but not a_orders, q_orders",
        ),
    ],
)
def test_partial_membership_is_a_defect(
    kept: str, reason: str, extension: Database, audited: Audited
) -> None:
    extension.execute(f"alter extension pgmq add {kept}".encode())
    assert audited(extension) == malformed(reason)


def test_membership_of_another_extension_is_a_defect(extension: Database, audited: Audited) -> None:
    extension.execute("alter extension plpgsql add table pgmq.q_orders")
    assert audited(extension) == malformed("extension plpgsql owns pgmq.q_orders")
