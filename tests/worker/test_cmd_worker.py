"""The command: finding the flow, signals, exit codes, and what happens when the process is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.worker import Flow
from pgflow_migrate.worker.loading import FlowNotFoundError, ModuleBrokenError, load_flow

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

FLOWS = '''
import os
import psycopg
from pgflow_migrate.worker import Flow

plain = Flow("plain")

@plain.step("only")
def only(context):
    print("payload on stdout")
    return context.flow_input

gated = Flow("gated", timeout=1)

@gated.map("each")
def each(context):
    """Wait for an advisory lock that the test holds."""
    with psycopg.connect(os.environ["GATE"], autocommit=True) as connection:
        connection.execute("select pg_advisory_lock_shared(4711)")
    return context.input

number = 7
'''
WAITING = "select count(*) from pg_locks where locktype = 'advisory' and objid = 4711 and not granted"

Process = subprocess.Popen[str]
Start = Callable[..., Process]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module of flows."""
    (tmp_path / "flows.py").write_text(FLOWS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def start(bench: Bench, folder: Path) -> Iterator[Start]:
    """Start ``pgflow-migrate worker`` as a process."""
    processes: list[Process] = []

    def started(flow: str, *arguments: str) -> Process:
        command = ["worker", "--dsn", bench.dsn, "--flow", flow, "--max-poll", "1", *arguments]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "pgflow_migrate", *command],
                cwd=folder,
                env={**os.environ, "GATE": bench.dsn},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield started
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def gate(bench: Bench) -> Iterator[psycopg.Connection[Any]]:
    """A closed gate; closing the connection opens it."""
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(4711)")
        yield connection


def flow_of(folder: Path, name: str) -> Flow:
    """The flow as the process has it."""
    namespace: dict[str, Any] = {}
    exec(compile(FLOWS, str(folder / "flows.py"), "exec"), namespace)  # noqa: S102
    flow = namespace[name]
    assert isinstance(flow, Flow)
    return flow


def test_a_worker_that_is_idle_ends_with_0_and_tells_what_it_did(
    bench: Bench, folder: Path, start: Start
) -> None:
    bench.compile(flow_of(folder, "plain"))
    run = bench.start("plain", {"a": 1})
    process = start("flows:plain", "--until-idle", "0.1", "--name", "mine")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert bench.run(run)["output"] == {"only": {"a": 1}}
    assert out == "payload on stdout\n"
    first, last = err.splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC INFO worker ", first), first
    assert first.endswith(" of function mine: flow plain verified, queue plain")
    assert last.endswith(" has left (idle): 1 completed, 0 failed, 0 late, 0 unreported")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP"])
def test_a_signal_lets_the_running_handler_finish(
    bench: Bench, folder: Path, start: Start, gate: psycopg.Connection[Any], name: str
) -> None:
    bench.compile(flow_of(folder, "gated"))
    run = bench.start("gated", [1, 2])
    process = start("flows:gated", "--concurrency", "1")
    bench.eventually(lambda: bench.value(WAITING) == 1, "the handler")
    process.send_signal(signal.Signals[name])
    assert process.stderr is not None
    process.stderr.readline()
    assert process.stderr.readline().endswith(f"{name}: the handlers that run are finished first\n")
    assert process.poll() is None
    gate.close()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err.endswith(" has left (stopped): 1 completed, 0 failed, 0 late, 0 unreported\n")
    statuses = (
        "select status, last_worker_id is not null as claimed from pgflow.step_tasks order by task_index"
    )
    assert [tuple(row.values()) for row in bench.rows(statuses)] == [("completed", True), ("queued", False)]
    assert bench.value("select stopped_at is not null from pgflow.workers") is True
    assert bench.run(run)["status"] == "started"


def test_a_second_signal_ends_the_worker_at_once(
    bench: Bench, folder: Path, start: Start, gate: psycopg.Connection[Any]
) -> None:
    bench.compile(flow_of(folder, "gated"))
    run = bench.start("gated", [1])
    process = start("flows:gated")
    bench.eventually(lambda: bench.value(WAITING) == 1, "the handler")
    process.terminate()
    assert process.stderr is not None
    process.stderr.readline()
    assert "SIGTERM" in process.stderr.readline()
    process.terminate()
    assert process.wait(60) == 1
    assert bench.task(run, "each")["status"] == "started"
    assert bench.value("select stopped_at from pgflow.workers") is None


