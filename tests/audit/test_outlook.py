"""Queue health and what the upgrade would do: of one snapshot, with the numbers that are in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from pgflow_migrate.audit.outlook import QueueHealth, Step
from pgflow_migrate.audit.render import page
from pgflow_migrate.audit.run import survey
from pgflow_migrate.cli import main

Database = psycopg.Connection[dict[str, Any]]


def _age_left_out(queue: QueueHealth) -> tuple[Any, ...]:
    return (
        *(
            queue.flow_slug,
            queue.queue_name,
            queue.ready,
            queue.hidden,
            queue.oldest is not None,
            queue.unread,
        ),
        *(queue.queued, queue.started, queue.failed),
    )


def test_queues_and_steps_have_the_numbers_of_the_snapshot(database: Database) -> None:
    database.execute(
        """
        select pgflow.create_flow('Orders', max_attempts => 1);
        select pgflow.add_step('Orders', 'pack');
        select pgflow.create_flow('gone');
        select pgmq.drop_queue('gone');
        select pgflow.create_flow('idle');
        select pgflow.start_flow('Orders', '{}') from generate_series(1, 5);
        select pgmq.read('Orders', 3600, 2);
        """
    )
    database.execute("update pgmq.q_orders set enqueued_at = now() - interval '1 hour' where msg_id = 4")
    report, outlook = survey(database)
    assert [finding.code for finding in report.blocking] == ["queue-absent"]
    assert [_age_left_out(queue) for queue in outlook.queues] == [
        ("Orders", "orders", 3, 2, True, None, 5, 0, 0),
        ("gone", "gone", None, None, False, "there is no usable queue", 0, 0, 0),
        ("idle", "idle", 0, 0, False, None, 0, 0, 0),
    ]
    oldest = outlook.queues[0].oldest
    assert oldest is not None
    assert 3600 <= oldest < 3900
    assert (outlook.release, outlook.obstacle, outlook.unread) == ("0.16.0", None, None)
    assert outlook.revisions == ("queue_identity", "dirty_runs")
    numbers = {(step.revision, step.what.partition(":")[0]): step.rows for step in outlook.steps}
    assert numbers["queue_identity", "lock pgflow's tables, pgmq.meta and the queue of each flow"] == 3
    assert numbers["queue_identity", "audit again under the locks"] == 10
    assert numbers["queue_identity", "give steps their queue's name"] == 1
    assert numbers["queue_identity", "give tasks their queue's name"] == 5
    assert numbers["queue_identity", "make queue and message id of a task unique"] == 5
    assert numbers["dirty_runs", "validate its constraints"] == 5
    assert outlook.seconds == pytest.approx(5 / 100_000)
    assert outlook.rewritten == sum(
        database.execute(f"select pg_table_size('pgflow.{table}') as size").fetchall()[0]["size"]
        for table in ("steps", "step_tasks")
    )


def test_locks_on_queues_are_given_back_before_the_transaction_ends(database: Database) -> None:
    database.execute("select pgflow.create_flow('f' || n) from generate_series(1, 3) n")
    with database.transaction():
        database.execute("set transaction isolation level repeatable read read only")
        _, outlook = survey(database)
        held = database.execute(
            "select relation::regclass::text as held from pg_locks"
            " where pid = pg_backend_pid() and relation::regclass::text like 'pgmq.q%'"
        ).fetchall()
    assert [queue.ready for queue in outlook.queues] == [0, 0, 0]
    assert held == []


def test_the_repairs_of_0_15_1_are_counted_as_they_will_be_made(
    database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    database = connect(database_at("core_0_15_0"))
    database.execute(
        """
        select pgflow.create_flow('f');
        select pgflow.add_step('f', 'a');
        select pgflow.add_step('f', 'b');
        select pgflow.start_flow('f', '{}') from generate_series(1, 3);
        update pgflow.runs set status = 'failed', failed_at = now()
        where run_id in (select run_id from pgflow.runs order by run_id limit 2);
        """
    )
    _, outlook = survey(database)
    assert outlook.revisions == ("core_0_15_1", "core_0_16_0", "queue_identity", "dirty_runs")
    assert outlook.steps[1:3] == (
        Step("core_0_15_1", "end unfinished tasks of skipped steps as skipped: rows written", 0),
        Step("core_0_15_1", "end unfinished tasks of failed runs as cancelled: rows written", 4),
    )
    assert database.execute(
        "select count(*) as n from pgflow.step_tasks where status = 'queued'"
    ).fetchone() == {"n": 6}


def test_at_the_newest_revision_queues_are_those_of_the_steps(
    database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    database = connect(database_at("dirty_runs"))
    database.execute(
        """
        select pgflow.create_flow('f');
        select pgflow.add_step('f', 'a');
        select pgmq.create('elsewhere');
        update pgflow.steps set queue_name = 'elsewhere';
        select pgflow.start_flow('f', '{}');
        """
    )
    _, outlook = survey(database)
    assert (outlook.revisions, outlook.steps, outlook.seconds) == ((), (), None)
    assert [_age_left_out(queue) for queue in outlook.queues] == [
        ("f", "elsewhere", 1, 0, True, None, 1, 0, 0)
    ]


def test_what_the_role_may_not_read_is_left_out_and_said(database: Database) -> None:
    database.execute("create role looker; grant usage on schema pgflow, pgmq to looker")
    try:
        database.execute(
            """
            select pgflow.create_flow('open');
            select pgflow.create_flow('shut');
            grant select on all tables in schema pgflow to looker;
            grant select on pgmq.q_open to looker;
            set role looker;
            """
        )
        _, outlook = survey(database)
        assert [(queue.flow_slug, queue.ready, queue.unread) for queue in outlook.queues] == [
            ("open", 0, None),
            ("shut", None, "this role may not read it"),
        ]
        database.execute("reset role; revoke select on pgflow.step_tasks from looker; set role looker")
        _, outlook = survey(database)
        assert (outlook.queues, outlook.unread) == ((), "permission denied for table step_tasks")
        assert outlook.revisions == ("queue_identity", "dirty_runs")
    finally:
        database.execute("reset role; drop owned by looker; drop role looker")


def test_a_database_that_is_no_release_gets_no_steps_but_a_reason(database: Database) -> None:
    database.execute("alter table pgflow.runs drop column output cascade")
    _, outlook = survey(database)
    assert (outlook.release, outlook.revisions, outlook.steps) == (None, None, ())
    assert outlook.obstacle is not None
    assert outlook.obstacle.startswith(
        "Schema pgflow matches no known release; the closest is 0.16.0, from which"
    )


def test_without_pgflow_the_page_says_so(database_at: Callable[[str], str]) -> None:
    result = CliRunner().invoke(main, ["audit", "--dsn", database_at(""), "--format", "html"])
    assert result.exit_code == 3
    assert "Nothing: it would refuse. There is no schema pgflow." in result.stdout
    assert "They could not be read: relation &#34;pgflow.flows&#34; does not exist." in result.stdout


def test_a_message_of_an_infinite_time_is_no_message_of_an_age(database: Database) -> None:
    """In one queue each is; in the other the others count."""
    database.execute(
        """
        select pgflow.create_flow('every');
        select pgmq.send('every', '{}') from generate_series(1, 2);
        update pgmq.q_every set enqueued_at = 'infinity', vt = 'infinity' where msg_id = 1;
        update pgmq.q_every set enqueued_at = '-infinity', vt = '-infinity' where msg_id = 2;
        select pgflow.create_flow('some');
        select pgmq.send('some', '{}') from generate_series(1, 2);
        update pgmq.q_some set enqueued_at = '-infinity' where msg_id = 1;
        update pgmq.q_some set enqueued_at = now() - interval '50 hours' where msg_id = 2;
        """
    )
    _, outlook = survey(database)
    assert outlook.unread is None
    every, some = outlook.queues
    assert (every.ready, every.hidden, every.oldest) == (1, 1, None)
    assert (some.ready, some.hidden, page.age(some.oldest)) == (2, 0, "2 d")
    result = CliRunner().invoke(main, ["audit", "--dsn", database.info.dsn, "--format", "html"])
    assert result.exit_code == 3, result.output  # messages without a task
    assert "every" in result.stdout
    assert "2 d" in result.stdout


@pytest.mark.parametrize(
    ("enqueued_at", "age"), [("4713-01-01 BC", "2461"), ("294276-12-31 23:59:59+00", "0 s")]
)
def test_the_first_and_the_last_time_of_a_message_have_an_age(
    database: Database, enqueued_at: str, age: str
) -> None:
    database.execute("select pgflow.create_flow('f')")
    database.execute("select pgmq.send('f', '{}')")
    database.execute("update pgmq.q_f set enqueued_at = %s", (enqueued_at,))
    _, outlook = survey(database)
    assert page.age(outlook.queues[0].oldest).startswith(age)
