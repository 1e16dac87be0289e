"""A server and its folder are gone at the end, however the end comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.servers import Server, open_server

Eventually = Callable[[Callable[[], bool]], None]

# A program that opens a server, tells where it is, and then waits for its end.
PROGRAM = """
import sys
from pgflow_migrate.servers import open_server
with open_server("embedded:18") as server:
    print(server.admin_dsn, flush=True)
    sys.stdin.read()
"""


def folder_of(server: Server) -> Path:
    return Path(str(conninfo_to_dict(server.admin_dsn)["host"]))


def answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def program_with_a_server() -> Iterator[tuple[subprocess.Popen[str], Path, int]]:
    """The program, its server's folder, and the server's process id."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        dsn = process.stdout.readline()
        assert answers(dsn)
        folder = Path(str(conninfo_to_dict(dsn)["host"]))
        postmaster = (folder / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0]
        yield process, folder, int(postmaster)


def test_the_folder_and_the_server_go_at_the_end() -> None:
    with open_server("embedded:18") as server:
        folder = folder_of(server)
        assert answers(server.admin_dsn)
        assert folder.name.startswith("pgflow-migrate-")
    assert not folder.exists()
    assert not answers(server.admin_dsn)


def test_an_exception_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError), open_server("embedded:18") as server:
        raise ZeroDivisionError
    assert not folder_of(server).exists()
    assert not answers(server.admin_dsn)


def test_a_server_that_does_not_start_tells_why_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    make = tempfile.mkdtemp

    def remember(**options: Any) -> str:
        made.append(make(**options))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", remember)
    with (
        pytest.raises(
            PgflowMigrateError, match=r'did not start: .*unrecognized configuration parameter "no_such"'
        ),
        open_server("embedded:18", settings={"no_such": "setting"}),
    ):
        pass
    assert len(made) == 1
    assert not Path(made[0]).exists()


def test_a_place_for_temporary_files_that_does_not_suit_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with open_server("embedded:18") as server:
        assert folder_of(server).parent == Path("/tmp").resolve()  # noqa: S108
        assert answers(server.admin_dsn)


def test_ctrl_c_reaches_the_program_and_not_its_server(eventually: Eventually) -> None:
    with program_with_a_server() as (process, folder, postmaster):
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert errors.rstrip().endswith("KeyboardInterrupt")
        eventually(lambda: not folder.exists() and not alive(postmaster))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_program_leaves_nothing_behind(eventually: Eventually, number: signal.Signals) -> None:
    with program_with_a_server() as (process, folder, postmaster):
        process.send_signal(number)
        assert process.wait(60) == -number
        eventually(lambda: not folder.exists() and not alive(postmaster))


def test_two_servers_run_side_by_side() -> None:
    with open_server("embedded:18") as first, open_server("embedded:16") as second:
        first.create_database("only_here")
        with psycopg.connect(second.admin_dsn) as connection:
            assert connection.info.server_version // 10000 == 16
            row = connection.execute(
                "select count(*) from pg_database where datname = 'only_here'"
            ).fetchone()
            assert row == (0,)
