"""Scenarios: how an old database is populated, and what audit and upgrade must make of it.

A scenario is a folder ``fixtures/<release>/<name>/`` with ``populate.sql`` (plain SQL, run in a database of
that release) and ``scenario.toml`` (the expectations). Its keys:

``description``
    One or more sentences for the reader.
``upgrade``
    ``succeeds``; or ``rejected``: the upgrade refuses with exactly the error findings and changes nothing.
``changes``
    Columns that the upgrade must change, as ``schema.table.column``; every other value must survive.
``[setup]``
    ``pgmq`` (``extension``: only where PGMQ is an extension), ``extension_members`` (queues whose tables
    become members of the extension, as PGMQ 1.5.1 makes them), ``stock_prune_md5s`` (md5 sums of bodies of
    the pruning helper that count as stock), ``secrets`` (texts that no report and no error may contain),
    ``audit`` (false: upgrade without an audit before), ``audit_as`` (role to audit as; the upgrade is run by
    the database's owner all the same).
``[[finding]]``
    ``severity``, ``code``, ``flow_slug``, ``step_slug``, ``queue_name``, ``count``. Errors and warnings are
    compared exactly; of the infos, those named here must be there.
``[[check]]``
    After the upgrade, in order: ``name``; ``run`` (statements to execute first); ``work_off`` (flows to work
    off next, as a worker would); then ``query`` and its ``rows``, or the ``sqlstate`` that it fails with. The
    text ``NULL`` in a row is SQL's NULL.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgflow_migrate.errors import EXIT_USAGE, PgflowMigrateError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

SEVERITIES = ("error", "warning", "info")
OUTCOMES = ("succeeds", "rejected")


class ScenarioError(PgflowMigrateError):
    """A scenario's files cannot be read or contradict each other."""


class SelectionError(PgflowMigrateError):
    """No scenario is of that release, or has that name."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True)
class ExpectedFinding:
    """A row that the audit must return; ``None`` stands for SQL's NULL."""

    severity: str
    code: str
    flow_slug: str | None = None
    step_slug: str | None = None
    queue_name: str | None = None
    count: int | None = None


@dataclass(frozen=True)
class Check:
    """A query on the upgraded database and the rows, or the SQLSTATE, that it must give."""

    name: str
    query: str
    run: str = ""
    work_off: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    sqlstate: str | None = None


@dataclass(frozen=True)
class Setup:
    """What has to be arranged outside populate.sql; the module's documentation explains the fields."""

    pgmq: str | None = None
    extension_members: tuple[str, ...] = ()
    stock_prune_md5s: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    audit: bool = True
    audit_as: str | None = None


