"""The SQL that the guides tell an operator to run does what they say."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^( *)```sql\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
WORKER = "00000000-0000-0000-0000-000000000001"

REGISTERED = """
  select pgflow.track_worker_function('orders-worker');
  insert into pgflow.workers (worker_id, function_name, queue_name)
  values ('00000000-0000-0000-0000-000000000001', 'orders-worker', 'orders');
"""

Connection = psycopg.Connection[dict[str, Any]]


def statements(document: str, heading: str) -> list[bytes]:
    """The SQL blocks of a section, in order."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    _, found, section = text.partition(f"\n## {heading}\n")
    assert found, f"{document} has no section {heading}"
    return [textwrap.dedent(sql).encode() for _, sql in BLOCK.findall(section.partition("\n## ")[0])]


def job_activity(session: Connection) -> dict[str, bool]:
    rows = session.execute("select jobname, active from cron.job where jobname like 'pgflow%'").fetchall()
    return {row["jobname"]: row["active"] for row in rows}


def test_the_window_puts_workers_and_cron_jobs_to_rest(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    session = connect(database_at("core_0_16_0"))
    session.execute(REGISTERED)
    disable, deprecate, rest, who = statements("upgrade.md", "The window")
    assert session.execute(disable).fetchall() == [{"function_name": "orders-worker"}]
    session.execute(deprecate)
    session.execute(rest)
    assert job_activity(session) == {
        "pgflow_ensure_workers": False,
        "pgflow_requeue_stalled_tasks": False,
        "pgflow_cleanup_logs": False,
    }
    (working,) = session.execute(who).fetchall()
    assert (str(working["worker_id"]), working["deprecated_at"] is not None) == (WORKER, True)
    session.execute("select pgflow.mark_worker_stopped(%s)", (WORKER,))
    assert session.execute(who).fetchall() == []


def test_afterwards_they_are_woken(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    session = connect(database_at("queue_identity"))
    session.execute(
        "insert into pgflow.worker_functions (function_name, enabled) values ('orders-worker', false)"
    )
    session.execute(statements("upgrade.md", "The window")[2])
    enable, wake = statements("upgrade.md", "After")
    session.execute(enable)
    session.execute(wake)
    assert session.execute("select enabled from pgflow.worker_functions").fetchall() == [{"enabled": True}]
    assert set(job_activity(session).values()) == {True}


def test_a_claim_and_the_way_out_of_a_fatal_one(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    session = connect(database_at("queue_identity"))
    session.execute("select pgflow.create_flow('Orders')")
    session.execute("select pgflow.add_step('Orders', 'pack')")
    session.execute("select pgflow.start_flow('Orders', '{}')")
    session.execute(REGISTERED)
    session.execute("""select pgmq.send('orders', '{"run_id": 1}') from generate_series(2, 4)""")
    claim, archive, resume = [
        part
        for block in statements("queue-identity.md", "Claims")
        for part in block.replace(b"\xe2\x80\xa6", WORKER.encode()).splitlines()
    ]
    (outcome,) = session.execute(claim).fetchall()
    assert outcome["claim_tasks"]["outcome"] == "fatal"
    assert outcome["claim_tasks"]["messages"] == [{"msg_id": "2", "reason": "missing_task"}]
    for message in (2, 3, 4):
        session.execute(archive.replace(b", 4)", b", %d)" % message))
    assert session.execute(resume).fetchall() == [{"resume_worker_function": True}]
    (outcome,) = session.execute(claim).fetchall()
    assert [task["msg_id"] for task in outcome["claim_tasks"]["tasks"]] == ["1"]
