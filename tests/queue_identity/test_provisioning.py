"""Who makes a queue, and whose it is: the persisted definition is the evidence; in doubt, refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.queue_identity.conftest import CAPABLE, shape

from pgflow_migrate.replay.templates import upgrade_to

Connection = psycopg.Connection[dict[str, Any]]
Snapshot = Callable[[Connection], dict[str, Any]]
Refused = Callable[..., psycopg.errors.Diagnostic]

ENSURE = "select pgflow.ensure_flow_compiled(%s, %s, %s)"


def compile_(session: Connection, flow: str, *steps: str) -> str:
    """The status that a worker with these steps is told."""
    row = session.execute(f"{ENSURE} as r", (flow, shape(*steps), CAPABLE)).fetchone()
    assert row is not None
    return str(row["r"]["status"])


def queues(session: Connection) -> list[str]:
    """The queues in PGMQ's own table."""
    return [
        row["queue_name"] for row in session.execute("select queue_name from pgmq.meta order by 1").fetchall()
    ]


def oid(session: Connection, table: str) -> int | None:
    row = session.execute("select to_regclass(%s)::oid::bigint as oid", (f"pgmq.{table}",)).fetchone()
    assert row is not None
    return None if row["oid"] is None else int(row["oid"])


# -- who makes it


def test_a_registered_flow_has_no_queue_until_its_first_step(session: Connection) -> None:
    session.execute("select pgflow.create_flow('camelCase')")
    assert queues(session) == []
    assert (oid(session, "q_camelcase"), oid(session, "a_camelcase")) == (None, None)
    step = session.execute("select * from pgflow.add_step('camelCase', 'first')").fetchone()
    assert step is not None
    assert step["queue_name"] == "camelcase"
    assert queues(session) == ["camelcase"]
    assert None not in (oid(session, "q_camelcase"), oid(session, "a_camelcase"))


def test_a_compiled_flow_has_its_queue_in_canonical_spelling(session: Connection) -> None:
    assert compile_(session, "camelCase", "first", "Second") == "compiled"
    assert queues(session) == ["camelcase"]
    assert session.execute(
        "select step_slug, queue_name from pgflow.steps order by step_index"
    ).fetchall() == [
        {"step_slug": "first", "queue_name": "camelcase"},
        {"step_slug": "Second", "queue_name": "camelcase"},
    ]


def test_a_plain_flow_without_steps_is_compiled_with_its_queue(
    session: Connection, superuser: Connection, snapshot: Snapshot
) -> None:
    assert compile_(session, "empty") == "compiled"
    assert queues(session) == ["empty"]
    before = snapshot(superuser)
    assert compile_(session, "empty") == "verified"
    assert snapshot(superuser) == before


def test_a_registered_flow_without_steps_gets_its_queue_from_the_compiler(
    session: Connection, superuser: Connection, snapshot: Snapshot
) -> None:
    session.execute("select pgflow.create_flow('empty')")
    assert compile_(session, "empty") == "verified"
    assert queues(session) == ["empty"]
    before = snapshot(superuser)
    assert compile_(session, "empty") == "verified"
    assert snapshot(superuser) == before
    session.execute("select pgflow.add_step('empty', 'first')")
    assert queues(session) == ["empty"]


def test_what_is_the_flows_own_is_used_again_as_it_is(session: Connection) -> None:
    compile_(session, "orders", "pack")
    session.execute("select pgmq.send('orders', '{}'::jsonb)")
    before = oid(session, "q_orders"), oid(session, "a_orders"), queues(session)
    session.execute("select pgflow.create_flow('orders')")
    session.execute("select pgflow.add_step('orders', 'pack')")
    session.execute("select pgflow.add_step('orders', 'ship')")
    assert compile_(session, "orders", "pack") == "mismatch"
    session.execute("select pgflow._create_flow_from_shape('orders', %s)", (shape("pack", "ship"),))
    assert (oid(session, "q_orders"), oid(session, "a_orders"), queues(session)) == before
    assert session.execute("select msg_id from pgmq.q_orders").fetchall() == [{"msg_id": 1}]


