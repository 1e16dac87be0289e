"""Where mutants live: a copy of the checkout, a server with template databases, and a nursery."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from tests.mutation import nursery
from tests.mutation.mutants import Mutant

from pgflow_migrate import resources
from pgflow_migrate.audit import script
from pgflow_migrate.releases.chain import REVISIONS
from pgflow_migrate.servers import Server, open_server

_COPIED = (
    "src", "tests", "alembic", "alembic.ini", "audits", "helpers", "schemas", "fixtures", "docs", "README.md",
    "pyproject.toml",
)  # fmt: skip
_PATIENCE = 300.0
_AUDITED = "core_0_16_0"


@dataclass(frozen=True)
class Run:
    """What came of running tests.

    Attributes:
        status: pytest's exit code, or a negative signal; None when they did not end in time.
        seconds: by the clock.
        log: the end of what they printed.
        killer: the test that failed; empty when none did.
    """

    status: int | None
    seconds: float
    log: str
    killer: str = ""


@dataclass(frozen=True)
class _Kept:
    connection: psycopg.Connection[dict[str, Any]]
    rows: list[Any]
    lines: list[int]

    def distance(self, line: int) -> int:
        """From the nearest line of which a mutant showed here."""
        nowhere = 10_000 if self.rows else 20_000
        return min((abs(line - other) for other in self.lines), default=nowhere)

    def agrees(self, block: str) -> bool:
        return _findings(self.connection, block) == self.rows


def _findings(connection: psycopg.Connection[dict[str, Any]], block: str) -> list[Any] | None:
    """Errors and warnings without hints, as tests compare them; None when the block does not run."""
    try:
        connection.execute("set transaction isolation level repeatable read read only")
        connection.execute(script.SETTINGS.encode())
        connection.execute("set local statement_timeout = '10s'")
        connection.execute(block.encode())
        rows = connection.execute(script.FETCH.encode()).fetchall()
    except psycopg.Error:
        return None
    finally:
        connection.rollback()
    names = ("severity", "code", "flow_slug", "step_slug", "queue_name", "count", "samples")
    return [[row[name] for name in names] for row in rows if row["severity"] != "info"]


class Ground:
    """The copy with its server; :func:`open_ground` makes one."""

    def __init__(self, folder: Path, server: Server, process: subprocess.Popen[str]) -> None:
        self.root = folder / "checkout"
        self._log = folder / "log"
        self._server = server
        self._nursery = process
        self._templates: dict[str, str] = {}
        self._kept: list[_Kept] = []

    def run(
        self,
        tests: Sequence[str],
        timeout: float = _PATIENCE,
        *,
        first: Sequence[str] = (),
        warm: bool = False,
    ) -> Run:
        """Run tests until one fails, ``first`` before others; ``warm`` lets them leave compiled files."""
        return self._order(tests=list(tests), timeout=timeout, first=list(first), warm=warm)

    def build(self) -> Run:
        """Build all template databases."""
        for revision in REVISIONS:
            found = self._build(revision, warm=True)
            if found.status:
                break
        return found

    @contextlib.contextmanager
    def rebuilt(self, mutant: Mutant, revision: str) -> Iterator[bool]:
        """Within it the templates have the mutant, and all that builds on it; False when it cannot be built.

        Args:
            mutant: of a file of a revision.
            revision: the newest of which a template is wanted.
        """
        since = mutant.path.split("/")[2]
        kept = ("surroundings", *REVISIONS[: REVISIONS.index(since)])
        known = self._templates
        # Under other names: the sound ones are wanted again.
        self._templates = {k: v for k, v in known.items() if k in kept}
        try:
            if "/functions/" in mutant.path:
                yield self._replaced(mutant, known)
            else:
                yield self._build(revision, prefix="mutant").status == 0
        finally:
            self._templates = known

    def _replaced(self, mutant: Mutant, known: dict[str, str]) -> bool:
        """Copies of templates in which a function is the mutant, up to where a later revision replaces it."""
        _, _, since, _, name = Path(mutant.path).parts
        for revision in REVISIONS[REVISIONS.index(since) :]:
            copy = f"mutant_{revision}"
            dsn = self._server.create_database(copy, template=known[revision])
            if revision == since or not (self.root / "alembic/sql" / revision / "functions" / name).exists():
                with psycopg.connect(dsn, autocommit=True) as connection:
                    try:
                        connection.execute(mutant.text.encode())
                    except psycopg.Error:
                        return False
            else:
                mutant = dataclasses.replace(mutant, text="select 1")
            self._templates[revision] = copy
        return True

    def forget(self) -> None:
        """Close what is kept."""
        while self._kept:
            self._kept.pop().connection.close()

    def keep_audited(self, tests: Sequence[str]) -> int:
        """Run tests, and keep the databases that they audit; how many there are.

        Those stay out in which the audit finds something else now: for another role, or the test went on.
        """
        run = self._order(tests=list(tests), keep=True)
        if run.status:
            raise RuntimeError(f"the tests fail without any mutant: {run.log}")
        for line in self._log.read_text(encoding="utf-8").split("\n"):
            if line.startswith(nursery.KEPT):
                name, rows = json.loads(line.removeprefix(nursery.KEPT))
                kept = _Kept(psycopg.connect(self._server.dsn(name), row_factory=dict_row), rows, [])
                if kept.agrees(script.findings_block()):
                    self._kept.append(kept)
                else:
                    kept.connection.close()
        self._server.create_database("sound_empty", template=self._templates[_AUDITED])
        self.sweep()
        return len(self._kept)

    def audits_alike(self, mutant: Mutant) -> bool:
        """Whether the mutant finds in each of these databases what the tests expect."""
        # What showed mutants of the neighbourhood comes first.
        for kept in sorted(self._kept, key=lambda kept: kept.distance(mutant.line)):
            if not kept.agrees(mutant.text):
                kept.lines.append(mutant.line)
                return False
        return True

    def is_audit(self, mutant: Mutant) -> bool:
        """Whether the mutant of the findings' block is SQL: it runs where there is nothing to find."""
        with psycopg.connect(self._server.dsn("sound_empty"), row_factory=dict_row) as connection:
            return _findings(connection, mutant.text) is not None

    def _build(self, revision: str, *, prefix: str = "sound", warm: bool = False) -> Run:
        found = self._order(build=revision, prefix=prefix, warm=warm)
        if not found.status:
            self._templates.setdefault("surroundings", f"{prefix}_surroundings")
            self._templates[revision] = f"{prefix}_{revision}"
        return found

    def sweep(self) -> None:
        """Drop the databases that tests have left behind."""
        with psycopg.connect(self._server.admin_dsn, autocommit=True) as connection:
            for (name,) in connection.execute("select datname from pg_database where not datistemplate"):
                if name != "postgres" and not name.startswith("sound_"):
                    connection.execute(
                        sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
                    )

    @contextlib.contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Within it the copy has the mutant."""
        path = self.root / mutant.path
        original = path.read_bytes()
        path.write_text(mutant.text, encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(original)

    def _order(self, **order: Any) -> Run:
        server = {
            "dsn": self._server.admin_dsn,
            "bin": str(self._server.bin_dir),
            "log": str(self._server.log),
        }
        full = {
            "tests": [],
            "first": [],
            "keep": False,
            "build": "",
            "prefix": "mutant",
            "timeout": _PATIENCE,
            "warm": False,
            **order,
        }
        full |= {"server": server, "templates": self._templates, "log": str(self._log)}
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        print(json.dumps(full), file=self._nursery.stdin, flush=True)
        answer = json.loads(self._nursery.stdout.readline())
        log = self._log.read_text(encoding="utf-8", errors="replace")
        killers = [line for line in log.split("\n") if line.startswith(nursery.KILLER)]
        killer = killers[0].removeprefix(nursery.KILLER) if killers else ""
        return Run(answer["status"], answer["seconds"], log[-4000:], killer)


@contextlib.contextmanager
def open_ground(folder: Path) -> Iterator[Ground]:
    """Copy the checkout below ``folder``, start a server, build the templates."""
    checkout = folder / "checkout"
    checkout.mkdir(parents=True)
    for name in _COPIED:
        source = resources.root() / name
        if source.is_dir():
            shutil.copytree(source, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, checkout / name)
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}
    command = [sys.executable, "-m", "tests.mutation.nursery"]
    with (
        open_server() as server,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=checkout, env=environment
        ) as process,
    ):
        ground = Ground(folder, server, process)
        try:
            built = ground.build()
            if built.status:
                raise RuntimeError(f"the templates cannot be built: {built.log}")
            time.sleep(
                1.1
            )  # files compiled so far are older than every mutant, by the second that they record
            yield ground
        finally:
            ground.forget()
            assert process.stdin is not None
            process.stdin.close()