def test_the_work_of_a_killed_worker_comes_back_to_another_one(
    bench: Bench, folder: Path, start: Start, gate: psycopg.Connection[Any]
) -> None:
    bench.compile(flow_of(folder, "gated"))
    run = bench.start("gated", ["a", "b"])
    killed = start("flows:gated", "--concurrency", "1")
    bench.eventually(lambda: bench.value(WAITING) == 1, "the handler")
    killed.kill()
    assert killed.wait(60) == -signal.SIGKILL
    assert bench.task(run, "each", 0)["status"] == "started"
    assert bench.value("select stopped_at from pgflow.workers") is None
    gate.close()

    # Time passes: a second of timeout and thirty more.
    bench.execute(
        "update pgflow.step_tasks set queued_at = queued_at - interval '32 s',"
        " started_at = started_at - interval '32 s' where status = 'started'"
    )
    assert bench.value("select pgflow.requeue_stalled_tasks()") == 1
    heir = start("flows:gated", "--until-idle", "0.1")
    _, err = heir.communicate(timeout=60)
    assert heir.returncode == 0, err
    assert bench.run(run)["output"] == {"each": ["a", "b"]}
    tasks = "select attempts_count, requeued_count from pgflow.step_tasks order by task_index"
    assert [tuple(row.values()) for row in bench.rows(tasks)] == [(2, 1), (1, 0)]


def test_work_that_it_cannot_do_ends_the_worker_with_3_and_one_error_line(
    bench: Bench, folder: Path, start: Start
) -> None:
    bench.compile(flow_of(folder, "plain"))
    bench.value("""select pgmq.send('plain', '{"flow_slug": "plain", "card": "4111"}')""")
    process = start("flows:plain")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    errors = [line for line in err.splitlines() if " ERROR " in line or line.startswith("error")]
    assert len(errors) == 1
    assert " of queue plain stops: " in errors[0]
    assert "1 (missing_task)" in errors[0]
    assert "4111" not in err

    again = start("flows:plain")
    _, err = again.communicate(timeout=60)
    assert again.returncode == 3
    assert 'error: Worker function "plain-worker" is paused since ' in err
    assert "select pgflow.resume_worker_function('plain-worker');" in err


def test_a_database_of_an_old_release_ends_the_worker_with_3(
    bench_at: Callable[[str], Bench], folder: Path
) -> None:
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "pgflow_migrate", "worker", "--flow", "flows:plain"),
            *("--dsn", bench_at("core_0_16_0").dsn),
        ],
        cwd=folder,
        env={**os.environ, "GATE": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr == (
        "error: This database's pgflow has no queue identity, which this worker needs.\n"
        "Upgrade the database with pgflow-migrate upgrade; till then run the workers of its own release.\n"
    )


@pytest.mark.parametrize(
    ("name", "code", "error"),
    [
        ("flows", 2, "error: 'flows' does not name a flow."),
        ("flows:", 2, "error: 'flows:' does not name a flow."),
        ("flows.py:plain", 2, "error: There is no module flows.py."),
        ("no_such.module:plain", 2, "error: There is no module no_such."),
        ("flows:other", 2, "error: Module flows has no attribute 'other'."),
        ("flows:number", 2, "error: flows:number is no flow but of type int."),
    ],
)
def test_a_name_that_leads_to_no_flow_is_told(start: Start, name: str, code: int, error: str) -> None:
    process = start(name)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert err.startswith(error + "\n")


@pytest.fixture
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules and path as before, afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.usefixtures("clean_imports")
def test_a_flow_is_found_in_a_package_below_the_folder(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "flows.py").write_text(
        "from pgflow_migrate.worker import Flow\norders = Flow('orders')\n", encoding="utf-8"
    )
    assert load_flow("shop.flows:orders", tmp_path).slug == "orders"


@pytest.mark.usefixtures("clean_imports")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import no_such_thing\n", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("\n\n1/0\n", "ZeroDivisionError: division by zero"),
        ("def f(:\n", "SyntaxError: "),
        (
            "from pgflow_migrate.worker import Flow\nFlow('_x')\n",
            'ValueError: The slug "_x" begins with "_".',
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_place(
    tmp_path: Path, text: str, error: str
) -> None:
    (tmp_path / "broken_flows.py").write_text(text, encoding="utf-8")
    with pytest.raises(ModuleBrokenError) as caught:
        load_flow("broken_flows:orders", tmp_path)
    assert caught.value.exit_code == 1
    assert caught.value.message.startswith(f"Module broken_flows cannot be imported: {error}")
    assert f"{tmp_path}/broken_flows.py, line " in caught.value.message or "slugs.py" in caught.value.message


@pytest.mark.usefixtures("clean_imports")
def test_the_flows_that_there_are_are_named(tmp_path: Path) -> None:
    (tmp_path / "some_flows.py").write_text(
        "from pgflow_migrate.worker import Flow\na = Flow('x')\nb = Flow('y')\n", encoding="utf-8"
    )
    with pytest.raises(FlowNotFoundError) as caught:
        load_flow("some_flows:c", tmp_path)
    assert isinstance(caught.value, PgflowMigrateError)
    assert caught.value.remedy == "Its flows: a, b."
