"""Runs tests in forks of one process that has loaded what they need, so that a run costs its tests alone.

It runs in a copy of the checkout. For each line of JSON on stdin it answers with one on stdout.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Everything but what is mutated, or what would keep a hold of it.
_NEEDED = (
    "alembic.command", "alembic.config", "click.testing", "hypothesis", "jinja2", "psycopg.types.json",
    "psycopg_pool", "pytest", "rich.console", "rich.table", "sqlalchemy.dialects.postgresql",
)  # fmt: skip


KILLER = "noticed by "
KEPT = "kept "
_MEMORY = 4 * 2**30
# Hypothesis is loaded here, before pytest could rewrite it.
_NO_WARNING = ("-W", "ignore::pytest.PytestAssertRewriteWarning")


def main() -> None:
    """Answer until stdin ends."""
    for name in _NEEDED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not [name for name in sys.modules if name.split(".")[0] == "pgflow_migrate"]
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)


def _run(order: dict[str, Any]) -> dict[str, Any]:
    log = Path(order["log"])
    begun = time.monotonic()
    child = os.fork()
    if not child:
        _be_the_child(order, log)
    status = _wait(child, order["timeout"])
    seconds = time.monotonic() - begun
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests have left behind
    return {"status": status, "seconds": seconds}


def _wait(child: int, timeout: float) -> int | None:
    """The exit code; None when the time was not enough."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _be_the_child(order: dict[str, Any], log: Path) -> None:
    status = 70
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))  # a mutant may grow without end
        # A mutant may be as long as the file that it takes the place of, and as old to the second.
        sys.dont_write_bytecode = not order["warm"]
        _use_the_server(order["server"], order["templates"], order["prefix"])
        kept = _keep_what_is_audited() if order["keep"] else []
        status = _templates(order["build"]) if order["build"] else _tests(order["tests"], order["first"])
        for name, rows in kept:
            print(f"{KEPT}{json.dumps([name, rows])}")
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(status))


def _tests(arguments: list[str], first: list[str]) -> int:
    import pytest
    from hypothesis import Phase, settings

    # The same examples for every mutant; and a failure is enough, the smallest one is not looked for.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", phases=phases, database=None, derandomize=True)
    settings.load_profile("mutants")
    return int(
        pytest.main(
            ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", *_NO_WARNING, *arguments],
            [_Order(first), _Killer()],
        )
    )


class _Order:
    """What noticed the last mutants comes first; within each file the properties last: few live so long."""

    def __init__(self, first: list[str]) -> None:
        self._rank = {name: number for number, name in enumerate(first)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        files = {path: number for number, path in enumerate(dict.fromkeys(item.path for item in items))}
        none = len(self._rank)
        items.sort(
            key=lambda item: (
                self._rank.get(item.nodeid, none),
                files[item.path],
                hasattr(item.obj, "hypothesis"),
            )
        )


class _Killer:
    """Says which test has failed."""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            print(f"\n{KILLER}{report.nodeid}", flush=True)


def _templates(revision: str) -> int:
    from pgflow_migrate.replay.templates import Templates
    from pgflow_migrate.servers import open_server

    with open_server() as server:
        Templates(server).at(revision)
    return 0


def _use_the_server(server: dict[str, str], built: dict[str, str], prefix: str) -> None:
    """The fixtures of the tests find a server that runs, and templates that are built."""
    from pgflow_migrate import servers
    from pgflow_migrate.replay import templates

    running = servers.Server("embedded-18", server["dsn"], "", Path(server["bin"]), Path(server["log"]))
    start = servers.open_server

    @contextlib.contextmanager
    def open_server(kind: str = "embedded:18", **how: Any) -> Iterator[servers.Server]:
        if kind == "embedded:18" and not how:
            yield running
        else:
            with start(kind, **how) as other:
                yield other

    begin = templates.Templates.__init__

    def remember(self: Any, of: servers.Server, **how: Any) -> None:
        begin(self, of, **how)
        if of is running and not any(how.values()):
            self._prefix = prefix
            self._built = dict(built)

    servers.open_server = open_server
    templates.Templates.__init__ = remember  # type: ignore[method-assign,assignment]


def _keep_what_is_audited() -> list[tuple[str, list[Any]]]:
    """From now on each database that a test audits stays; their names, and what was found there last."""
    import psycopg
    from psycopg import sql

    from pgflow_migrate import servers
    from pgflow_migrate.audit import run

    kept: list[tuple[str, list[Any]]] = []
    found: dict[str, list[Any]] = {}
    audit, drop = run.run_audit, servers.Server.drop_database

    def run_audit(target: Any, **how: Any) -> Any:
        report = audit(target, **how)
        if isinstance(target, psycopg.Connection):
            rows = [f for f in report.findings if f.severity != "info"]
            found[target.info.dbname] = [
                [f.severity, f.code, f.flow_slug, f.step_slug, f.queue_name, f.count, f.samples] for f in rows
            ]
        return report

    def drop_database(self: servers.Server, name: str) -> None:
        if name not in found:
            drop(self, name)
            return
        with psycopg.connect(self.admin_dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", [name]
            )
            other = f"sound_kept_{name}"
            connection.execute(
                sql.SQL("alter database {} rename to {}").format(sql.Identifier(name), sql.Identifier(other))
            )
        kept.append((other, found.pop(name)))

    run.run_audit = run_audit
    servers.Server.drop_database = drop_database  # type: ignore[method-assign]
    return kept


if __name__ == "__main__":
    main()