def test_flows_and_steps_added_in_one_transaction_or_in_many(session: Connection) -> None:
    with session.transaction():
        session.execute("select pgflow.create_flow('one')")
        session.execute("select pgflow.add_step('one', 'a')")
        session.execute("select pgflow.add_step('one', 'b')")
    for statement in ("create_flow('many')", "add_step('many', 'a')", "add_step('many', 'b')"):
        session.execute(f"select pgflow.{statement}".encode())
    assert queues(session) == ["many", "one"]


def test_a_run_of_a_flow_of_the_ordinary_owner_goes_all_the_way(session: Connection) -> None:
    compile_(session, "orders", "pack")
    session.execute("select pgflow.start_flow('orders', '{}')")
    session.execute("select pgmq.read('orders', 30, 1)")
    claimed = session.execute("select pgflow.claim_tasks('orders', 'orders', array[1], null) as c").fetchone()
    assert claimed is not None
    (task,) = claimed["c"]["tasks"]
    session.execute("select pgflow.complete_task(%s, 'pack', 0, '1')", (task["run_id"],))
    assert session.execute("select status from pgflow.runs").fetchall() == [{"status": "completed"}]
    session.execute("select pgflow.delete_flow_and_data('orders')")
    assert queues(session) == []


# -- who does not


NO_DDL = """
  create function public.refuse() returns event_trigger language plpgsql as
    $$ begin raise exception 'DDL: %', tg_tag; end $$;
  create event trigger refuse on ddl_command_start execute function public.refuse();
"""


def test_create_flow_and_start_ready_steps_define_nothing(superuser: Connection) -> None:
    compile_(superuser, "orders", "pack", "ship")
    superuser.execute(NO_DDL.encode())
    count = "select count(*) as n from pg_class"
    before = superuser.execute(count).fetchone()
    superuser.execute("select pgflow.create_flow('fresh')")
    superuser.execute("select pgflow.create_flow('orders')")
    run = superuser.execute("select run_id from pgflow.start_flow('orders', '{}')").fetchone()
    assert run is not None
    superuser.execute("select pgflow.start_ready_steps(%s)", (run["run_id"],))
    superuser.execute("select pgflow.add_step('orders', 'bill')")
    assert compile_(superuser, "orders", "pack", "ship", "bill") == "verified"
    assert superuser.execute(count).fetchone() == before
    # What does define something is seen by the trigger.
    for call in (
        "add_step('fresh', 'first')",
        "ensure_flow_compiled('new', '{}', '{\"queueIdentity\": true}')",
    ):
        with pytest.raises(psycopg.errors.RaiseException, match="DDL: CREATE TABLE"):
            superuser.execute(f"select pgflow.{call}".encode())


def test_create_flow_locks_nothing_of_pgmq_against_others(superuser: Connection) -> None:
    superuser.execute("select pgmq.create('unrelated')")
    with superuser.transaction():
        superuser.execute("select pgflow.create_flow('fresh')")
        held = superuser.execute(
            "select distinct l.mode from pg_locks l join pg_class c on c.oid = l.relation"
            " where l.pid = pg_backend_pid() and c.relnamespace = 'pgmq'::regnamespace"
        ).fetchall()
    assert held in ([], [{"mode": "AccessShareLock"}])


# -- a name that is taken

TAKEN = {
    "an application's queue": ("select pgmq.create('taken')", ['pgmq.meta has a row "taken"']),
    "another spelling": (
        "select pgmq.create('Taken')",
        ['pgmq.meta has a row "Taken"', "pgmq.a_taken exists"],
    ),
    "two spellings": (
        "select pgmq.create('Taken'); select pgmq.create('taken')",
        ['pgmq.meta has a row "Taken"', 'pgmq.meta has a row "taken"', "pgmq.q_taken exists"],
    ),
    "metadata only": (
        "insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('TAKEN', false, false)",
        ['pgmq.meta has a row "TAKEN"'],
    ),
    "the table only": ("create table pgmq.q_taken ()", ["pgmq.q_taken exists"]),
    "the archive only": ("create table pgmq.a_taken ()", ["pgmq.a_taken exists"]),
    "a view": ("create view pgmq.q_taken as select 1 as x", ["pgmq.q_taken exists"]),
    "a sequence": ("create sequence pgmq.a_taken", ["pgmq.a_taken exists"]),
    "a queue named like our index": ("select pgmq.create('taken_vt_idx')", ["pgmq.q_taken_vt_idx exists"]),
    "a queue named like our key": ("select pgmq.create('taken_pkey')", ["pgmq.q_taken_pkey exists"]),
    "a queue named like our sequence": (
        "select pgmq.create('taken_msg_id_seq')",
        ["pgmq.q_taken_msg_id_seq exists"],
    ),
    "a table named like our archive's index": (
        "create table pgmq.archived_at_idx_taken ()",
        ["pgmq.archived_at_idx_taken exists"],
    ),
}