@dataclass(frozen=True)
class Scenario:
    """One scenario, read from its folder."""

    release: str
    name: str
    description: str
    populate: str
    upgrade: str
    changes: tuple[str, ...] = ()
    setup: Setup = Setup()
    findings: tuple[ExpectedFinding, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def id(self) -> str:
        """``<release>/<name>``."""
        return f"{self.release}/{self.name}"


def load_all(
    root: Path, releases: Sequence[str] = (), patterns: Sequence[str] = ("*",)
) -> tuple[Scenario, ...]:
    """The scenarios below ``root``, in order of release and name.

    Args:
        root: the folder that holds a folder for each release.
        releases: only these, such as ``0.16.0``; without any all of them.
        patterns: shell patterns of the names wanted; one of them is enough.

    Raises:
        SelectionError: none is of one of these releases, or one of the patterns fits none of their names.
        ScenarioError: there are none at all, or one is unreadable.
    """
    found = folders(root)
    known = sorted({folder.parent.name for folder in found})
    if not found:
        raise ScenarioError(f"There are no scenarios in {root}.", "Its folders should be releases.")
    for release in releases:
        if release not in known:
            raise SelectionError(
                f"There are no scenarios for release {release}.", f"Known releases: {', '.join(known)}."
            )
    eligible = [folder for folder in found if not releases or folder.parent.name in releases]
    names = sorted({folder.name for folder in eligible})
    wanted: set[str] = set()
    for pattern in patterns:
        fitting = {name for name in names if fnmatch.fnmatchcase(name, pattern)}
        if not fitting:
            raise SelectionError(
                f"No scenario is called {pattern!r}.", f"Known scenarios: {', '.join(names)}."
            )
        wanted |= fitting
    return tuple(load(folder) for folder in eligible if folder.name in wanted)


def folders(root: Path) -> tuple[Path, ...]:
    """The folders of all scenarios below ``root``, in order of release and name; none without a root."""
    releases = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    return tuple(path for release in releases for path in sorted(release.iterdir()) if path.is_dir())


def load(folder: Path) -> Scenario:
    """Read one scenario.

    Raises:
        ScenarioError: a file is missing, is not TOML, has an unknown key or an impossible value.
    """
    toml, populate = folder / "scenario.toml", folder / "populate.sql"
    try:
        document = tomllib.loads(toml.read_text(encoding="utf-8"))
        statements = populate.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ScenarioError(f"{error.filename} is missing.", "A scenario needs both its files.") from error
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{toml} is not TOML: {error}.") from error
    reader = _Reader(toml, "", document)
    scenario = Scenario(
        release=folder.parent.name,
        name=folder.name,
        description=reader.text("description"),
        populate=statements,
        upgrade=reader.choice("upgrade", OUTCOMES),
        changes=reader.texts("changes"),
        setup=_setup(reader.table("setup")),
        findings=tuple(_finding(r) for r in reader.tables("finding")),
        checks=tuple(_check(r) for r in reader.tables("check")),
    )
    reader.finish()
    _consistent(toml, scenario)
    return scenario


def _setup(reader: _Reader) -> Setup:
    setup = Setup(
        pgmq=reader.optional_choice("pgmq", ("extension", "sql")),
        extension_members=reader.texts("extension_members"),
        stock_prune_md5s=reader.texts("stock_prune_md5s"),
        secrets=reader.texts("secrets"),
        audit=reader.flag("audit", default=True),
        audit_as=reader.optional_text("audit_as"),
    )
    reader.finish()
    return setup


def _finding(reader: _Reader) -> ExpectedFinding:
    finding = ExpectedFinding(
        severity=reader.choice("severity", SEVERITIES),
        code=reader.text("code"),
        flow_slug=reader.optional_text("flow_slug"),
        step_slug=reader.optional_text("step_slug"),
        queue_name=reader.optional_text("queue_name"),
        count=reader.optional_number("count"),
    )
    reader.finish()
    return finding


def _check(reader: _Reader) -> Check:
    check = Check(
        name=reader.text("name"),
        run=reader.optional_text("run") or "",
        work_off=reader.texts("work_off"),
        query=reader.text("query"),
        rows=reader.rows("rows"),
        sqlstate=reader.optional_text("sqlstate"),
    )
    reader.finish()
    return check


def _consistent(path: Path, scenario: Scenario) -> None:
    blocking = any(finding.severity == "error" for finding in scenario.findings)
    # What a role may not see blocks its audit, not the owner's upgrade.
    same_eyes = scenario.setup.audit and scenario.setup.audit_as is None
    if same_eyes and blocking != (scenario.upgrade == "rejected"):
        raise ScenarioError(
            f"{path}: 'upgrade' is {scenario.upgrade!r} with {'an' if blocking else 'no'} error finding.",
            "An upgrade is rejected exactly when the audit finds errors.",
        )
    if scenario.upgrade == "rejected" and (scenario.checks or scenario.changes):
        raise ScenarioError(
            f"{path}: a rejected upgrade changes nothing, so 'check' and 'changes' are out of place."
        )
    if scenario.setup.extension_members and scenario.setup.pgmq != "extension":
        raise ScenarioError(f"{path}: 'setup.extension_members' needs 'setup.pgmq = \"extension\"'.")


class _Reader:
    """Takes typed values out of a TOML table; what is left over at the end is an unknown key."""

    def __init__(self, path: Path, prefix: str, table: Mapping[str, Any]) -> None:
        self._path = path
        self._prefix = prefix
        self._left = dict(table)

    def text(self, key: str) -> str:
        if key not in self._left:
            raise ScenarioError(f"{self._path}: '{self._prefix}{key}' is missing.")
        value: str = self._take(key, str, "a text", None)
        return value

    def optional_text(self, key: str) -> str | None:
        value: str | None = self._take(key, str, "a text", None)
        return value

    def optional_number(self, key: str) -> int | None:
        value: int | None = self._take(key, int, "a whole number", None)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value: bool = self._take(key, bool, "true or false", default)
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        return self._among(key, self.text(key), choices)

    def optional_choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        value = self.optional_text(key)
        return None if value is None else self._among(key, value, choices)

    def _among(self, key: str, value: str, choices: tuple[str, ...]) -> str:
        if value not in choices:
            raise ScenarioError(
                f"{self._path}: '{self._prefix}{key}' is {value!r}.", f"Use {' or '.join(choices)}."
            )
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values: list[Any] = self._take(key, list, "a list of texts", [])
        if not all(isinstance(value, str) for value in values):
            raise ScenarioError(f"{self._path}: '{self._prefix}{key}' is not a list of texts.")
        return tuple(values)

    def rows(self, key: str) -> tuple[tuple[Any, ...], ...]:
        values: list[Any] = self._take(key, list, "a list of rows", [])
        if not all(isinstance(value, list) for value in values):
            raise ScenarioError(f"{self._path}: '{self._prefix}{key}' is not a list of rows.")
        return tuple(tuple(row) for row in values)

    def table(self, key: str) -> _Reader:
        value: dict[str, Any] = self._take(key, dict, "a table", {})
        return _Reader(self._path, f"{self._prefix}{key}.", value)

    def tables(self, key: str) -> list[_Reader]:
        values: list[Any] = self._take(key, list, "a list of tables", [])
        if not all(isinstance(value, dict) for value in values):
            raise ScenarioError(f"{self._path}: '{self._prefix}{key}' is not a list of tables.")
        return [_Reader(self._path, f"{key}[{number}].", value) for number, value in enumerate(values, 1)]

    def finish(self) -> None:
        if self._left:
            keys = ", ".join(f"'{self._prefix}{key}'" for key in sorted(self._left))
            raise ScenarioError(f"{self._path}: unknown key {keys}.")

    def _take(self, key: str, kind: type, words: str, default: Any) -> Any:
        value = self._left.pop(key, default)
        wrong_bool = kind is int and isinstance(value, bool)
        if value is not default and (wrong_bool or not isinstance(value, kind)):
            raise ScenarioError(f"{self._path}: '{self._prefix}{key}' is {value!r}, not {words}.")
        return value
