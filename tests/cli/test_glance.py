"""``status`` as the page for one glance: workers, queues, audit, limits, what is next; and ``--watch``."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from typing import IO

import psycopg
import pytest
from click.testing import Result
from psycopg.conninfo import make_conninfo

from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, EXIT_OK
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

Invoke = Callable[..., Result]

WORKER = "5f3c6b1e-0000-4000-8000-000000000001"
BUSY = f"""
    select pgflow.create_flow('Orders');
    select pgflow.add_step('Orders', 'take');
    select pgflow.start_flow('Orders', '1') from generate_series(1, 3);
    update pgmq.q_orders set enqueued_at = now() - interval '90 min', vt = now() + interval '1 h'
    where msg_id = (select min(msg_id) from pgmq.q_orders);
    select pgflow.create_flow('idle');
    select pgflow.create_flow('lost');
    select pgmq.drop_queue('lost');
    create table pgflow.notes_a (id int); create table pgflow.notes_b (id int);
    create table pgflow.notes_c (id int); create table pgflow.notes_d (id int);
    insert into pgflow.worker_functions (function_name, start_mode) values ('orders', 'process');
    insert into pgflow.workers (worker_id, queue_name, function_name, last_heartbeat_at, stopped_at) values
      ('{WORKER}', 'orders', 'orders', now() + interval '1 h', null),
      ('5f3c6b1e-0000-4000-8000-000000000002', 'orders', 'orders', now() - interval '1 h', null),
      ('5f3c6b1e-0000-4000-8000-000000000003', 'orders', 'orders', now(), now());