@pytest.mark.parametrize(("arrange", "traces"), TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize("way", ["create_flow", "ensure_flow_compiled", "ensure_flow_compiled with steps"])
def test_a_new_flow_does_not_take_over_what_is_there(
    session: Connection, superuser: Connection, refused: Refused, way: str, arrange: str, traces: list[str]
) -> None:
    superuser.execute(arrange.encode())
    if way == "create_flow":
        found = refused(session, "select pgflow.create_flow('taken')")
    else:
        steps = ("first", "second") if "steps" in way else ()
        found = refused(session, ENSURE, "taken", shape(*steps), CAPABLE)
    assert found.sqlstate == "55000"
    assert found.message_primary is not None
    assert found.message_primary.startswith('queue "taken" is not flow "taken"\'s own: ')
    for trace in traces:
        assert trace in found.message_primary
    assert found.message_hint == (
        "Nothing was changed. Give the flow another slug, or drop the queue if nobody needs it."
    )


@pytest.mark.parametrize(("arrange", "traces"), TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize("way", ["add_step", "ensure_flow_compiled"])
def test_a_registered_flow_does_not_take_over_what_has_come_since(
    session: Connection, superuser: Connection, refused: Refused, way: str, arrange: str, traces: list[str]
) -> None:
    session.execute("select pgflow.create_flow('taken')")
    superuser.execute(arrange.encode())
    # Registering it again adopts nothing either.
    session.execute("select pgflow.create_flow('taken')")
    if way == "add_step":
        found = refused(session, "select pgflow.add_step('taken', 'first')")
    else:
        found = refused(session, ENSURE, "taken", shape(), CAPABLE)
    assert found.sqlstate == "55000"
    for trace in traces:
        assert trace in str(found.message_primary)


def test_a_flow_named_like_an_index_of_another_flows_queue_is_refused(
    session: Connection, refused: Refused
) -> None:
    compile_(session, "orders", "pack")
    for slug in ("orders_vt_idx", "orders_pkey", "orders_msg_id_seq"):
        found = refused(session, "select pgflow.create_flow(%s)", slug)
        assert found.sqlstate == "55000"
        assert str(found.message_primary).startswith(f'queue "{slug}" is not flow "{slug}"\'s own: ')
        assert str(found.message_primary).endswith(f"pgmq.q_{slug} exists")


def test_relations_of_these_names_in_other_schemas_do_not_matter(superuser: Connection) -> None:
    superuser.execute("create table public.q_orders (); create table public.a_orders ()")
    superuser.execute("create table public.q_orders_vt_idx ()")
    assert compile_(superuser, "orders", "pack") == "compiled"
    assert compile_(superuser, "orders", "pack") == "verified"


@pytest.mark.parametrize("way", ["create_flow", "ensure_flow_compiled"])
def test_a_queue_that_another_flows_steps_are_routed_to_is_refused(
    session: Connection, refused: Refused, way: str
) -> None:
    compile_(session, "other", "first")
    session.execute("update pgflow.steps set queue_name = 'wanted'")
    call = (
        ("select pgflow.create_flow('Wanted')",)
        if way == "create_flow"
        else (ENSURE, "Wanted", shape(), CAPABLE)
    )
    found = refused(session, *call)
    assert (found.sqlstate, found.message_primary) == (
        "55000",
        'queue "wanted" cannot serve flow "Wanted": it is the queue of flow "other"',
    )


def test_a_queue_that_another_flows_steps_came_to_share_serves_no_new_step(
    session: Connection, refused: Refused
) -> None:
    compile_(session, "other", "first")
    compile_(session, "orders", "pack")
    session.execute("update pgflow.steps set queue_name = 'orders' where flow_slug = 'other'")
    for call in (("select pgflow.add_step('orders', 'ship')",), (ENSURE, "orders", shape("pack"), CAPABLE)):
        found = refused(session, *call)
        assert (found.sqlstate, found.message_primary) == (
            "55000",
            'queue "orders" cannot serve flow "orders": it is the queue of flow "other"',
        )


@pytest.mark.parametrize("variant", ["ORDERS", "Orders", "orderS"])
def test_a_case_variant_of_a_flow_is_no_new_flow(session: Connection, refused: Refused, variant: str) -> None:
    session.execute("select pgflow.create_flow('orders')")
    for call in (("select pgflow.create_flow(%s)", variant), (ENSURE, variant, shape("a"), CAPABLE)):
        found = refused(session, *call)
        assert (found.sqlstate, found.constraint_name) == ("23505", "flows_slug_case_insensitive_key")
    found = refused(session, "select pgflow.add_step(%s, 'a')", variant)
    assert (found.sqlstate, found.constraint_name) == ("23503", "steps_flow_slug_fkey")


# -- a queue that is damaged or gone

DAMAGED = {
    "no metadata": ("delete from pgmq.meta", "pgmq.meta has no row for it"),
    "two spellings": (
        "insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('ORDERS', false, false)",
        'pgmq.meta has 2 rows for it, not one: "ORDERS", "orders"',
    ),
    "no table": ("drop table pgmq.q_orders", "pgmq.q_orders is missing"),
    "no archive": ("drop table pgmq.a_orders", "pgmq.a_orders is missing"),
    "nothing at all": (
        "select pgmq.drop_queue('orders')",
        "pgmq.a_orders is missing; pgmq.meta has no row for it; pgmq.q_orders is missing",
    ),
    "a view": (
        "alter table pgmq.q_orders rename to t; create view pgmq.q_orders as table pgmq.t",
        "pgmq.q_orders is not an ordinary, logged table",
    ),
    "unlogged": ("alter table pgmq.a_orders set unlogged", "pgmq.a_orders is not an ordinary, logged table"),
    "a column less": (
        "alter table pgmq.q_orders drop column headers",
        "pgmq.q_orders has no column headers of type jsonb",
    ),
    "a column of another type": (
        "alter table pgmq.a_orders alter message type json",
        "pgmq.a_orders has no column message of type jsonb",
    ),
    "no key": (
        "alter table pgmq.q_orders drop constraint q_orders_pkey",
        "pgmq.q_orders has no primary key on msg_id",
    ),
    # A table elsewhere has msg_id where this one has its key.
    "a key on another column": (
        "create table public.elsewhere (id int, msg_id bigint);"
        "alter table pgmq.q_orders drop constraint q_orders_pkey, add primary key (read_ct)",
        "pgmq.q_orders has no primary key on msg_id",
    ),
    "a key on two columns": (
        "alter table pgmq.a_orders drop constraint a_orders_pkey, add primary key (msg_id, vt)",
        "pgmq.a_orders has no primary key on msg_id",
    ),
}


@pytest.mark.parametrize(("damage", "fault"), DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("way", ["add_step", "ensure_flow_compiled"])
def test_a_damaged_queue_of_a_flow_is_neither_used_nor_mended(
    session: Connection, superuser: Connection, refused: Refused, way: str, damage: str, fault: str
) -> None:
    compile_(session, "orders", "pack")
    superuser.execute(damage.encode())
    if way == "add_step":
        found = refused(session, "select pgflow.add_step('orders', 'ship')")
    else:
        found = refused(session, ENSURE, "orders", shape("pack"), CAPABLE)
    assert (found.sqlstate, found.message_primary) == (
        "55000",
        f'queue "orders" of flow "orders" cannot be used: {fault}',
    )


def test_an_existing_flow_is_registered_again_without_a_look_at_its_queue_and_none_is_made(
    session: Connection, superuser: Connection, snapshot: Snapshot
) -> None:
    """0.16.0 made it again: a queue that starts from 1 beside tasks that have these ids already."""
    compile_(session, "orders", "pack")
    superuser.execute("select pgmq.drop_queue('orders')")
    before = snapshot(superuser)
    session.execute("select pgflow.create_flow('orders')")
    assert snapshot(superuser) == before
    assert queues(session) == []


def test_a_lost_queue_comes_back_as_the_hint_says(
    session: Connection, superuser: Connection, refused: Refused
) -> None:
    compile_(session, "orders", "pack")
    session.execute("select pgflow.start_flow('orders', '{}')")
    superuser.execute("select pgmq.drop_queue('orders')")
    hint = str(refused(session, ENSURE, "orders", shape("pack"), CAPABLE).message_hint)
    assert "pgmq.create('orders')" in hint
    session.execute("select pgmq.create('orders')")
    assert compile_(session, "orders", "pack") == "verified"


def test_without_its_queue_a_run_does_not_begin(
    session: Connection, superuser: Connection, refused: Refused
) -> None:
    compile_(session, "orders", "pack")
    superuser.execute("select pgmq.drop_queue('orders')")
    assert refused(session, "select pgflow.start_flow('orders', '{}')").sqlstate == "42P01"


def test_every_queue_of_the_route_is_verified(
    session: Connection, superuser: Connection, refused: Refused
) -> None:
    compile_(session, "orders", "pack", "ship")
    superuser.execute("update pgflow.steps set queue_name = 'orders__ship' where step_slug = 'ship'")
    found = refused(session, ENSURE, "orders", shape("pack", "ship"), CAPABLE)
    assert found.message_primary is not None
    assert found.message_primary.startswith('queue "orders__ship" of flow "orders" cannot be used: ')
    session.execute("select pgmq.create('orders__ship')")
    assert compile_(session, "orders", "pack", "ship") == "verified"


# -- the length of a name


def test_forty_seven_characters_are_the_most_that_a_queue_can_have(
    session: Connection, refused: Refused
) -> None:
    longest, longer = "A" * 47, "A" * 48
    assert compile_(session, longest, "first") == "compiled"
    assert queues(session) == ["a" * 47]
    for call in (("select pgflow.create_flow(%s)", longer), (ENSURE, longer, shape(), CAPABLE)):
        found = refused(session, *call)
        assert (found.sqlstate, found.message_primary, found.message_hint) == (
            "22023",
            f'flow "{longer}" cannot have a queue named "{longer.lower()}"',
            "A queue name has 1 to 47 lower-case letters, digits and underscores.",
        )


def test_a_step_does_not_count_in_the_length_of_the_queues_name(session: Connection) -> None:
    assert compile_(session, "f" * 47, "s" * 128) == "compiled"
    assert queues(session) == ["f" * 47]


def test_a_flow_that_was_put_in_by_hand_is_held_to_the_length_too(
    session: Connection, refused: Refused
) -> None:
    session.execute("insert into pgflow.flows (flow_slug) values (%s)", ("a" * 48,))
    for call in (("select pgflow.add_step(%s, 'first')", "a" * 48), (ENSURE, "a" * 48, shape(), CAPABLE)):
        assert refused(session, *call).sqlstate == "22023"


# -- flows from before the upgrade

CREATED = "select pgflow.create_flow('bare')"
HISTORIES = {
    "as usual": [CREATED],
    "its queue lost and made again": [CREATED, "select pgmq.drop_queue('bare')", CREATED],
    "its queue there before it": ["select pgmq.create('bare')", CREATED],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("then", ["compile", "add_step", "delete"])
def test_a_flow_without_steps_is_usable_after_the_upgrade(
    database_at: Callable[[str], str], connect: Callable[[str], Connection], history: list[str], then: str
) -> None:
    dsn = database_at("core_0_16_0")
    session = connect(dsn)
    for statement in history:
        session.execute(statement.encode())
    upgrade_to(dsn, "queue_identity")
    table = oid(session, "q_bare")
    if then == "compile":
        assert compile_(session, "bare") == "verified"
    elif then == "add_step":
        session.execute("select pgflow.add_step('bare', 'first')")
    else:
        session.execute("select pgflow.delete_flow_and_data('bare')")
        table = None
    assert oid(session, "q_bare") == table
    assert queues(session) == ([] if then == "delete" else ["bare"])


def test_a_flow_with_steps_keeps_its_mixed_case_queue_after_the_upgrade(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at("core_0_16_0")
    session = connect(dsn)
    session.execute("select pgflow.create_flow('camelCase'); select pgflow.add_step('camelCase', 'first')")
    upgrade_to(dsn, "queue_identity")
    assert compile_(session, "camelCase", "first") == "verified"
    session.execute("select pgflow.add_step('camelCase', 'second')")
    assert queues(session) == ["camelCase"]
