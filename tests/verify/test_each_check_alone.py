"""Each invariant broken alone, by SQL: exactly that violation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate.verify.checks import CHECKS
from pgflow_migrate.verify.run import verify

Database = psycopg.Connection[dict[str, Any]]
Rows = list[tuple[Any, ...]]

RUN = "00000000-0000-4000-8000-00000000000"

# A run of protocol 2, its first task claimed.
PAIR = """
  select pgflow.create_flow('pair', 1, 0, 60);
  select pgflow.add_step('pair', 'a');
  select pgflow.add_step('pair', 'b', array['a']);
  select pgflow.start_flow_v2('pair', '{}', '00000000-0000-4000-8000-000000000006');
  select pgflow.claim_task_v2('00000000-0000-4000-8000-000000000006', 'a', 0, null, null,
    '00000000-0000-4000-9000-000000000002', '00000000-0000-4000-8000-0000000000c1');
"""
BROKEN: dict[str, tuple[str, Rows]] = {
    "another revision is recorded": (
        "update pgflow_migrate.alembic_version set version_num = 'core_0_16_0'",
        [("version", "schema pgflow_migrate", 1, ("core_0_16_0",))],
    ),
    "no revision is recorded": (
        "delete from pgflow_migrate.alembic_version",
        [("version", "schema pgflow_migrate", 1, ("none",))],
    ),
    "the ledger lacks a revision": (
        "delete from pgflow_migrate.schema_migrations where name = 'core_0_15_1'",
        [("ledger", "schema pgflow_migrate", 1, ("core_0_15_1",))],
    ),
    "a revision was another when it was applied": (
        "update pgflow_migrate.schema_migrations set checksum = 'else' where name = 'queue_identity'",
        [("checksum", "schema pgflow_migrate", 1, ("queue_identity",))],
    ),
    "a column may be null": (
        "alter table pgflow.step_tasks alter queue_name drop not null",
        [("catalogue", "schema pgflow", 1, ("column step_tasks.queue_name: nullable is yes, not no",))],
    ),
    "a function is missing": (
        "drop function pgflow.claim_tasks(text, text, bigint[], uuid)",
        [
            (
                "catalogue",
                "schema pgflow",
                1,
                ("function claim_tasks(text, text, bigint[], uuid) is missing",),
            )
        ],
    ),
    "the unique index is missing": (
        "drop index pgflow.step_tasks_queue_message_key",
        [("catalogue", "schema pgflow", 1, ("index step_tasks.step_tasks_queue_message_key is missing",))],
    ),
    "a flow's slug has an underscore at its end": (
        "alter table pgflow.flows drop constraint slug_is_valid;"
        " insert into pgflow.flows (flow_slug) values ('late_');"
        " alter table pgflow.flows add constraint slug_is_valid"
        " check (pgflow.is_valid_slug(flow_slug)) not valid;"
        " update pg_constraint set convalidated = true where conname = 'slug_is_valid'",
        [("slug-valid", "flow late_", 1, ("late_",))],
    ),
    "a step's slug has two underscores": (
        "alter table pgflow.steps drop constraint steps_step_slug_check;"
        " insert into pgflow.steps (flow_slug, step_slug, step_index, queue_name)"
        " values ('Orders', 'sort__out', 1, 'orders');"
        " alter table pgflow.steps add constraint steps_step_slug_check"
        " check (pgflow.is_valid_slug(step_slug)) not valid;"
        " update pg_constraint set convalidated = true where conname = 'steps_step_slug_check'",
        [("slug-valid", "flow Orders", 1, ("sort__out",))],
    ),
    "a step is routed elsewhere": (
        "select pgmq.create('other');"
        " update pgflow.steps set queue_name = 'other' where flow_slug = 'mail';"
        " update pgflow.step_tasks set queue_name = 'other', message_id = null where flow_slug = 'mail';"
        " select pgmq.purge_queue('mail')",
        [("step-route", "flow mail", 1, ("send in other",))],
    ),
    "a task is routed elsewhere": (
        f"update pgflow.step_tasks set queue_name = 'mail', message_id = null where run_id = '{RUN}1'",
        [("task-route", "flow Orders", 1, (f"{RUN}1/pack/0",))],
    ),
    "a queue is not in pgmq.meta": (
        "delete from pgmq.meta where queue_name = 'mail'",
        [("queue-metadata", "queue mail", 0, ())],
    ),
    "a queue is in pgmq.meta twice": (
        "insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('MAIL', false, false)",
        [("queue-metadata", "queue mail", 2, ("MAIL", "mail"))],
    ),
    "a queue is missing": (
        "drop table pgmq.q_mail",
        [("queue-objects", "queue mail", 1, ("pgmq.q_mail is missing",))],
    ),
    "the queue of a flow without steps is missing": (
        "drop table pgmq.q_bare",
        [("queue-objects", "queue bare", 1, ("pgmq.q_bare is missing",))],
    ),
    "an archive is missing": (
        "drop table pgmq.a_orders",
        [("queue-objects", "queue orders", 1, ("pgmq.a_orders is missing",))],
    ),
    "a queue is unlogged, and has neither key nor headers": (
        "alter table pgmq.q_mail set unlogged; alter table pgmq.q_mail drop constraint q_mail_pkey,"
        " drop column headers",
        [
            (
                "queue-objects",
                "queue mail",
                3,
                (
                    "pgmq.q_mail has no column headers jsonb",
                    "pgmq.q_mail has no primary key on msg_id",
                    "pgmq.q_mail is not an ordinary, logged table",
                ),
            )
        ],
    ),
    "a queue does not number its messages": (
        "alter table pgmq.q_mail alter msg_id drop identity",
        [("queue-objects", "queue mail", 1, ("pgmq.q_mail.msg_id is not numbered by itself",))],
    ),
    "pgmq.meta says that a queue is partitioned": (
        "update pgmq.meta set is_partitioned = true where queue_name = 'mail'",
        [("queue-objects", "queue mail", 1, ("pgmq.meta says partitioned",))],
    ),
    "an application sends into a flow's queue": (
        "select pgmq.send('mail', '{\"secret\": 1}'::jsonb, 0::integer) from generate_series(1, 21)",
        [("message-without-task", "queue mail", 21, tuple(f"mail/{number}" for number in range(2, 22)))],
    ),
    "a work row is of another flow than its run": (
        f"update pgflow.run_work set flow_slug = 'mail' where run_id = '{RUN}6'",
        [("v2-work", "protocol 2", 1, (f"{RUN}6",))],
    ),
    "a work row is of no run": (
        "insert into pgflow.run_work (run_id, flow_slug, definition_sha256)"
        f" values ('{RUN}9', 'pair', sha256(''))",
        [("v2-work", "protocol 2", 1, (f"{RUN}9",))],
    ),
    "a run of protocol 2 with a claim has lost its work row": (
        f"delete from pgflow.run_work where run_id = '{RUN}6'",
        [("v2-claim", "protocol 2", 1, ("00000000-0000-4000-8000-0000000000c1",))],
    ),
    "a run of protocol 1 with a started task has got a work row": (
        "insert into pgflow.run_work (run_id, flow_slug, definition_sha256)"
        f" values ('{RUN}3', 'Orders', sha256(''))",
        [("v2-claim", "protocol 2", 1, (f"{RUN}3/pack/0",))],
    ),
    "a started task of protocol 2 has no claim": (
        f"update pgflow.task_claims set state = 'revoked', revoked_at = now(), revoked_reason = 'lease_lost'"
        f" where run_id = '{RUN}6'",
        [("v2-claim", "protocol 2", 1, (f"{RUN}6/a/0",))],
    ),
    "a claim is on another message than its task": (
        f"update pgflow.task_claims set message_id = 7 where run_id = '{RUN}6'",
        [("v2-claim", "protocol 2", 1, (f"{RUN}6/a/0",))],
    ),
    "a claim is on a task of protocol 1": (
        f"update pgflow.step_tasks set status = 'queued', started_at = null, current_claim_id = null"
        f" where run_id = '{RUN}6';"
        f" update pgflow.task_claims set (run_id, step_slug, queue_name, message_id) ="
        f" ('{RUN}3', 'pack', 'orders', 3)",
        [("v2-claim", "protocol 2", 1, ("00000000-0000-4000-8000-0000000000c1",))],
    ),
    "a run of protocol 2 is over, and a task of it is not": (
        f"update pgflow.runs set status = 'failed', failed_at = now() where run_id = '{RUN}6';"
        f" update pgflow.step_tasks set status = 'queued', started_at = null, current_claim_id = null"
        f" where run_id = '{RUN}6'; delete from pgflow.task_claims",
        [("v2-run-end", "protocol 2", 1, (f"{RUN}6",))],
    ),
    "a task is of another flow than its run": (
        f"update pgflow.runs set flow_slug = 'mail' where run_id = '{RUN}1'",
        [("task-flow", "flow Orders", 1, (f"{RUN}1/pack/0",))],
    ),
    "the message of a queued task was deleted": (
        "select pgmq.delete('orders', 4)",
        [("live-task-message", "queue orders", 1, (f"{RUN}4/pack/0",))],
    ),
    "the messages of a queued and of a started task were purged": (
        "select pgmq.purge_queue('orders')",
        [("live-task-message", "queue orders", 2, (f"{RUN}3/pack/0", f"{RUN}4/pack/0"))],
    ),
    "the message of a started task was archived": (
        "select pgmq.archive('orders', 3)",
        [("live-task-archived", "queue orders", 1, (f"{RUN}3/pack/0",))],
    ),
    "a message is in the queue and in the archive": (
        "insert into pgmq.a_orders (msg_id, vt) values (4, now())",
        [("live-task-archived", "queue orders", 1, (f"{RUN}4/pack/0",))],
    ),
    "a queue numbers its messages anew": (
        "alter sequence pgmq.q_orders_msg_id_seq restart with 2",
        [("queue-sequence", "queue orders", 1, ("next msg_id 2, highest message_id 4",))],
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_exactly_that_is_reported(
    what: str, database: Database, violated: Callable[[Database], Rows]
) -> None:
    statement, expected = BROKEN[what]
    of_protocol_2 = expected[0][0].startswith("v2-")
    if of_protocol_2:
        database.execute(PAIR.encode())
        assert violated(database) == []
        # Guards keep out what they can: here somebody goes past them.
        database.execute("set session_replication_role = replica")
    database.execute(statement.encode())
    assert violated(database) == expected


def test_slugs_that_differ_in_case_alone_need_the_indexes_gone(
    database: Database, violated: Callable[[Database], Rows]
) -> None:
    database.execute(
        """
        drop index pgflow.flows_slug_case_insensitive_key, pgflow.steps_slug_case_insensitive_key;
        insert into pgflow.flows (flow_slug) values ('MAIL');
        insert into pgflow.steps (flow_slug, step_slug, step_index, queue_name) values
          ('Orders', 'PACK', 1, 'orders');
        """
    )
    found = violated(database)
    assert [row[0] for row in found] == ["catalogue", "slug-case-unique", "slug-case-unique"]
    assert found[1:] == [
        ("slug-case-unique", "flow MAIL", 2, ("MAIL", "mail")),
        ("slug-case-unique", "flow Orders", 2, ("PACK", "pack")),
    ]


def test_two_tasks_with_one_message_need_the_index_gone(
    database: Database, violated: Callable[[Database], Rows]
) -> None:
    database.execute("drop index pgflow.step_tasks_queue_message_key")
    database.execute("update pgflow.step_tasks set message_id = 3 where message_id = 2")
    database.execute("select pgmq.send('orders', '{}'::jsonb, 0::integer)")
    assert violated(database)[1:] == [
        ("message-of-one-task", "queue orders", 1, ("orders/3",)),
        ("message-without-task", "queue orders", 1, ("orders/5",)),
    ]


def test_everything_at_once_comes_in_the_order_of_the_checks(database: Database) -> None:
    for what in ("a queue numbers its messages anew", "an application sends into a flow's queue"):
        database.execute(BROKEN[what][0].encode())
    for what in ("a queue is in pgmq.meta twice", "no revision is recorded", "a function is missing"):
        database.execute(BROKEN[what][0].encode())
    assert [violation.check for violation in verify(database.info.dsn).violations] == [
        "version",
        "catalogue",
        "queue-metadata",
        "message-without-task",
        "queue-sequence",
    ]


def test_every_check_is_broken_here() -> None:
    alone = {row[0] for _, rows in BROKEN.values() for row in rows}
    assert alone == set(CHECKS) - {"slug-case-unique", "message-of-one-task"}


def test_no_body_is_ever_shown(database: Database) -> None:
    database.execute(BROKEN["an application sends into a flow's queue"][0].encode())
    assert "secret" not in repr(verify(database.info.dsn))
