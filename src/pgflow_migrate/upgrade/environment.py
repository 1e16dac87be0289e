"""The Alembic environment: one transaction, one connection, and the ledger kept with the version table.

Whoever starts Alembic (``pgflow-migrate upgrade``, ``alembic -x dsn=… upgrade``, a test) comes through here,
so that all of them leave the same behind. The config's attributes, all optional:

    connection    SQLAlchemy connection, its transaction the caller's; else one of our own, from ``-x dsn=``
    fence         :class:`pgflow_migrate.upgrade.session.Fence`; else ``-x lock_timeout=5s``,
                  ``-x max_wait=30s`` and ``-x allow_live_workers=true``, else its defaults
    from_nothing  whether a database without pgflow gets it; True unless told otherwise
    trust_record  whether the recorded revision is believed without a look at the catalogue; False unless told
                  otherwise. The revisions have checks of their own, and so does the script of --sql
    transaction   whether a script has BEGIN and COMMIT; True unless told otherwise
    on_progress   told what happens, see :mod:`pgflow_migrate.upgrade.progress`
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg
import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext, MigrationStep, RevisionStep, StampStep

from pgflow_migrate import database, durations, resources
from pgflow_migrate.alembic_command import under_alembic_command
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.releases import identify
from pgflow_migrate.releases.chain import release_of
from pgflow_migrate.upgrade import failures, ledger, session
from pgflow_migrate.upgrade.progress import Found, Listener, ignore
from pgflow_migrate.upgrade.recorder import Recorder
from pgflow_migrate.upgrade.session import Fence

_CONFIGURE: dict[str, Any] = {
    "version_table": ledger.VERSION_TABLE,
    "version_table_schema": ledger.SCHEMA,
    "transaction_per_migration": False,
}
_X_ARGUMENTS = ("dsn", "lock_timeout", "max_wait", "allow_live_workers")


def run_online(context: EnvironmentContext) -> None:
    """Run the command on the caller's connection, else on one of our own.

    Raises:
        PgflowMigrateError: as :func:`pgflow_migrate.upgrade.run.upgrade`; under the ``alembic`` command it is
            printed instead and ends the process with its exit code.
    """
    with under_alembic_command(context.config):
        given = context.config.attributes.get("connection")
        if given is not None:
            _run(context, given)
            return
        dsn = database.resolve_dsn(_x_arguments(context).get("dsn"), os.environ)
        engine = database.engine(dsn)
        try:
            with (
                failures.explained(dsn, _fence(context), _doing(context.config)),
                engine.begin() as connection,
            ):
                _run(context, connection)
        finally:
            engine.dispose()


def run_offline(context: EnvironmentContext) -> None:
    """Print the revisions as one script: settings, ledger, revisions, versions, in one transaction."""
    with under_alembic_command(context.config):
        recorder = Recorder(context.script)
        transaction = context.config.attributes.get("transaction", True)
        context.configure(
            dialect_name="postgresql",
            as_sql=True,
            dialect_opts={"paramstyle": "named"},
            transactional_ddl=transaction,
            on_version_apply=recorder,
            **_CONFIGURE,
        )
        migration = context.get_context()
        if _is_stamping(migration):
            raise PgflowMigrateError(
                "A stamp has to look at the database, which --sql does not.", "Leave --sql out."
            )
        steps = list(migration.opts["fn"](migration.get_current_heads(), migration))
        _refuse_downgrade(steps)
        write = migration.impl.static_output
        write(session.HEADER_BACK if any(step.is_downgrade for step in steps) else session.HEADER)
        with context.begin_transaction():
            write(session.script(_fence(context)))
            write(ledger.CREATE)
            for start in migration.get_current_heads():
                write(ledger.start_at(start) + recorder.statements([start]))
            context.run_migrations()


def _run(context: EnvironmentContext, connection: sa.Connection) -> None:
    """Do what the Alembic command is for, in the transaction of ``connection``."""
    on_progress: Listener = context.config.attributes.get("on_progress", ignore)
    recorder = Recorder(context.script, on_progress)
    context.configure(connection=connection, on_version_apply=recorder, **_CONFIGURE)
    migration = context.get_context()
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise PgflowMigrateError("The connection is not psycopg's.", 'Make it with "postgresql+psycopg://".')
    driver.execute(database.PIN_SEARCH_PATH)

    if migration.opts.get("dont_mutate"):  # alembic current, alembic check
        ledger.refuse_newer(ledger.versions(driver), recorder.known)
        context.run_migrations()
        return

    session.prepare(driver, _fence(context), on_progress)
    ledger.create(driver)
    ledger.adopt_renamed(driver)
    recorded = ledger.entries(driver)
    versions = ledger.versions(driver)
    ledger.refuse_newer([*versions, *(entry.name for entry in recorded)], recorder.known)
    ledger.refuse_changed(recorded, recorder.checksums)

    heads = () if migration.purge else versions
    steps: list[MigrationStep] = list(migration.opts["fn"](heads, migration))  # planning changes nothing
    _refuse_downgrade(steps)
    identified = identify.identify(driver)
    if _is_stamping(migration):
        stamped = [step.to_revisions for step in steps if isinstance(step, StampStep)]
        target = stamped[-1] if stamped else heads
        _refuse_false_stamp(target, identified)
        context.run_migrations()
        # Alembic does nothing where the version table is right already; the ledger may be wrong all the same.
        driver.execute(recorder.statements(target).encode())
        return

    disagreement = identify.disagreement(driver, versions, identified)
    if disagreement is not None and not context.config.attributes.get("trust_record", False):
        raise disagreement
    found = _found(versions) if versions else _adopt(context, driver, recorder, identified)
    on_progress(found)
    if found.revision is not None and versions != (found.revision,):
        steps = list(migration.opts["fn"]((found.revision,), migration))
    recorder.start([step.revision.revision for step in steps if isinstance(step, RevisionStep)])
    context.run_migrations()


def _doing(config: Config) -> str:
    """``downgrade`` under the ``alembic`` command of that name, else ``upgrade``: what errors speak of."""
    function = getattr(config.cmd_opts, "cmd", (None,))[0]
    return "downgrade" if getattr(function, "__name__", "") == "downgrade" else "upgrade"


def _is_stamping(migration: MigrationContext) -> bool:
    """Whether the command is ``alembic stamp``: it alone says whether to purge."""
    return "purge" in migration.opts


def _refuse_false_stamp(target: tuple[str, ...], found: identify.Identification) -> None:
    """Raise unless ``target`` is what the catalogue says: a stamp records what is there, nothing else."""
    actual = () if found.revision is None else (found.revision,)
    if target == actual and (actual or found.empty):
        return
    if not found.empty and found.revision is None:
        raise identify.unknown_release(found)
    is_ = f"schema pgflow is {found.release}" if found.release else "there is no schema pgflow"
    raise PgflowMigrateError(
        f"The database cannot be stamped {', '.join(target) or 'base'}: {is_}.",
        f'To record what is there: {resources.alembic_call()} -x dsn="…" stamp {found.revision or "base"}',
    )


def _refuse_downgrade(steps: Sequence[MigrationStep]) -> None:
    """Raise unless every step back is over a revision that says of itself ``reversible = True``."""
    back = [step for step in steps if step.is_downgrade and isinstance(step, RevisionStep)]
    for step in back:
        if not getattr(step.revision.module, "reversible", False):
            name = step.revision.revision
            raise PgflowMigrateError(
                f"There is no downgrade from {name}: data that only the newer schema can hold would be lost.",
                "Restore the backup that was taken before the upgrade.",
            )


def _adopt(
    context: EnvironmentContext,
    connection: psycopg.Connection[Any],
    recorder: Recorder,
    found: identify.Identification,
) -> Found:
    """Give a database that has no version yet the version of its release."""
    if found.empty:
        if not context.config.attributes.get("from_nothing", True):
            raise PgflowMigrateError(
                "There is no schema pgflow in this database.",
                "Check the connection string. To install pgflow:"
                f' {resources.alembic_call()} -x dsn="…" upgrade head',
            )
        return Found(None, None, recorded=False)
    if found.revision is None:
        raise identify.unknown_release(found)
    context.get_context().stamp(context.script, found.revision)
    connection.execute(recorder.statements([found.revision]).encode())
    return Found(found.release, found.revision, recorded=False)


def _found(versions: Sequence[str]) -> Found:
    return Found(release_of(versions[0]), versions[0], recorded=True)


def _x_arguments(context: EnvironmentContext) -> dict[str, str]:
    arguments = context.get_x_argument(as_dictionary=True)
    unknown = sorted(set(arguments) - set(_X_ARGUMENTS))
    if unknown:
        # Else -x dns=… would quietly upgrade whatever DATABASE_URL names.
        raise PgflowMigrateError(
            f'There is no -x argument "{unknown[0]}".', f"There are {', '.join(_X_ARGUMENTS)}."
        )
    return arguments


def _fence(context: EnvironmentContext) -> Fence:
    given: Fence | None = context.config.attributes.get("fence")
    if given is not None:
        return given
    arguments = _x_arguments(context)
    allow = arguments.get("allow_live_workers", "false")
    if allow not in ("true", "false"):
        raise PgflowMigrateError(f"-x allow_live_workers: {allow!r} is neither true nor false.")
    return Fence(
        lock_timeout=_duration(arguments, "lock_timeout", Fence.lock_timeout),
        max_wait=_duration(arguments, "max_wait", Fence.max_wait),
        allow_live_workers=allow == "true",
    )


def _duration(arguments: dict[str, str], name: str, default: timedelta) -> timedelta:
    try:
        return durations.parse(arguments[name]) if arguments.get(name) else default
    except ValueError as error:
        raise PgflowMigrateError(f"-x {name}: {error}") from None
