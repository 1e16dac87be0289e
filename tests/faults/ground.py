"""A server with a populated database to break upgrades on, and the judgement of what they leave."""

from __future__ import annotations

import itertools
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from tests.faults.boundaries import Boundary, enumerate_boundaries
from tests.faults.client import Said, upgrading
from tests.faults.kinds import PATIENCE, Kind, Scene, wait_until_reaped
from tests.faults.line import Line, Verdict

from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences
from pgflow_migrate.replay.signature import Signature
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import open_server
from pgflow_migrate.servers.kinds import LocalServer

UNCHANGED = "The database is unchanged."
IN_DOUBT = "whether it took effect could not be found out"

# COMMIT has to have reached the file system before it is answered. A kill -9 does not lose what is there, so
# the waits for the disk itself (fsync) may stay off.
_SETTINGS = {"synchronous_commit": "on", "autovacuum": "off"}

_POPULATE = Path(__file__).with_name("populate.sql")

_LEFT_BEHIND = """
select format('session %s (%s)', pid, state) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
union all
select format('lock %s %s', locktype, mode) from pg_locks
where database = (select oid from pg_database where datname = current_database())
  and pid is distinct from pg_backend_pid()
union all
select format('prepared transaction %s', gid) from pg_prepared_xacts where database = current_database()
"""

_FILE = re.compile(r" file [0-9]+$")

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Cell:
    """What one fault at one boundary came to.

    Attributes:
        boundary: where.
        kind: the kind's name.
        state: ``unchanged`` or ``upgraded``, or empty when it is neither.
        said: how the client put it.
        problems: what is wrong, a sentence each.
        seconds: how long it took.
    """

    boundary: Boundary
    kind: str
    state: str
    said: Said
    problems: tuple[str, ...]
    seconds: float


