"""Renaming as docs/findings.md shows it keeps the history together."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate import resources

Database = psycopg.Connection[dict[str, Any]]
Audited = Callable[[Database], list[tuple[Any, ...]]]

WORK_OFF = """
  do $$
  declare
    message record;
  begin
    loop
      select * into message from pgmq.read('{flow}', 0, 1);
      exit when not found;
      perform pgflow.start_tasks('{flow}', array[message.msg_id], null);
      perform pgflow.complete_task(t.run_id, t.step_slug, t.task_index, '1')
      from pgflow.step_tasks t
      where t.flow_slug = '{flow}' and t.message_id = message.msg_id;
    end loop;
  end;
  $$
"""


def block(heading: str) -> str:
    page = (resources.root() / "docs" / "findings.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}\n.*?```sql\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def history(database: Database) -> Database:
    """A flow whose slug and one of whose steps' must be renamed, with a finished run."""
    database.execute(
        """
        select pgflow.create_flow('order__intake');
        select pgflow.add_step('order__intake', 'fetch');
        select pgflow.add_step('order__intake', 'pack__all', array['fetch']);
        select pgflow.add_step('order__intake', 'send', array['pack__all']);
        select pgflow.start_flow('order__intake', '{}');
        """
    )
    database.execute(WORK_OFF.format(flow="order__intake").encode())
    return database


def test_a_renamed_flow_keeps_runs_tasks_archive_and_ids(history: Database, audited: Audited) -> None:
    history.execute(block("Renaming a flow").encode())
    history.execute(block("Renaming a step").replace("'orders'", "'order_intake'").encode())
    assert audited(history) == []
    tasks = history.execute(
        """
        select t.flow_slug, s.step_slug, s.step_index, t.message_id, t.status, a.msg_id
        from pgflow.step_tasks t
        join pgflow.runs r on r.run_id = t.run_id and r.flow_slug = t.flow_slug and r.status = 'completed'
        join pgflow.step_states e on e.run_id = t.run_id and e.step_slug = t.step_slug
        join pgflow.steps s on s.flow_slug = t.flow_slug and s.step_slug = t.step_slug
        join pgmq.a_order_intake a on a.msg_id = t.message_id
        order by t.message_id
        """
    ).fetchall()
    assert [tuple(task.values()) for task in tasks] == [
        ("order_intake", "fetch", 0, 1, "completed", 1),
        ("order_intake", "pack_all", 1, 2, "completed", 2),
        ("order_intake", "send", 2, 3, "completed", 3),
    ]
    deps = history.execute("select dep_slug, step_slug from pgflow.deps order by 1").fetchall()
    assert [tuple(dep.values()) for dep in deps] == [("fetch", "pack_all"), ("pack_all", "send")]
    left = history.execute(
        "select queue_name, to_regclass('pgmq.q_order__intake') as old from pgmq.meta"
    ).fetchall()
    assert left == [{"queue_name": "order_intake", "old": None}]

    history.execute("select pgflow.start_flow('order_intake', '{}')")
    assert history.execute("select msg_id from pgmq.q_order_intake").fetchall() == [{"msg_id": 4}]
    history.execute(WORK_OFF.format(flow="order_intake").encode())
    statuses = history.execute("select status, count(*) from pgflow.runs group by 1").fetchall()
    assert statuses == [{"status": "completed", "count": 2}]


def rows(database: Database, table: str) -> list[dict[str, Any]]:
    found = database.execute(f"select to_jsonb(t) as row from {table} t order by msg_id".encode()).fetchall()
    return [row["row"] for row in found]


def test_the_archive_moves_with_all_its_columns_whether_tasks_have_the_messages_or_not(
    history: Database, audited: Audited
) -> None:
    """Also where the columns stand in another order: a newer PGMQ adds its own at the end of older tables."""
    history.execute(
        """
        alter table pgmq.a_order__intake drop column headers;
        alter table pgmq.a_order__intake add column headers jsonb;
        update pgmq.a_order__intake set headers = jsonb_build_object('of', msg_id);
        select pgmq.send('order__intake', '{"nobody": "knows"}'::jsonb);
        """
    )
    if "last_read_at" in rows(history, "pgmq.a_order__intake")[0]:
        history.execute("update pgmq.a_order__intake set last_read_at = now() - interval '1 hour'")
    before = rows(history, "pgmq.a_order__intake")
    assert [row["headers"] for row in before] == [{"of": 1}, {"of": 2}, {"of": 3}]
    history.execute(block("Renaming a flow").encode())
    after = rows(history, "pgmq.a_order_intake")
    assert after[:3] == before
    assert [(row["msg_id"], row["message"]) for row in after[3:]] == [(4, {"nobody": "knows"})]
    assert [row[1] for row in audited(history)] == ["slug-double-underscore"]  # of the step


def test_a_flow_that_shares_its_queue_is_renamed_without_dropping_it(
    history: Database, audited: Audited
) -> None:
    history.execute("select pgflow.create_flow('orders'); select pgflow.add_step('orders', 'pack');")
    history.execute("select pgflow.create_flow('Orders'); select pgflow.add_step('Orders', 'pack');")
    history.execute("select pgflow.start_flow('orders', '{}'); select pgflow.start_flow('Orders', '{}');")
    hiding = WORK_OFF.format(flow="Orders").replace("read('Orders', 0, 1)", "read('Orders', 60, 1)")
    history.execute(hiding.encode())
    renamed = block("Renaming a flow").replace("'order__intake'", "'Orders'")
    history.execute(renamed.replace("'order_intake'", "'big_orders'").encode())
    assert [row for row in audited(history) if row[2] != "order__intake"] == []
    assert history.execute("select msg_id from pgmq.q_orders").fetchall() == [{"msg_id": 1}]
    assert history.execute("select msg_id from pgmq.a_big_orders").fetchall() == [{"msg_id": 2}]


@pytest.mark.parametrize("heading", ["Renaming a flow", "Renaming a step"])
def test_renaming_refuses_while_runs_are_going(heading: str, history: Database) -> None:
    history.execute("select pgflow.start_flow('order__intake', '{}')")
    statements = block(heading).replace("'orders'", "'order__intake'")
    with pytest.raises(
        psycopg.errors.RaiseException, match="flow order__intake has runs that have not ended"
    ):
        history.execute(statements.encode())
