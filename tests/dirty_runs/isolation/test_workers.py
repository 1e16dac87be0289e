"""Maintenance of workers, worker functions and cron jobs beside runs of protocol 2."""

from __future__ import annotations

import pytest
from tests.dirty_runs.isolation.conftest import WORKER_OF_1, World
from tests.dirty_runs.protocol import WORKER

from pgflow_migrate.dirty_runs.inventory import INVENTORY, WORKERS

CALLS = {
    "mark_worker_stopped(uuid)": "select pgflow.mark_worker_stopped(%(worker)s)",
    "track_worker_function(text, text)": "select pgflow.track_worker_function('fetch', 'process')",
    "resume_worker_function(text)": "select pgflow.resume_worker_function('fetch')",
    "_pause_worker_function(uuid, text)": "select pgflow._pause_worker_function(%(worker)s, 'doubtful')",
    "ensure_workers()": "select function_name from pgflow.ensure_workers()",
    "pgflow_ensure_workers": "select function_name from pgflow.ensure_workers()",
    "cleanup_ensure_workers_logs(integer)": "select pgflow.cleanup_ensure_workers_logs(0)",
    "pgflow_cleanup_logs": "select pgflow.cleanup_ensure_workers_logs()",
    "setup_ensure_workers_cron(text)": "select pgflow.setup_ensure_workers_cron()",
    "setup_requeue_stalled_tasks_cron(text)": "select pgflow.setup_requeue_stalled_tasks_cron()",
    "step_tasks_last_worker_id_fkey on step_tasks": "delete from pgflow.workers returning worker_id",
}


def test_every_writer_that_the_inventory_says_is_called_here() -> None:
    assert set(CALLS) == {writer.name for writer in INVENTORY if writer.test == WORKERS}


@pytest.mark.parametrize("entry", CALLS)
def test_maintenance_of_workers_changes_no_row_of_protocol_2(world: World, entry: str) -> None:
    session = world.session
    # The worker that the claims of protocol 2 name, for diagnosis, is registered like any other.
    session.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, 'demo', 'fetch')",
        WORKER,
    )
    session.execute(
        "select set_config('app.settings.jwt_secret',"
        " 'super-secret-jwt-token-with-at-least-32-characters-long', true)"
    )
    before = session.everything()
    tasks = world.tasks()
    world.values(CALLS[entry], {"worker": WORKER})
    after = session.everything()
    changed = {table for table in before if before[table] != after[table]}
    allowed = {"pgflow.workers", "pgflow.worker_functions"}
    if entry.startswith("step_tasks_last"):
        assert changed == {"pgflow.workers", "pgflow.step_tasks"}
        assert world.tasks() == tasks
        assert session.rows("select from pgflow.step_tasks where last_worker_id = %s", WORKER_OF_1) == []
        assert session.value("select count(*) from pgflow.task_claims where worker_id = %s", WORKER) > 0
    else:
        assert changed <= allowed
    assert [task["last_worker_id"] for task in tasks] == [None] * len(tasks)