class Ground:
    """A server of our own, with a template database.

    Attributes:
        server: the server.
        before: the state of each fresh database.
        after: the state that an upgrade leaves, without what no two upgrades share.
        messages: what an undisturbed upgrade sends.
        boundaries: all of them.
    """

    def __init__(self, server: LocalServer, templates: Templates, revision: str) -> None:
        """Populate a database at ``revision``, and upgrade a clone of it undisturbed."""
        self.server = server
        self._template = f"populated_{revision}"
        dsn = templates.clone(revision, self._template)
        with psycopg.connect(dsn) as connection:
            connection.execute(_POPULATE.read_bytes())
            # pgflow was not installed by us there, so nothing of ours may be left after a failure.
            connection.execute("drop schema pgflow_migrate cascade")
        with self.database() as dsn:
            self.before = _state(dsn)
            with Line(self._socket()) as line, upgrading(_through(line, dsn)) as client:
                said = client.said()
            if said.status != "upgraded" or line.failure is not None:
                raise RuntimeError(f"the undisturbed upgrade failed: {said} {line.failure!r}")
            self.after = _comparable(_state(dsn))
        self.messages = tuple(line.messages)
        self.boundaries = enumerate_boundaries(self.messages)

    @contextmanager
    def database(self) -> Iterator[str]:
        """A fresh database; dropped at the end."""
        name = f"fault_{next(_numbers)}"
        yield self.server.create_database(name, template=self._template)
        self.server.drop_database(name)

    def break_all(self, faults: Iterable[tuple[Boundary, Kind]], *, each: bool = False) -> Iterator[Cell]:
        """Break upgrades of one database, one after the other, as long as each leaves it as it was.

        So each is the next upgrade of a database that all those before have failed on. After the last one,
        and after one that did not leave it as it was, the next upgrade runs to its end, and a fresh database
        follows.

        Args:
            faults: where and how.
            each: run the next upgrade to its end after each of them.
        """
        left = deque(faults)
        while left:
            with self.database() as dsn:
                again = True
                while again and left:
                    boundary, kind = left.popleft()
                    cell = self.break_at(dsn, boundary, kind, repeat=each or not left)
                    again = not each and cell.state == "unchanged"
                    yield cell

    def break_at(self, dsn: str, boundary: Boundary, kind: Kind, *, repeat: bool = False) -> Cell:
        """Upgrade a database in the state :attr:`before`, break it, and judge what is left.

        Args:
            dsn: the database.
            boundary: where.
            kind: how.
            repeat: whether the next upgrade is run to its end; it is, too, when the database has changed.
        """
        started = time.monotonic()
        problems: list[str] = []
        said, scene_failure, heard = self._broken(dsn, boundary, kind)
        if scene_failure:
            problems.append(scene_failure)
        plain = [statement for message in self.messages for statement in message]
        if heard[: boundary.stop.number + 1] != plain[: boundary.stop.number + 1]:
            problems.append("the upgrade did not come here by the same statements")
        problems += _left_behind(dsn)
        state, differs = self._judge_state(_state(dsn))
        problems += differs
        problems += judge_words(boundary, kind, state, said)
        if repeat or state != "unchanged":
            problems += self._repeat(dsn, state)
        return Cell(boundary, kind.name, state, said, tuple(problems), time.monotonic() - started)

    def _broken(self, dsn: str, boundary: Boundary, kind: Kind) -> tuple[Said, str, list[str]]:
        scene: Scene | None = None

        def act() -> Verdict:
            assert scene is not None
            try:
                return kind.strike(scene)
            except (
                Exception
            ) as error:  # here it is the fault that failed; in the line it would pass for an end
                scene.failure = f"the fault could not be made: {error!r}"
                return Verdict.HANG_UP

        with Line(self._socket(), boundary.stop, act) as line, upgrading(_through(line, dsn)) as client:
            scene = Scene(self.server, client, line, boundary.stop.when)
            said = client.said()
        if kind.restarts:
            self.server.crash()
        if not kind.kills:
            # Before that a server that is about to recover from the session's crash still lets us in.
            wait_until_reaped(line.backend)
        self._wait_until_it_answers()
        failure = scene.failure
        if not line.stopped.is_set():
            failure = "the line never came to its stop"
        if line.failure is not None:
            failure = f"the line failed: {line.failure!r}"
        return said, failure, [statement for message in line.messages for statement in message]

    def _judge_state(self, now: Signature) -> tuple[str, list[str]]:
        if now == self.before:
            return "unchanged", []
        if _comparable(now) == self.after:
            return "upgraded", []
        return "", [f"half an upgrade: {', '.join(differences(self.before, now)[:5])}"]

    def _repeat(self, dsn: str, state: str) -> Iterator[str]:
        with upgrading(dsn) as client:
            said = client.said()
        wanted = "already-upgraded" if state == "upgraded" else "upgraded"
        if (said.exit_code, said.status) != (0, wanted):
            yield f"the next upgrade ended with {said.exit_code}: {said.status} {said.text}"
        now = _comparable(_state(dsn))
        if now != self.after:
            yield f"the next upgrade left something else: {', '.join(differences(self.after, now)[:5])}"

    def _wait_until_it_answers(self) -> None:
        """A server that a fault has made recover takes a moment."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.server.admin_dsn).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def _socket(self) -> str:
        return str(self.server.cluster.folder / ".s.PGSQL.5432")


@contextmanager
def grounds(*revisions: str) -> Iterator[tuple[Ground, ...]]:
    """A new server, and on it a ground for each revision."""
    with open_server("embedded:18", settings=_SETTINGS) as server:
        assert isinstance(server, LocalServer)
        templates = Templates(server)
        yield tuple(Ground(server, templates, revision) for revision in revisions)


def _through(line: Line, dsn: str) -> str:
    return make_conninfo(dsn, host="127.0.0.1", port=line.port, sslmode="disable", gssencmode="disable")


def _state(dsn: str) -> Signature:
    with psycopg.connect(dsn) as connection:
        return signature.take(connection)


def _comparable(state: Signature) -> Signature:
    """Without row versions, files and the times of the ledger, in which no two upgrades agree."""
    catalogue = {
        name: _FILE.sub("", text) if name.endswith(": relation") else text
        for name, text in state.catalogue.items()
    }
    tables = {}
    for name, rows in state.tables.items():
        left_out = {signature.VERSION} | ({"applied_at"} if name.startswith("pgflow_migrate.") else set())
        kept = [place for place, column in enumerate(rows.columns) if column not in left_out]
        tables[name] = replace(
            rows,
            columns=tuple(rows.columns[place] for place in kept),
            rows=tuple(tuple(row[place] for place in kept) for row in rows.rows),
        )
    return replace(state, catalogue=catalogue, tables=tables)


def _left_behind(dsn: str) -> Iterator[str]:
    """What is still there after a while: the server needs a moment to notice that a client has gone."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        deadline = time.monotonic() + PATIENCE
        while rows := connection.execute(_LEFT_BEHIND).fetchall():
            if time.monotonic() > deadline:
                yield from (f"left behind: {what}" for (what,) in rows)
                return
            time.sleep(0.01)


def judge_words(boundary: Boundary, kind: Kind, state: str, said: Said) -> Iterator[str]:
    """Whether that outcome may be, and whether the client has told the truth about it."""
    moment = boundary.stop.when
    allowed = {"before": {"unchanged"}, "sent": {"unchanged", "upgraded"}, "answered": {"upgraded"}}[moment]
    if kind.may_miss and moment == "before":
        allowed = {"unchanged", "upgraded"}
    if kind.goes_on and boundary.statement == "COMMIT":  # it is under way, and arrives all the same
        allowed = {"unchanged", "upgraded"}
    if state and state not in allowed:
        yield f"the database is {state}"
    if kind.silent:
        if (said.exit_code, said.document) != (-9, None):
            yield f"the killed client ended with {said.exit_code} and said {said.document}"
        return
    if "Traceback" in said.stderr:
        yield "the client shows a traceback"
    doubt = IN_DOUBT in said.text and said.exit_code == 1 and (kind.away or moment == "sent")
    if doubt and boundary.statement != "COMMIT" and not kind.may_miss:
        yield "the client is in doubt although no COMMIT was sent"
    if doubt:
        return
    truth = (0, "upgraded") if state == "upgraded" else (1, "failed")
    if (said.exit_code, said.status) != truth:
        told = f"{said.exit_code}: {said.status} {said.text}"
        yield f"the database is {state}, but the client ended with {told}"
    elif state == "unchanged" and UNCHANGED not in said.text:
        yield f"the client does not say that the database is unchanged: {said.text}"
