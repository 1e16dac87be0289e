"""Finishing what there is to do, with the calls of queue identity."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import sql

Connection = psycopg.Connection[dict[str, Any]]

PATIENCE = 60.0
COMPLETE = "select pgflow.complete_task(%s, %s, %s, '[1]')"


def work_off(session: Connection, *flows: str) -> None:
    """Complete every task of these flows until no run of theirs is open.

    Tasks that are started have their worker, which completes them first.
    """
    for task in session.execute(
        "select run_id, step_slug, task_index from pgflow.step_tasks"
        " where status = 'started' and flow_slug = any (%s)",
        (list(flows),),
    ).fetchall():
        session.execute(COMPLETE, tuple(task.values()))
    deadline = time.monotonic() + PATIENCE
    while session.execute(
        "select from pgflow.runs where status = 'started' and flow_slug = any (%s)", (list(flows),)
    ).fetchall():
        assert time.monotonic() < deadline, "runs that never end"
        for flow in flows:
            session.execute(
                sql.SQL("update {} set vt = clock_timestamp()").format(
                    sql.Identifier("pgmq", f"q_{flow.lower()}")
                )
            )
            messages = session.execute("select msg_id from pgmq.read(%s, 30, 200)", (flow,)).fetchall()
            (told,) = session.execute(
                "select pgflow.claim_tasks(%s, %s, %s::bigint[], null) as outcome",
                (flow, flow, [message["msg_id"] for message in messages]),
            ).fetchall()
            assert told["outcome"]["outcome"] == "claimed", told
            for task in told["outcome"]["tasks"]:
                session.execute(COMPLETE, (task["run_id"], task["step_slug"], task["task_index"]))
