"""The Alembic environment of the Work Center's chain (``alembic -n work_center``).

The store's own ledger is the record. Alembic's version table is made from it in the connection's temporary
schema, and is gone with it. The config's attributes, both or none:

    store         :class:`~pgflow_migrate.work_center.revision.Store`, its connection the caller's
    before_first  called with the first step that is due, under its lock, before anything is written

With none the store is opened here, as ``pgflow-migrate work-center upgrade`` opens it: ``-x path=store.db``,
``-x now=``, ``-x source_schema_version=``, ``-x lock_timeout=5s``, ``-x backup=PATH``, or ``-x backup=no``.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext, MigrationStep, RevisionStep

from pgflow_migrate import durations
from pgflow_migrate.alembic_command import under_alembic_command
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.work_center import chain, ledger, opening, values
from pgflow_migrate.work_center import store as files
from pgflow_migrate.work_center.revision import Store
from pgflow_migrate.work_center.stepping import Stepper

_X_ARGUMENTS = ("path", "now", "source_schema_version", "lock_timeout", "backup")

BeforeFirst = Callable[[chain.Step], None]
Plan = Callable[[Any, MigrationContext], Iterator[MigrationStep]]


def run_online(context: EnvironmentContext) -> None:
    """Run the command on the caller's connection, else on one of our own.

    Raises:
        PgflowMigrateError: as :func:`pgflow_migrate.work_center.upgrade.upgrade`; under the ``alembic``
            command it is printed instead and ends the process with its exit code.
    """
    with under_alembic_command(context.config):
        context.configure(
            dialect_name="sqlite", transactional_ddl=True
        )  # for its options alone: which command it is
        command = context.get_context().opts
        if getattr(command["fn"], "__name__", "") == "downgrade":
            raise PgflowMigrateError(
                "There is no downgrade of a store: the Work Center program knows none either.",
                "Restore the backup that was made before the upgrade.",
            )
        if "purge" in command:
            raise PgflowMigrateError(
                "A store is not stamped: its ledger is the Work Center program's, too.",
                'To upgrade it: alembic -n work_center -x path="…" upgrade head',
            )
        given: Store | None = context.config.attributes.get("store")
        if given is not None:
            _run(context, command["fn"], given, context.config.attributes["before_first"])
            return
        arguments = _x_arguments(context)
        if not arguments.get("path"):
            raise PgflowMigrateError(
                "No store is given.", 'Give its file: alembic -n work_center -x path="…" …'
            )
        path = Path(arguments["path"])
        if command.get("dont_mutate"):  # alembic current, alembic check
            with files.looking(path) as connection:
                ledger.refuse(ledger.read(connection))
                _run(context, command["fn"], Store(connection, 0, 0), lambda step: None)
            return
        with opening.for_upgrade(path, **_options(arguments)) as (store, before_first):
            _run(context, command["fn"], store, before_first)


def run_offline(context: EnvironmentContext) -> None:
    """Refuse: several steps look at the rows, so no script can be written beforehand."""
    with under_alembic_command(context.config):
        raise PgflowMigrateError(
            "The Work Center's steps look at the store's rows, which --sql does not.", "Leave --sql out."
        )


def _run(context: EnvironmentContext, plan: Plan, store: Store, before_first: BeforeFirst) -> None:
    with _borrowed(store.connection) as connection, _version_table(store.connection):
        context.configure(
            connection=connection,
            transactional_ddl=True,
            fn=partial(_planned, plan, store, before_first),
            work_center_store=store,
        )
        context.run_migrations()


@contextlib.contextmanager
def _version_table(connection: sqlite3.Connection) -> Iterator[None]:
    """Alembic's version table with what the ledger says; a temporary table is found before any other."""
    connection.execute("create temp table alembic_version (version_num varchar(32) not null primary key)")
    try:
        if recorded := _recorded_prefix(connection):
            connection.execute("insert into temp.alembic_version values (?)", (recorded[-1].revision,))
        yield
    finally:
        with contextlib.suppress(
            sqlite3.Error
        ):  # after an error that ended the caller's transaction it is gone
            connection.execute("drop table if exists temp.alembic_version")