"""


def test_what_somebody_wrote_forges_no_line_and_drives_no_terminal(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("dirty_runs")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "insert into pgflow.worker_functions (function_name, start_mode, paused_at, pause_reason) "
            "values (%s, 'process', now(), %s)",
            ["f\x1b]0;title\x07\u202e", "bad\nnext       Nothing to do.\x1b[2J"],
        )
    page = invoke("status", "--dsn", dsn).stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(page)
    assert sum(line.startswith("next ") for line in page.splitlines()) == 1
    assert "bad\\nnext       Nothing to do.\\x1b[2J" in page
    assert "f\\x1b]0;title\\x07\\u202e since " in page
    document = json.loads(invoke("status", "--dsn", dsn, "--format", "json").stdout)
    assert document["paused"][0]["reason"] == "bad\nnext       Nothing to do.\x1b[2J"


@pytest.fixture(scope="module")
def busy(server: Server, templates: Templates) -> Iterator[str]:
    """A 0.16.0 database in which things go on; no test changes it."""
    dsn = templates.clone("core_0_16_0", "glance")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(BUSY.encode())
        connection.execute("alter database glance set statement_timeout to '2min'")
        connection.execute("alter role current_user in database glance set lock_timeout to '7s'")
    yield dsn
    server.drop_database("glance")


def shown(text: str) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        found = re.fullmatch(r"(\w*) +(.*)", line)
        assert found is not None, line
        name = found[1] or name
        rows.setdefault(name, []).append(found[2])
    return rows


def test_the_page_says_what_goes_on_and_what_is_next(busy: str, invoke: Invoke) -> None:
    result = invoke("status", "--dsn", busy)
    assert (result.exit_code, result.stderr) == (EXIT_OK, "")
    rows = shown(result.stdout)
    assert re.fullmatch(
        r"glance \(PostgreSQL [\d.]+\) at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", rows["database"][0]
    )
    (worker,) = rows["workers"]
    assert worker.startswith(f'worker {WORKER} of function "orders" (process) on queue "orders", last ')
    assert rows["queues"] == [
        "lost: there is no such queue",
        "orders: 2 visible of 3, the oldest 2 h old",
        "1 empty queue",
    ]
    assert re.fullmatch(r"1 error, \d+ notes? \(queue-absent\)", rows["audit"][0]), rows["audit"]
    assert rows["timeouts"] == ["statement_timeout 2min (database), lock_timeout 7s (database user)"]
    assert rows["next"] == ["pgflow-migrate audit: 1 finding stands in the way, each with what mends it."]
    # They come last, and few of them.
    assert rows["additions"][0] == "4 of your own, of no consequence"
    assert rows["additions"][-1] == "… and 1 more"
    assert list(rows)[-1] == "additions"
    assert "unread" not in rows


def test_json_has_all_of_it(busy: str, invoke: Invoke) -> None:
    document = json.loads(invoke("status", "--dsn", busy, "--format", "json").stdout)
    assert [worker["worker_id"] for worker in document["workers"]] == [WORKER]
    queues = {queue["queue_name"]: queue for queue in document["queues"]}
    assert (queues["orders"]["visible"], queues["orders"]["total"]) == (2, 3)
    assert 5400 <= queues["orders"]["oldest_age"] < 7200
    assert queues["idle"] == {
        "queue_name": "idle",
        "visible": 0,
        "total": 0,
        "oldest_age": None,
        "problem": None,
    }
    assert (queues["lost"]["total"], queues["lost"]["problem"]) == (None, "absent")
    assert document["audit"]["errors"] == 1
    assert document["audit"]["blocking"] == ["queue-absent"]
    limits = {limit["name"]: (limit["value"], limit["source"]) for limit in document["timeouts"]}
    assert limits["statement_timeout"] == ("2min", "database")
    assert limits["idle_in_transaction_session_timeout"] == (None, "default")
    assert (document["upgrades"], document["unread"], document["activity_grants"]) == ([], [], [])
    assert len(document["additions"]) == 4


def test_a_role_without_rights_is_told_what_it_needs(busy: str, invoke: Invoke) -> None:
    with psycopg.connect(busy, autocommit=True) as owner:
        owner.execute("create role glancer login")
        try:
            rows = shown(invoke("status", "--dsn", make_conninfo(busy, user="glancer")).stdout)
            said, *grants = rows["workers"]
            assert said == "not to be read by this role, nor the queues; what it needs:"
            assert grants == [
                "grant usage on schema pgflow to glancer;",
                "grant select on pgflow.workers to glancer;",
                "grant select on pgflow.worker_functions to glancer;",
                "grant select on pgflow.steps to glancer;",
                "grant select on pgflow.flows to glancer;",
            ]
            assert "queues" not in rows
            for grant in grants:
                owner.execute(grant.encode())
            rows = shown(invoke("status", "--dsn", make_conninfo(busy, user="glancer")).stdout)
            assert rows["workers"][0].startswith(f"worker {WORKER} ")
            assert "orders: not to be read by this role" in rows["queues"]
        finally:
            owner.execute("drop owned by glancer; drop role glancer")


def test_what_others_have_locked_is_passed_over_and_a_running_upgrade_named(
    busy: str, invoke: Invoke
) -> None:
    with psycopg.connect(busy) as upgrading:
        upgrading.execute("select pg_advisory_xact_lock(hashtextextended('pgflow-migrate', 0))")
        upgrading.execute("lock table pgmq.q_orders in access exclusive mode")
        pid = upgrading.info.backend_pid
        result = invoke("status", "--dsn", busy)
    assert (result.exit_code, result.stderr) == (EXIT_OK, "")
    rows = shown(result.stdout)
    assert rows["pgflow"] == ["0.16.0"]
    assert rows["upgrade"] == [f"one is running: pid {pid}"]
    assert rows["unread"] == [
        "Queues could not be read: another session has locked them, an upgrade perhaps."
    ]
    assert rows["workers"][0].startswith(f"worker {WORKER} ")
    assert rows["audit"] == ["not made"]
    assert rows["next"] == ["Wait until the upgrade that runs has ended, then look again."]


def test_an_upgrade_that_has_its_locks_is_named(busy: str, invoke: Invoke) -> None:
    with psycopg.connect(busy) as upgrading:
        upgrading.execute("select pg_advisory_xact_lock(hashtextextended('pgflow-migrate', 0))")
        upgrading.execute("lock table pgflow.flows, pgflow.worker_functions in access exclusive mode")
        pid = upgrading.info.backend_pid
        result = invoke("status", "--dsn", busy)
    assert result.exit_code == EXIT_COULD_NOT_RUN
    assert result.stderr == (
        f"error: An upgrade is running (pid {pid}), and has locked schema pgflow.\n"
        "Look again when it has ended.\n"
    )


def watching(dsn: str, *options: str, stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pgflow_migrate", "status", "--dsn", dsn, "--watch", "0.1", *options]
    environment = {**os.environ, "TERM": "xterm", "LINES": "24"}  # which is not the terminal's
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment)


def ended(child: subprocess.Popen[bytes], number: int) -> tuple[int, bytes]:
    """Send the signal; exit code and stderr."""
    child.send_signal(number)
    assert child.stderr is not None
    with child.stderr as stderr:
        told = stderr.read()
    return child.wait(30), told


def test_watch_prints_page_after_page_where_nobody_looks_and_ctrl_c_ends_it(busy: str) -> None:
    child = watching(busy, stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout as pages:
        first, second = "", ""
        while (line := pages.readline().decode()).strip():
            first += line
        while not (line := pages.readline().decode()).startswith("additions"):
            second += line
        assert ended(child, signal.SIGINT) == (EXIT_OK, b"")
    assert first.startswith("database   glance (")
    assert second.startswith("database   glance (")
    assert "\x1b" not in first + second
    assert shown(second)["queues"] == shown(first)["queues"]


@pytest.mark.parametrize("height", [50, 9])
def test_watch_draws_over_the_other_screen_and_leaves_the_scrollback_alone(busy: str, height: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, 200, 0, 0))
    child = watching(busy, stdout=theirs)
    os.close(theirs)

    def read() -> bytes:
        with contextlib.suppress(OSError):  # Linux: the other end is closed
            return os.read(ours, 65536)
        return b""

    drawn = b""
    while drawn.count(b"\x1b[H") < 3:
        more = read()
        assert more, drawn
        drawn += more
    assert ended(child, signal.SIGINT) == (EXIT_OK, b"")
    while more := read():
        drawn += more
    os.close(ours)
    text = drawn.decode().replace("\r\n", "\n")
    first, page, *_ = text.split("\x1b[H")
    assert first == "\x1b[?1049h"
    assert page.endswith("\n\x1b[J")
    lines = [line.removeprefix("\x1b[2K") for line in page.removesuffix("\x1b[J").splitlines()]
    assert lines[0].startswith("database   glance (")
    if height == 9:
        assert len(lines) == 8
        assert re.fullmatch(r"… \d+ more lines: --format json has all", lines[7])
    else:
        assert lines[-1].startswith("           … and 1 more")
    # At the end the last page stands on the terminal's own screen, as a whole.
    last = text.partition("\x1b[?1049l\r\n")[2]
    names = list(shown(last))
    assert (names[0], names[-1]) == ("database", "additions")
    assert "\x1b[3J" not in text
    assert "\x1b[2J" not in text


def test_watch_as_json_is_an_object_a_line_and_waits_for_a_server_that_lets_nobody_in(busy: str) -> None:
    child = watching(busy, "--format", "json", stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    with (
        child.stdout as lines,
        psycopg.connect(make_conninfo(busy, dbname="postgres"), autocommit=True) as at,
    ):
        first = json.loads(lines.readline())
        at.execute("alter database glance with allow_connections false")
        try:
            told = child.stderr.readline()
        finally:
            at.execute("alter database glance with allow_connections true")
        second = json.loads(lines.readline())
        assert ended(child, signal.SIGTERM) == (EXIT_OK, b"")
    assert first["taken_at"] < second["taken_at"]
    assert first["audit"] == second["audit"]  # which is made once a minute
    assert told.startswith(b'User "postgres" may not connect to database "glance" at ')
