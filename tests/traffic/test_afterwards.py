"""What goes on after an upgrade that calls have waited for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.traffic.calls import CALLS
from tests.traffic.flight import Flight, arrange, blocked_by_upgrade
from tests.traffic.work import work_off

from pgflow_migrate.upgrade.progress import Event, FileDone
from pgflow_migrate.upgrade.run import upgrade

Connection = psycopg.Connection[dict[str, Any]]

PRODUCERS = [call for call in CALLS if call.name.startswith("start")]
RUNS = {"Start": 2, "StartInTheSelectList": 2, "StartWithStates": 2, "StartSeveralInOneStatement": 4}
RUN = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize("warm", [False, True], ids=["new sessions", "sessions with cached plans"])
@pytest.mark.parametrize("release", ["core_0_16_0", "queue_identity"])
def test_runs_whose_start_has_waited_are_worked_off_like_all_others(
    database_at: Callable[[str], str], connect: Callable[[str], Connection], release: str, warm: bool
) -> None:
    dsn = database_at(release)
    arrange(dsn, PRODUCERS)
    flight = Flight(dsn, PRODUCERS, warm)
    flight.under_upgrade(commit=True)
    assert {name: (ended.waited, ended.error) for name, ended in flight.ended.items()} == {
        call.name: (True, None) for call in PRODUCERS
    }
    session = connect(dsn)
    tasks = session.execute(
        "select flow_slug, queue_name, count(message_id) as messages from pgflow.step_tasks"
        " where status = 'queued' group by 1, 2"
    ).fetchall()
    assert {task["flow_slug"]: (task["queue_name"], task["messages"]) for task in tasks} == {
        flow: (flow.lower(), count) for flow, count in RUNS.items()
    }
    work_off(session, *RUNS)
    runs = session.execute("select flow_slug, status, count(*) from pgflow.runs group by 1, 2").fetchall()
    assert {run["flow_slug"]: (run["status"], run["count"]) for run in runs} == {
        flow: ("completed", count) for flow, count in RUNS.items()
    }
    for flow, count in RUNS.items():
        (left,) = session.execute(
            f"select (select count(*) from pgmq.q_{flow.lower()}) as queued,"
            f" (select count(*) from pgmq.a_{flow.lower()}) as archived".encode()
        ).fetchall()
        assert left == {"queued": 0, "archived": 2 * count}


def test_old_workers_meet_the_documented_errors_once_and_at_their_next_start(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at("core_0_16_0")
    worker = connect(dsn)
    worker.prepare_threshold = None
    worker.execute("select pgflow.create_flow('Orders')")
    worker.execute("select pgflow.add_step('Orders', 'pack', step_type => 'map')")
    worker.execute("select pgflow.start_flow('Orders', '[1, 2, 3]', %s)", (RUN,))
    worker.execute("select pgflow.start_tasks('Orders', '{1,2,3}', null)")
    complete = "select status from pgflow.complete_task(%s, 'pack', %s, '1')"
    assert worker.execute(complete, (RUN, 0)).fetchall() == [{"status": "completed"}]
    called: list[Future[Any]] = []
    with ThreadPoolExecutor() as pool:

        def listen(event: Event) -> None:
            if isinstance(event, FileDone) and event.file == "fence.sql" and not called:
                called.append(pool.submit(worker.execute, complete, (RUN, 1)))
                blocked_by_upgrade(dsn, worker.info.backend_pid, called[0])

        upgrade(dsn, on_progress=listen)
        with pytest.raises(psycopg.errors.DatatypeMismatch) as caught:
            called[0].result(30)
    assert caught.value.diag.message_primary == "structure of query does not match function result type"
    # The same session, as if nothing had happened.
    for index in 1, 2:
        assert worker.execute(complete, (RUN, index)).fetchall() == [{"status": "completed"}]
    assert worker.execute("select status, output from pgflow.runs").fetchall() == [
        {"status": "completed", "output": {"pack": [1, 1, 1]}}
    ]
    with pytest.raises(psycopg.errors.UndefinedFunction) as refused:
        worker.execute("select pgflow.ensure_flow_compiled('Orders'::text, '{\"steps\": []}'::jsonb)")
    assert refused.value.diag.message_primary == (
        "function pgflow.ensure_flow_compiled(text, jsonb) does not exist"
    )