def _planned(
    plan: Plan,
    store: Store,
    before_first: BeforeFirst,
    heads: Any,
    migration: MigrationContext,
) -> Iterator[MigrationStep]:
    """Alembic's plan, each of its steps with a transaction and a look at the ledger around it."""
    steps = list(plan(heads, migration))
    recorded = ledger.read(store.connection)
    due = [step for step in steps if _step(step).name not in recorded]
    stepper = Stepper(store, len(due), before_first)
    for step in steps:
        step.migration_fn = _taken(stepper, step)
        yield step


def _taken(stepper: Stepper, step: MigrationStep) -> Callable[[], None]:
    upgrade = step.migration_fn

    @wraps(upgrade)  # Alembic logs its name
    def take() -> None:
        stepper.take(_step(step), upgrade)

    return take


def _step(planned: MigrationStep) -> chain.Step:
    assert isinstance(planned, RevisionStep)  # noqa: S101 - stamps are refused above
    found = chain.find(planned.revision.revision)
    if found is None:
        raise PgflowMigrateError(
            f"Revision {planned.revision.revision} is no step of the chain.",
            "Add it to work_center/chain.py.",
        )
    return found


def _recorded_prefix(connection: sqlite3.Connection) -> tuple[chain.Step, ...]:
    """The first steps, up to the first that is not recorded under its name."""
    recorded = ledger.read(connection)
    for place, step in enumerate(chain.STEPS):
        if step.name not in recorded:
            return chain.STEPS[:place]
    return chain.STEPS


class _Borrowed:
    """A connection for SQLAlchemy that leaves transactions, functions and the end of it to its owner."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        """Nothing: steps commit themselves, or the caller does."""

    def rollback(self) -> None:
        """Nothing, likewise."""

    def close(self) -> None:
        """Nothing, likewise."""

    def create_function(self, *arguments: Any, **options: Any) -> None:
        """Nothing: SQLAlchemy would give the caller's connection a function regexp()."""


@contextlib.contextmanager
def _borrowed(connection: sqlite3.Connection) -> Iterator[sa.Connection]:
    """``connection`` as SQLAlchemy's, with the settings that steps need; at the end it is as it was."""
    factories = connection.text_factory, connection.row_factory, connection.isolation_level
    ours = not connection.in_transaction  # setting isolation_level may commit
    connection.text_factory, connection.row_factory = values.text, None
    if ours:
        connection.isolation_level = None
    engine = sa.create_engine("sqlite://", creator=lambda: _Borrowed(connection), poolclass=sa.pool.NullPool)
    try:
        with engine.connect() as borrowed, borrowed.begin():
            yield borrowed
    finally:
        engine.dispose()
        connection.text_factory, connection.row_factory = factories[:2]
        if ours:
            connection.isolation_level = factories[2]


def _x_arguments(context: EnvironmentContext) -> dict[str, str]:
    arguments = context.get_x_argument(as_dictionary=True)
    if unknown := sorted(set(arguments) - set(_X_ARGUMENTS)):
        raise PgflowMigrateError(
            f'There is no -x argument "{unknown[0]}" for a store.', f"There are {', '.join(_X_ARGUMENTS)}."
        )
    return arguments


def _options(arguments: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ("now", "source_schema_version"):
        if arguments.get(name):
            try:
                options[name] = int(arguments[name])
            except ValueError:
                raise PgflowMigrateError(f"-x {name}: {arguments[name]!r} is no whole number.") from None
    if arguments.get("lock_timeout"):
        try:
            options["lock_timeout"] = durations.parse(arguments["lock_timeout"])
        except ValueError as error:
            raise PgflowMigrateError(f"-x lock_timeout: {error}") from None
    if arguments.get("backup"):
        options["backup"] = False if arguments["backup"] == "no" else Path(arguments["backup"])
    return options
