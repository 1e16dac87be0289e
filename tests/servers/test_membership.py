"""Queues as members of extension pgmq, which PGMQ made them up to 1.5, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.servers import (
    Server,
    attach_queues_to_extension,
    detach_queues_from_extension,
    install_pgmq,
    pgmq_as_extension,
)

Db = psycopg.Connection[Any]

ORDERS = {"a_orders", "q_orders", "q_orders_msg_id_seq"}
BILLS = {"a_bills", "q_bills", "q_bills_msg_id_seq"}


@pytest.fixture
def db(server: Server) -> Iterator[Db]:
    """A database with PGMQ as an extension and the queues Orders and bills, in autocommit."""
    dsn = server.create_database("membership")
    with psycopg.connect(dsn, autocommit=True) as connection:
        if not pgmq_as_extension(connection):
            pytest.fail("this server cannot have PGMQ as an extension: run these tests on an embedded one")
        install_pgmq(connection, "extension")
        connection.execute("select pgmq.create('Orders'), pgmq.create('bills')")
        yield connection
    server.drop_database("membership")


def queue_members(db: Db) -> set[str]:
    rows = db.execute(
        """
        select c.relname from pg_depend d
        join pg_extension e on e.oid = d.refobjid and e.extname = 'pgmq'
        join pg_class c on c.oid = d.objid
        where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'
          and c.relname ~ '^[qa]_'
        """
    )
    return {name for (name,) in rows}


def test_a_queue_is_attached_in_any_spelling_and_once(db: Db) -> None:
    assert queue_members(db) == set()
    attach_queues_to_extension(db, "Orders")
    assert queue_members(db) == ORDERS
    attach_queues_to_extension(db, "ORDERS", "orders")
    assert queue_members(db) == ORDERS


def test_an_attached_queue_works_and_cannot_be_dropped_by_hand(db: Db) -> None:
    attach_queues_to_extension(db, "Orders")
    assert db.execute("select * from pgmq.send('Orders', '{}')").fetchall() == [(1,)]
    assert db.execute("select pgmq.archive('Orders', 1)").fetchall() == [(True,)]
    for table in ("q_orders", "a_orders"):
        with pytest.raises(psycopg.errors.DependentObjectsStillExist) as caught:
            db.execute(f"drop table pgmq.{table}".encode())
        assert caught.value.diag.message_primary == (
            f"cannot drop table pgmq.{table} because extension pgmq requires it"
        )


def test_without_names_every_queue_is_attached_and_detached(db: Db) -> None:
    attach_queues_to_extension(db)
    assert queue_members(db) == ORDERS | BILLS
    detach_queues_from_extension(db, "bills")
    assert queue_members(db) == ORDERS
    detach_queues_from_extension(db)
    assert queue_members(db) == set()
    db.execute("drop table pgmq.q_orders")


def test_a_queue_with_a_missing_part_is_refused_and_nothing_is_changed(db: Db) -> None:
    db.execute("drop table pgmq.a_bills")
    with pytest.raises(PgflowMigrateError) as caught:
        attach_queues_to_extension(db, "Orders", "bills")
    assert caught.value.message == "Queue 'bills' is missing or has lost its table, archive or sequence."
    assert queue_members(db) == set()


def test_without_the_extension_it_says_so(server: Server) -> None:
    with psycopg.connect(server.create_database("without")) as connection:
        install_pgmq(connection, "sql")
        for change in (attach_queues_to_extension, detach_queues_from_extension):
            with pytest.raises(PgflowMigrateError) as caught:
                change(connection)
            assert caught.value.message == "PGMQ is not installed as an extension in this database."
    server.drop_database("without")
