"""Working a flow off through SQL alone, with the calls that a worker makes."""

from __future__ import annotations

from typing import Any

import psycopg

WORKER = "00000000-0000-4000-9000-00000000ffff"

# An array, so that a map step behind the task finds elements to work on.
OUTPUT = '["one", "two"]'


def work_off(connection: psycopg.Connection[Any], flow_slug: str) -> int:
    """Complete every task that is claimed or visible, until nothing more comes.

    Args:
        connection: in autocommit.
        flow_slug: the flow, in its own spelling.

    Returns:
        The number of tasks completed.
    """
    connection.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, %s, 'replay')"
        " on conflict do nothing",
        (WORKER, flow_slug),
    )
    done = _complete(connection, flow_slug)
    while _claim(connection, flow_slug):
        done += _complete(connection, flow_slug)
    return done


def _claim(connection: psycopg.Connection[Any], flow_slug: str) -> int:
    with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute("select msg_id from pgmq.read(%s::text, 30, 100)", (flow_slug,))
        messages = [message for (message,) in cursor]
        cursor.execute(
            "select count(*) from pgflow.start_tasks(%s, %s::bigint[], %s)", (flow_slug, messages, WORKER)
        )
        (claimed,) = cursor.fetchone() or (0,)
        return int(claimed)


def _complete(connection: psycopg.Connection[Any], flow_slug: str) -> int:
    with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute(
            "select run_id, step_slug, task_index from pgflow.step_tasks"
            " where flow_slug = %s and status = 'started' order by run_id, step_slug, task_index",
            (flow_slug,),
        )
        tasks = cursor.fetchall()
        for task in tasks:
            cursor.execute("select from pgflow.complete_task(%s, %s, %s, %s::jsonb)", (*task, OUTPUT))
        return len(tasks)
