"""Deletion drops the flow's own queues and no other, after its rows; in doubt nothing is deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgflow_migrate.replay.templates import upgrade_to

Connection = psycopg.Connection[dict[str, Any]]
Snapshot = Callable[[Connection], dict[str, Any]]
Refused = Callable[..., psycopg.errors.Diagnostic]

REVISIONS = ("dirty_runs",)
DELETE = "select pgflow.delete_flow_and_data('orders')"
TABLES = ("step_tasks", "step_states", "runs", "deps", "steps", "flows")
OTHERS = 'queue "billing" is used by flow "Billing", too'


def populate(session: Connection, flow: str) -> None:
    """A flow with three runs: one task completed and archived, one claimed, the others queued."""
    session.execute("select pgflow.create_flow(%s)", (flow,))
    session.execute("select pgflow.add_step(%s, 'pack')", (flow,))
    session.execute("select pgflow.add_step(%s, 'ship', array['pack'])", (flow,))
    for _ in range(3):
        session.execute("select pgflow.start_flow(%s, '{}')", (flow,))
    session.execute("select pgflow.start_tasks(%s, array[1, 2], null)", (flow,))
    session.execute(
        "select pgflow.complete_task(run_id, step_slug, 0, '1') from pgflow.step_tasks"
        " where flow_slug = %s and message_id = 1",
        (flow,),
    )


@pytest.fixture
def both(session: Connection) -> Connection:
    """Two flows, in a superuser's session and in an ordinary owner's."""
    populate(session, "orders")
    populate(session, "Billing")
    return session


def relations(session: Connection) -> set[str]:
    """Everything in PGMQ that bears the name of a flow."""
    rows = session.execute(
        "select relname from pg_class"
        " where relnamespace = 'pgmq'::regnamespace and relname ~ 'orders|billing|camel'"
    ).fetchall()
    return {row["relname"] for row in rows}


def spellings(session: Connection) -> list[str]:
    return [
        row["queue_name"] for row in session.execute("select queue_name from pgmq.meta order by 1").fetchall()
    ]


def flows_with_rows(session: Connection) -> dict[str, set[str]]:
    """Whose rows each table holds."""
    return {
        table: {
            row["flow_slug"]
            for row in session.execute(f"select distinct flow_slug from pgflow.{table}".encode()).fetchall()
        }
        for table in TABLES
    }


# -- what goes, and in which order


def test_a_flow_goes_with_all_that_it_has_run_and_its_queue_and_nothing_else_goes(both: Connection) -> None:
    others = {name for name in relations(both) if "billing" in name}
    both.execute(DELETE.encode())
    assert flows_with_rows(both) == {table: {"Billing"} for table in TABLES}
    assert (spellings(both), relations(both)) == (["billing"], others)


def test_no_message_is_moved_or_deleted_one_by_one(superuser: Connection) -> None:
    populate(superuser, "orders")
    superuser.execute(
        """
        create function public.refuse() returns trigger language plpgsql as
          $$ begin raise exception '% of %', tg_op, tg_table_name; end $$;
        create trigger refuse before insert or update or delete or truncate on pgmq.q_orders
          for each statement execute function public.refuse();
        create trigger refuse before insert or update or delete or truncate on pgmq.a_orders
          for each statement execute function public.refuse();
        """
    )
    with pytest.raises(psycopg.errors.RaiseException, match=r"(INSERT|DELETE) of [aq]_orders"):
        superuser.execute("select pgmq.archive('orders', 2::bigint)")
    superuser.execute(DELETE.encode())
    assert relations(superuser) == set()


def test_rows_go_before_the_queue_and_the_flow_itself_goes_last(superuser: Connection) -> None:
    populate(superuser, "orders")
    superuser.execute(
        """
        create table public.deletions (id int generated always as identity, name text, queue text, flow bool);
        create function public.note() returns trigger language plpgsql as $$
        begin
          insert into public.deletions (name, queue, flow)
          values (tg_table_name, to_regclass('pgmq.q_orders')::text, exists (select from pgflow.flows));
          return null;
        end
        $$;
        """
    )
    for table in TABLES:
        superuser.execute(
            f"create trigger note after delete on pgflow.{table}"
            " for each statement execute function public.note()".encode()
        )
    superuser.execute(DELETE.encode())
    assert superuser.execute("select name, queue, flow from public.deletions order by id").fetchall() == [
        *({"name": table, "queue": "pgmq.q_orders", "flow": True} for table in TABLES[:-1]),
        {"name": "flows", "queue": None, "flow": False},
    ]


def test_every_queue_of_the_route_goes(both: Connection) -> None:
    both.execute("select pgmq.create('Orders__ship')")
    both.execute("select pgmq.create('orders__other')")
    both.execute(
        "update pgflow.steps set queue_name = 'orders__ship'"
        " where flow_slug = 'orders' and step_slug = 'ship'"
    )
    both.execute(DELETE.encode())
    assert spellings(both) == ["billing", "orders__other"]
    assert not {name for name in relations(both) if "orders" in name and "other" not in name}


@pytest.mark.parametrize("slug", ["absent", "ORDERS", "", None, "'; drop schema pgflow cascade; --"])
def test_an_unknown_flow_is_ignored(
    both: Connection, superuser: Connection, snapshot: Snapshot, slug: str
) -> None:
    before = snapshot(superuser)
    both.execute("select pgflow.delete_flow_and_data(%s)", (slug,))
    assert snapshot(superuser) == before


def test_tasks_without_a_message_go_as_well(both: Connection) -> None:
    both.execute("update pgflow.step_tasks set message_id = null")
    both.execute(DELETE.encode())
    assert flows_with_rows(both)["step_tasks"] == {"Billing"}


def test_what_comes_after_finds_no_flow(both: Connection) -> None:
    """Late callbacks do nothing; a claim with messages read before is refused, the old call gives no rows."""
    run = both.execute(
        "select run_id from pgflow.step_tasks where flow_slug = 'orders' and message_id = 2"
    ).fetchone()
    assert run is not None
    both.execute(DELETE.encode())
    for call in ("complete_task(%s, 'pack', 0, '1')", "fail_task(%s, 'pack', 0, 'late')"):
        assert both.execute(f"select * from pgflow.{call}".encode(), (run["run_id"],)).fetchall() == []
    assert both.execute("select * from pgflow.start_tasks('orders', array[3], null)").fetchall() == []
    claim = both.execute("select pgflow.claim_tasks('orders', 'orders', array[3], null) as c").fetchone()
    assert claim is not None
    assert (claim["c"]["outcome"], claim["c"]["reason"]) == ("fatal", 'flow "orders" does not exist')


def test_a_flow_can_be_made_again_and_starts_anew(both: Connection) -> None:
    both.execute(DELETE.encode())
    populate(both, "orders")
    assert both.execute(
        "select min(message_id) as n from pgflow.step_tasks where flow_slug = 'orders'"
    ).fetchone() == {"n": 1}


# -- doubt

DOUBTS = {
    "its steps in another's queue": (
        "update pgflow.steps set queue_name = 'billing' where flow_slug = 'orders'",
        OTHERS,
    ),
    "another's steps in its queue": (
        "update pgflow.steps set queue_name = 'orders' where flow_slug = 'Billing'",
        'queue "orders" is used by flow "Billing", too',
    ),
    "another's task in its queue": (
        "update pgflow.step_tasks set queue_name = 'orders', message_id = 99"
        " where flow_slug = 'Billing' and message_id = 3",
        'queue "orders" is used by flow "Billing", too',
    ),
    "its task in another's queue": (
        "update pgflow.step_tasks set queue_name = 'billing', message_id = 99"
        " where flow_slug = 'orders' and message_id = 3",
        'its tasks are in queue "billing", its steps are not',
    ),
    "its task in no queue of its own": (
        "update pgflow.step_tasks set queue_name = 'elsewhere' where flow_slug = 'orders'",
        'its tasks are in queue "elsewhere", its steps are not',
    ),
    "its task without a message elsewhere": (
        "update pgflow.step_tasks set queue_name = 'elsewhere', message_id = null where flow_slug = 'orders'",
        'its tasks are in queue "elsewhere", its steps are not',
    ),
    "a step's queue missing": (
        "update pgflow.steps set queue_name = 'nowhere' where flow_slug = 'orders' and step_slug = 'ship';"
        " update pgflow.step_tasks set queue_name = 'orders'  where flow_slug = 'orders'",
        'queue "nowhere": pgmq.a_nowhere is missing, pgmq.meta has no row for it, pgmq.q_nowhere is missing',
    ),
    "no queue table": ("drop table pgmq.q_orders", 'queue "orders": pgmq.q_orders is missing'),
    "no archive": ("drop table pgmq.a_orders", 'queue "orders": pgmq.a_orders is missing'),
    "no tables": (
        "drop table pgmq.q_orders, pgmq.a_orders",
        'queue "orders": pgmq.a_orders is missing, pgmq.q_orders is missing',
    ),
    "no metadata": (
        "delete from pgmq.meta where queue_name = 'orders'",
        'queue "orders": pgmq.meta has no row for it',
    ),
    "nothing left": (
        "select pgmq.drop_queue('orders')",
        'queue "orders": pgmq.a_orders is missing, pgmq.meta has no row for it, pgmq.q_orders is missing',
    ),
    "two spellings": (
        "insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('ORDERS', false, false)",
        'queue "orders": pgmq.meta has 2 rows for it, not one: "ORDERS", "orders"',
    ),
    "a view": (
        "alter table pgmq.q_orders rename to kept; create view pgmq.q_orders as table pgmq.kept",
        'queue "orders": pgmq.q_orders is not an ordinary, logged table',
    ),
    "a table of somebody else's": (
        "drop table pgmq.a_orders; create table pgmq.a_orders (msg_id bigint primary key, note text)",
        'queue "orders": pgmq.a_orders has no column archived_at of type timestamp with time zone, ',
    ),
}


@pytest.mark.parametrize(("arrange", "doubt"), DOUBTS.values(), ids=DOUBTS)
def test_in_doubt_nothing_is_deleted(
    both: Connection, superuser: Connection, refused: Refused, arrange: str, doubt: str
) -> None:
    superuser.execute(arrange.encode())
    found = refused(both, DELETE)
    assert found.sqlstate == "55000"
    assert str(found.message_primary).startswith(f'flow "orders" cannot be deleted: {doubt}')
    assert str(found.message_hint).startswith("Nothing was deleted.")


def test_another_flows_task_that_has_lost_its_message_is_no_doubt(both: Connection) -> None:
    both.execute(
        "update pgflow.step_tasks set queue_name = 'orders', message_id = null where flow_slug = 'Billing'"
    )
    both.execute(DELETE.encode())
    assert flows_with_rows(both)["flows"] == {"Billing"}


def test_a_lost_queue_can_be_made_again_and_then_all_is_deleted(
    both: Connection, superuser: Connection
) -> None:
    superuser.execute("select pgmq.drop_queue('orders')")
    both.execute("select pgmq.create('orders')")
    both.execute(DELETE.encode())
    assert spellings(both) == ["billing"]


@pytest.mark.parametrize(
    ("arrange", "sqlstate"),
    [
        ("create view public.looks as select * from pgmq.q_orders", "2BP01"),
        ("create view public.looks as select * from pgmq.a_orders", "2BP01"),
        (
            "create table public.notes (flow_slug text references pgflow.flows);"
            " insert into public.notes values ('orders')",
            "23503",
        ),
        (
            "create table public.notes (run_id uuid references pgflow.runs);"
            " insert into public.notes select run_id from pgflow.runs",
            "23503",
        ),
    ],
)
def test_a_failure_on_the_way_rolls_all_of_it_back(
    superuser: Connection, refused: Refused, arrange: str, sqlstate: str
) -> None:
    populate(superuser, "orders")
    superuser.execute(arrange.encode())
    assert refused(superuser, DELETE).sqlstate == sqlstate


# -- flows without steps


def test_a_registered_flow_without_a_queue_is_deleted(session: Connection) -> None:
    session.execute("select pgflow.create_flow('orders')")
    session.execute(DELETE.encode())
    assert flows_with_rows(session)["flows"] == set()


def test_a_compiled_flow_without_steps_is_deleted_with_its_queue(session: Connection) -> None:
    for register in (False, True):
        if register:
            session.execute("select pgflow.create_flow('orders')")
        session.execute(
            "select pgflow.ensure_flow_compiled('orders', '{}', %s)", (Jsonb({"queueIdentity": True}),)
        )
        assert spellings(session) == ["orders"]
        session.execute(DELETE.encode())
        assert (spellings(session), relations(session)) == ([], set())


def test_a_queue_that_has_appeared_beside_a_flow_without_steps_is_not_dropped(
    session: Connection, refused: Refused
) -> None:
    session.execute("select pgflow.create_flow('orders')")
    session.execute("select pgmq.create('orders')")
    found = refused(session, DELETE)
    assert (found.sqlstate, found.message_primary) == (
        "55000",
        'flow "orders" cannot be deleted: queue "orders" is not known to be its own',
    )


# -- the life of a queue in mixed case


def test_a_mixed_case_queue_is_made_migrated_archived_dropped_and_made_again(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at("core_0_16_0")
    session = connect(dsn)
    populate(session, "camelCase")
    assert spellings(session) == ["camelCase"]
    made = {"q_camelcase", "a_camelcase", "q_camelcase_msg_id_seq", "archived_at_idx_camelCase"}
    assert made <= relations(session)

    upgrade_to(dsn, "queue_identity")
    assert spellings(session) == ["camelCase"]
    assert session.execute("select distinct queue_name from pgflow.step_tasks").fetchall() == [
        {"queue_name": "camelcase"}
    ]
    session.execute("select pgflow.start_tasks('camelCase', array[3], null)")
    session.execute(
        "select pgflow.complete_task(run_id, step_slug, 0, '1') from pgflow.step_tasks where message_id = 3"
    )
    assert session.execute("select msg_id from pgmq.a_camelcase order by 1").fetchall() == [
        {"msg_id": 1},
        {"msg_id": 3},
    ]

    session.execute("select pgflow.delete_flow_and_data('camelCase')")
    assert (spellings(session), relations(session)) == ([], set())

    populate(session, "camelCase")
    assert spellings(session) == ["camelcase"]
    assert {name.lower() for name in made} <= relations(session)
    assert session.execute("select last_value from pgmq.q_camelcase_msg_id_seq").fetchone() == {
        "last_value": 4
    }
    session.execute("select pgflow.delete_flow_and_data('camelCase')")
    assert (spellings(session), relations(session)) == ([], set())
