"""What must hold between transactions in a whole database, whatever flows and queues there are.

The laws of runs, step states, tasks and events are those of the runtime tests, which know one flow. Here
messages are known by queue and id, and the queues are those that PGMQ lists.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from tests.core.runtime import test_invariants as invariants

Connection = psycopg.Connection[dict[str, Any]]

TASK_LAWS = {
    law: broken for law, broken in invariants.TASK_LAWS.items() if law not in ("T10", "Q2", "Q3")
} | {
    "queue name": "queue_name <> lower(flow_slug)",
    "live, but not in its queue": "live and (queue_name, message_id) not in (select * from queued)",
    "over, but not in its archive": "not live and (queue_name, message_id) not in (select * from archived)",
}

MESSAGE_LAWS = {
    "not of one live task": """(select count(*) from task where live
        and (task.queue_name, task.message_id) = (queued.queue_name, queued.msg_id)) <> 1""",
    "queued and archived": "(queue_name, msg_id) in (select * from archived)",
    "archived twice": """(select count(*) from archived where
        (archived.queue_name, archived.msg_id) = (queued.queue_name, queued.msg_id)) > 1""",
}

# Events outlive the runs of a deleted flow.
FORGET = """
delete from realtime.messages
where topic not in (select 'pgflow:run:' || run_id from pgflow.runs)
"""


def _messages(prefix: str, queues: list[str]) -> sql.Composable:
    """A query of queue name and message id over the tables of all queues."""
    tables: list[sql.Composable] = [
        sql.SQL("select {}::text as queue_name, msg_id from {}").format(
            queue.lower(), sql.Identifier("pgmq", prefix + queue.lower())
        )
        for queue in queues
    ]
    return sql.SQL(" union all ").join(
        tables or [sql.SQL("select ''::text as queue_name, 0::bigint as msg_id where false")]
    )


def breaches(connection: Connection) -> list[str]:
    """The laws that the database breaks, each with its culprit; the session must be autocommitting.

    Deletes the events of runs that are no more.
    """
    if connection.execute("select to_regclass('pg_temp.state') is null as new").fetchall()[0]["new"]:
        connection.execute(invariants.VIEWS.encode())
    connection.execute(FORGET)
    queues = [row["queue_name"] for row in connection.execute("select queue_name from pgmq.meta").fetchall()]
    found = connection.execute(
        sql.SQL("with queued as ({}), archived as ({}) {}").format(
            _messages("q_", queues),
            _messages("a_", queues),
            sql.SQL(_laws()),
        )
    ).fetchall()
    return sorted(f"{row['law']}: {row['culprit']}" for row in found)


def _laws() -> str:
    tables = [
        ("pgflow.runs", "run_id::text", invariants.RUN_LAWS),
        ("state", "run_id || ' ' || step_slug", invariants.STATE_LAWS),
        ("task", "run_id || ' ' || step_slug || ' ' || task_index", TASK_LAWS),
        ("queued", "queue_name || ' ' || msg_id", MESSAGE_LAWS),
    ]
    queries = [invariants.EVENTS]
    for table, key, group in tables:
        marks = ", ".join(f"case when {broken} then '{law}' end" for law, broken in group.items())
        queries.append(
            f"select law, {key} as culprit from (select * from {table} offset 0) as {table.split('.')[-1]}"
            f" cross join unnest(array[{marks}]) as law where law is not null"
        )
    return "\nunion all\n".join(queries)
