"""What may go wrong: each kind is a function that does it, called while the line has stopped.

Nothing is simulated: real processes get real signals, a real connection is reset, and the server's own
process is refused more disk. Linux only.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from tests.faults.client import Client
from tests.faults.line import Line, Verdict, When

from pgflow_migrate.servers import account
from pgflow_migrate.servers.kinds import LocalServer

PATIENCE = 30.0


@dataclass
class Scene:
    """An upgrade that has stopped.

    Attributes:
        server: its server, which the test alone uses.
        client: its process.
        line: between them.
        when: where the line has stopped.
        failure: what the kind itself could not do.
    """

    server: LocalServer
    client: Client
    line: Line
    when: When
    failure: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        name: as in the table.
        what: what it does, for the reader of the table.
        strike: does it, and says what becomes of the line.
        may_miss: whether the upgrade may end well, since the fault strikes only what needs the resource.
        away: whether the server may be out of reach when the client asks what became of its COMMIT.
        goes_on: whether what the client has sent arrives all the same.
        kills: whether it ends the whole server.
        silent: whether the client cannot say anything.
        restarts: whether the server has to be started again afterwards.
    """

    name: str
    what: str
    strike: Callable[[Scene], Verdict]
    may_miss: bool = False
    away: bool = False
    goes_on: bool = False
    kills: bool = False
    silent: bool = False
    restarts: bool = False


def _answer_is_lost(scene: Scene) -> Verdict:
    return Verdict.HANG_UP if scene.when == "answered" else Verdict.GO_ON


def _terminate_backend(scene: Scene) -> Verdict:
    with psycopg.connect(scene.server.admin_dsn, autocommit=True) as admin:
        row = admin.execute("select pg_terminate_backend(%s, 30000)", (scene.line.backend,)).fetchone()
        if row != (True,) and scene.when == "before":
            scene.failure = "the backend did not end"
    return _answer_is_lost(scene)


def kill_server(server: LocalServer) -> None:
    """SIGKILL to the postmaster and to every process of its own, and wait until they are gone."""
    with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
        others = [pid for (pid,) in admin.execute("select pid from pg_stat_activity").fetchall()]
    postmaster = int((server.cluster.data / "postmaster.pid").read_text(encoding="utf-8").split()[0])
    for pid in (postmaster, *others):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _wait_until_gone(others)


def _kill_server_and_restart(scene: Scene) -> Verdict:
    kill_server(scene.server)
    scene.server.crash()  # it is dead already: this only starts it again
    return _answer_is_lost(scene)


def _kill_server(scene: Scene) -> Verdict:
    kill_server(scene.server)
    return _answer_is_lost(scene)


def _terminate_client(scene: Scene) -> Verdict:
    pid = scene.client.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    # It cancels what it believes to be running, and waits for the answer, which therefore has to go on.
    if not scene.line.cancelled.wait(PATIENCE):
        scene.failure = "the client did not cancel"
    return Verdict.GO_ON


def _kill_client(scene: Scene) -> Verdict:
    pid = scene.client.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _wait_until_gone([pid])
    return Verdict.HANG_UP


def _reset_connection(scene: Scene) -> Verdict:
    return Verdict.RESET


def _fill_disk(scene: Scene) -> Verdict:
    """From here on no file of the backend's grows: every write that needs room fails with EFBIG."""
    # By the server's own account: for another's process it would take a privilege that a container may lack.
    # The soft limit only, which the process itself does not raise.
    command = ["prlimit", f"--pid={scene.line.backend}", "--fsize=0:"]
    subprocess.run(command, check=True, capture_output=True, text=True, **account.become())
    return Verdict.GO_ON


KINDS = (
    Kind("backend", "pg_terminate_backend() on the upgrade's session", _terminate_backend),
    Kind(
        "server",
        "kill -9 of the whole server, back before the client asks",
        _kill_server_and_restart,
        kills=True,
    ),
    Kind(
        "server away",
        "kill -9 of the whole server, back later",
        _kill_server,
        kills=True,
        away=True,
        restarts=True,
    ),
    Kind("sigterm", "SIGTERM to the client", _terminate_client, goes_on=True),
    Kind("sigkill", "SIGKILL to the client", _kill_client, silent=True),
    Kind("connection", "the TCP connection is reset at both ends", _reset_connection),
    Kind(
        "disk",
        "the session's files cannot grow any more (RLIMIT_FSIZE)",
        _fill_disk,
        may_miss=True,
        away=True,
    ),
)
"""All kinds, the cheapest first."""


def wait_until_reaped(pid: int) -> None:
    """Until the parent of a process knows that it has ended: a postmaster then knows of a crash, too."""
    _wait_while(lambda: Path(f"/proc/{pid}").exists(), pid)


def _wait_until_gone(pids: Iterable[int]) -> None:
    for pid in pids:
        _wait_while(functools.partial(_runs, pid), pid)


def _wait_while(runs: Callable[[], bool], pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while runs():
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} does not end")
        time.sleep(0.005)


def _runs(pid: int) -> bool:
    """Whether it has not ended; one that nobody has waited for yet has ended, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
