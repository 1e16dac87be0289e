"""The upgrade runs the same checks before it commits: what a trigger spoils takes all of it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.script import upgrade_script
from pgflow_migrate.upgrade.session import Fence
from pgflow_migrate.verify.violations import violations_from_error

Database = psycopg.Connection[dict[str, Any]]

# What an event trigger does when the unique index has been made, the last change to the tables.
SPOILT = {
    "a task is routed elsewhere": (
        "update pgflow.step_tasks set queue_name = ''mail'', message_id = null; delete from pgmq.q_orders",
        "task-route: flow Orders: 00000000-0000-4000-8000-000000000001/pack/0. ",
    ),
    "a step is routed elsewhere": (
        "update pgflow.steps set queue_name = ''elsewhere'';"
        " update pgflow.step_tasks set queue_name = ''elsewhere'', message_id = null;"
        " insert into pgmq.meta (queue_name, is_partitioned, is_unlogged)"
        " values (''elsewhere'', false, false);"
        " create table pgmq.q_elsewhere (like pgmq.q_orders including all);"
        " create table pgmq.a_elsewhere (like pgmq.a_orders including all)",
        "step-route: flow Orders: pack in elsewhere. ",
    ),
    "a message comes that no task has": (
        "insert into pgmq.q_orders (msg_id, vt) overriding system value values (2, now())",
        "message-without-task: queue orders: orders/2. ",
    ),
    "the metadata of a queue go": (
        "delete from pgmq.meta",
        "queue-metadata: queue orders. ",
    ),
    "a column becomes nullable": (
        "alter table pgflow.steps alter queue_name drop not null",
        "catalogue: schema pgflow: pgflow.steps.queue_name is missing, nullable or generated. ",
    ),
}


@pytest.fixture
def old(database_at: Callable[[str], str], connect: Callable[[str], Database]) -> Database:
    """A database at 0.16.0 with a task in its queue."""
    old = connect(database_at("core_0_16_0"))
    old.execute(
        """
        select pgflow.create_flow('Orders');
        select pgflow.add_step('Orders', 'pack');
        select pgflow.start_flow('Orders', '{}', '00000000-0000-4000-8000-000000000001');
        """
    )
    return old


def spoil(old: Database, statements: str) -> None:
    """Have an event trigger execute ``statements`` once, within the upgrade."""
    old.execute(
        f"""
        create function public.spoil() returns event_trigger language plpgsql as '
          begin
            if exists (
              select from pg_event_trigger_ddl_commands() c
              where c.object_identity = ''pgflow.step_tasks_queue_message_key''
            ) then
              {statements};
            end if;
          end';
        create event trigger spoil on ddl_command_end execute function public.spoil();
        """.encode()
    )


@pytest.mark.parametrize("what", SPOILT)
def test_an_upgrade_that_is_spoilt_is_taken_back_whole(old: Database, what: str) -> None:
    statements, says = SPOILT[what]
    spoil(old, statements)
    before = signature.take(old)
    with pytest.raises(PgflowMigrateError) as caught:
        upgrade(old.info.dsn)
    assert caught.value.message == (
        "The upgrade does not pass its own last look:"
        " queue identity is incomplete: one invariant does not hold."
    )
    assert [detail[: len(says)] for detail in caught.value.details] == [says]
    assert caught.value.remedy.startswith("The database is unchanged. ")
    assert differences(before, signature.take(old)) == ()


def test_the_script_is_refused_likewise(old: Database) -> None:
    spoil(old, SPOILT["the metadata of a queue go"][0])
    before = signature.take(old)
    with pytest.raises(psycopg.Error) as caught:
        old.execute(upgrade_script("0.16.0", Fence()).encode())
    old.execute("rollback")
    assert caught.value.sqlstate == "PF004"
    assert [(one.check, one.subject) for one in violations_from_error(caught.value)] == [
        ("queue-metadata", "queue orders")
    ]
    line = json.loads(caught.value.diag.message_detail or "")
    assert list(line) == ["check", "subject", "count", "samples", "hint"]
    assert differences(before, signature.take(old)) == ()
