"""Where mutants live: a copy of the checkout, a server with template databases, and a nursery."""

from __future__ import annotations

import contextlib
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
from tests.mutation.mutants import Mutant

from pgflow_migrate import resources
from pgflow_migrate.releases.chain import REVISIONS
from pgflow_migrate.servers import Server, open_server

_COPIED = (
    "src", "tests", "alembic", "alembic.ini", "audits", "helpers", "schemas", "fixtures", "docs", "README.md",
    "pyproject.toml",
)  # fmt: skip
_PATIENCE = 300.0


@dataclass(frozen=True)
class Run:
    """What came of running tests.

    Attributes:
        status: pytest's exit code, or a negative signal; None when they did not end in time.
        seconds: by the clock.
        log: the end of what they printed.
    """

    status: int | None
    seconds: float
    log: str


class Ground:
    """The copy with its server; :func:`open_ground` makes one."""

    def __init__(self, folder: Path, server: Server, nursery: subprocess.Popen[str]) -> None:
        self.root = folder / "checkout"
        self._log = folder / "log"
        self._server = server
        self._nursery = nursery
        self._templates: dict[str, str] = {}

    def run(self, tests: Sequence[str], timeout: float = _PATIENCE, *, warm: bool = False) -> Run:
        """Run tests until the first fails; ``warm`` lets them leave compiled files behind."""
        return self._order(tests=list(tests), timeout=timeout, warm=warm)

    def build(self) -> Run:
        """Build all template databases."""
        for revision in REVISIONS:
            found = self._build(revision, warm=True)
            if found.status:
                break
        return found

    @contextlib.contextmanager
    def rebuilt(self, since: str, revision: str) -> Iterator[Run]:
        """Within it the template of ``revision`` is built anew, and there is none of ``since`` and later."""
        kept = ("surroundings", *REVISIONS[: REVISIONS.index(since)])
        known = self._templates
        # Under other names: the sound ones are wanted again.
        self._templates = {k: v for k, v in known.items() if k in kept}
        try:
            yield self._build(revision, prefix="mutant")
        finally:
            self._templates = known

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
        full = {"tests": [], "build": "", "prefix": "mutant", "timeout": _PATIENCE, "warm": False, **order}
        full |= {"server": server, "templates": self._templates, "log": str(self._log)}
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        print(json.dumps(full), file=self._nursery.stdin, flush=True)
        answer = json.loads(self._nursery.stdout.readline())
        log = self._log.read_text(encoding="utf-8", errors="replace")
        return Run(answer["status"], answer["seconds"], log[-4000:])


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
        ) as nursery,
    ):
        ground = Ground(folder, server, nursery)
        try:
            built = ground.build()
            if built.status:
                raise RuntimeError(f"the templates cannot be built: {built.log}")
            time.sleep(
                1.1
            )  # files compiled so far are older than every mutant, by the second that they record
            yield ground
        finally:
            assert nursery.stdin is not None
            nursery.stdin.close()
