"""Active messages and the tasks that have them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate.audit import Finding
from pgflow_migrate.audit.run import run_audit

Database = psycopg.Connection[dict[str, Any]]
Audited = Callable[[Database], list[tuple[Any, ...]]]

RUN = "00000000-0000-4000-8000-000000000001"
ADDRESS = {"flow_slug": "orders", "run_id": RUN, "step_slug": "pack", "task_index": 0}


@pytest.fixture
def running(database: Database) -> Database:
    """Flow orders with a task in flight, its message 1; and flow billing."""
    database.execute("select pgflow.create_flow('orders'); select pgflow.add_step('orders', 'pack');")
    database.execute("select pgflow.create_flow('billing')")
    database.execute("select pgflow.start_flow('orders', '{}', %s)", [RUN])
    return database


def mismatch(*samples: str) -> list[tuple[Any, ...]]:
    return [("error", "message-body-mismatch", "orders", None, "orders", len(samples), samples)]


def stray(*samples: str, count: int | None = None) -> list[tuple[Any, ...]]:
    return [
        ("error", "message-without-task", "orders", None, "orders", count or len(samples), samples),
    ]


OTHER_BODIES: dict[str, object] = {
    "null": None,
    "json null": "null",
    "a number": "5",
    "a string": '"orders"',
    "an array": "[]",
    "an array of the right object": json.dumps([ADDRESS]),
    "an empty object": "{}",
    "another flow": json.dumps({**ADDRESS, "flow_slug": "billing"}),
    "the flow in another case": json.dumps({**ADDRESS, "flow_slug": "Orders"}),
    "another run": json.dumps({**ADDRESS, "run_id": RUN.replace("1", "2")}),
    "a run that is no uuid": json.dumps({**ADDRESS, "run_id": "not a uuid'; --"}),
    "a run that is a number": json.dumps({**ADDRESS, "run_id": 1}),
    "another step": json.dumps({**ADDRESS, "step_slug": "seal"}),
    "another index": json.dumps({**ADDRESS, "task_index": 1}),
    "an index that is a string": json.dumps({**ADDRESS, "task_index": "0"}),
    "an index beyond every number": '{"task_index": 1e400}',
    "nested null": json.dumps({**ADDRESS, "step_slug": None}),
    **{f"no {key}": json.dumps({k: v for k, v in ADDRESS.items() if k != key}) for key in ADDRESS},
}


@pytest.mark.parametrize("body", OTHER_BODIES)
def test_a_body_that_is_not_the_tasks_address_is_a_mismatch(
    body: str, running: Database, audited: Audited
) -> None:
    running.execute("update pgmq.q_orders set message = %s::jsonb", [OTHER_BODIES[body]])
    assert audited(running) == mismatch("orders/1")


def test_more_keys_in_the_body_do_no_harm(running: Database, audited: Audited) -> None:
    running.execute("update pgmq.q_orders set message = message || '{\"trace\": 7}'")
    assert audited(running) == []


def test_a_terminal_task_may_still_have_its_message(running: Database, audited: Audited) -> None:
    running.execute("update pgflow.step_tasks set status = 'cancelled'")
    assert audited(running) == []


def test_a_task_may_lack_its_message(running: Database, audited: Audited) -> None:
    running.execute("select pgmq.delete('orders', 1)")
    assert audited(running) == []


def test_invisible_messages_count(running: Database, audited: Audited) -> None:
    running.execute("""select pgmq.send('orders', '{"total": 7}', 3600)""")
    assert audited(running) == stray("orders/2")


def test_archived_messages_do_not_count(running: Database, audited: Audited) -> None:
    running.execute("""select pgmq.send('orders', '{"total": 7}'::jsonb); select pgmq.archive('orders', 2)""")
    assert audited(running) == []


def test_a_body_that_names_no_other_existing_flow_is_without_task(
    running: Database, audited: Audited
) -> None:
    for flow in ('"orders"', '"Billing"', '"gone"', "7", "null", '["billing"]'):
        running.execute("select pgmq.send('orders', %s::jsonb)", [f'{{"flow_slug": {flow}}}'])
    running.execute("select pgmq.send('orders', null)")
    assert audited(running) == stray(*(f"orders/{number}" for number in range(2, 9)))


def test_messages_for_another_flow_are_told_apart(running: Database, audited: Audited) -> None:
    running.execute("""select pgmq.send('orders', '{"flow_slug": "billing"}'::jsonb)""")
    running.execute("""select pgmq.send('orders', '{"flow_slug": "nobody"}'::jsonb)""")
    assert audited(running) == [
        ("error", "message-without-task", "orders", None, "orders", 1, ("orders/3",)),
        ("error", "queue-referenced-by-other-flow", "orders", None, "orders", 1, ("orders/2",)),
    ]
    hint = next(f.hint for f in run_audit(running).findings if f.code == "queue-referenced-by-other-flow")
    assert hint == (
        "These messages name another flow (billing). Move them where they belong, or archive them: "
        "select pgmq.archive('orders', array[2]::bigint[]);"
    )


def test_a_body_may_name_either_flow_of_a_shared_queue(database: Database, audited: Audited) -> None:
    for flow in ("orders", "Orders"):
        database.execute("select pgflow.create_flow(%s); ".replace("%s", f"'{flow}'").encode())
        database.execute(f"select pgflow.add_step('{flow}', 'pack')".encode())
        database.execute(f"select pgflow.start_flow('{flow}', '{{}}')".encode())
    database.execute("delete from pgmq.meta where queue_name = 'Orders'")
    assert {row[1] for row in audited(database)} == {"flow-slug-case-duplicate"}
    database.execute("""select pgmq.send('orders', '{"flow_slug": "Orders"}'::jsonb)""")
    assert audited(database)[2:] == [
        ("error", "message-without-task", None, None, "orders", 1, ("orders/3",))
    ]


def test_a_message_that_two_tasks_have_is_right_for_one_of_them(running: Database, audited: Audited) -> None:
    running.execute("select pgflow.start_flow('orders', '{}'); select pgmq.delete('orders', 2)")
    running.execute("update pgflow.step_tasks set message_id = 1")
    assert [row[1] for row in audited(running)] == ["duplicate-queue-message"]


def test_ids_beyond_what_a_double_holds_stay_exact(running: Database, audited: Audited) -> None:
    running.execute("alter table pgmq.q_orders alter column msg_id restart with 9007199254740993")
    running.execute("select pgmq.send('orders', '{}'::jsonb), pgmq.send('orders', '{}'::jsonb)")
    running.execute(
        "insert into pgmq.q_orders (msg_id, vt) overriding system value values (9223372036854775807, now())"
    )
    samples = ("orders/9007199254740993", "orders/9007199254740994", "orders/9223372036854775807")
    assert audited(running) == stray(*samples)


def test_samples_are_the_first_twenty_of_many(running: Database, audited: Audited) -> None:
    running.execute(
        "insert into pgmq.q_orders (vt, message) select now(), '{}' from generate_series(1, 5000)"
    )
    assert audited(running) == stray(*(f"orders/{number}" for number in range(2, 22)), count=5000)


@pytest.mark.parametrize(
    ("number", "ending"), [(20, ""), (21, " These are the first 20: audit again afterwards.")]
)
def test_the_hint_says_that_there_are_more(running: Database, number: int, ending: str) -> None:
    running.execute(
        "insert into pgmq.q_orders (vt, message) select now(), '{}' from generate_series(1, %s)", [number]
    )
    (found,) = run_audit(running).blocking
    ids = ", ".join(str(number) for number in range(2, 22))
    assert found.hint == (
        "No task has these messages. Nobody but pgflow may send into a flow's queue. Archive them: "
        f"select pgmq.archive('orders', array[{ids}]::bigint[]);{ending}"
    )
    running.execute(found.hint.removesuffix(ending).partition("Archive them: ")[2].encode())
    assert [finding.count for finding in run_audit(running).blocking] == ([1] if ending else [])


def test_the_hint_names_five_of_the_other_flows(running: Database) -> None:
    for flow in "gfedcb":
        running.execute("select pgflow.create_flow(%s)", [flow])
        for _ in range(2):
            running.execute("select pgmq.send('orders', %s::jsonb)", [json.dumps({"flow_slug": flow})])
    (found,) = run_audit(running).blocking
    assert (found.code, found.count) == ("queue-referenced-by-other-flow", 12)
    assert found.hint.startswith("These messages name another flow (b, c, d, e, f). Move them")


def test_bodies_are_never_shown(running: Database) -> None:
    told = "hunter2-in-a-body"
    running.execute("select pgmq.send('orders', %s::jsonb)", [json.dumps({"flow_slug": told, "card": told})])
    running.execute("update pgmq.q_orders set message = %s::jsonb where msg_id = 1", [json.dumps(told)])
    report = run_audit(running)
    assert [finding.code for finding in report.blocking] == ["message-body-mismatch", "message-without-task"]
    assert told not in repr(report)


def test_messages_are_counted_in_the_last_row(running: Database) -> None:
    last: Finding = run_audit(running).findings[-1]
    assert last.samples[3:] == ("2 flows, 1 step, 1 task", "1 message in 2 queues")
