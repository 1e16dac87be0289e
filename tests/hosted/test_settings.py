"""Settings that a hosted server, its administrator or the role may have; all are in force at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.servers import Server
from pgflow_migrate.upgrade.progress import Event, FileDone
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.status import read_status
from pgflow_migrate.verify.run import verify

Session = psycopg.Connection[Any]

ALL_AT_ONCE = {
    "array_nulls": "off",
    "backslash_quote": "off",
    "bytea_output": "escape",
    "check_function_bodies": "on",
    "client_encoding": "LATIN1",
    "DateStyle": "German, DMY",
    "debug_parallel_query": "on",
    "default_statistics_target": "1",
    "default_table_access_method": "other_heap",
    "default_tablespace": "elsewhere",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "enable_hashagg": "off",
    "enable_hashjoin": "off",
    "enable_indexscan": "off",
    "enable_material": "off",
    "enable_mergejoin": "off",
    "enable_nestloop": "off",
    "enable_seqscan": "off",
    "enable_sort": "off",
    "escape_string_warning": "on",
    "extra_float_digits": "-15",
    "from_collapse_limit": "1",
    "geqo_threshold": "2",
    "idle_in_transaction_session_timeout": "1min",
    "IntervalStyle": "sql_standard",
    "jit": "on",
    "jit_above_cost": "0",
    "join_collapse_limit": "1",
    "lock_timeout": "1ms",
    "maintenance_work_mem": "1MB",
    "plan_cache_mode": "force_generic_plan",
    "plpgsql.extra_errors": "all",
    "plpgsql.variable_conflict": "use_column",
    "quote_all_identifiers": "on",
    "row_security": "off",
    "search_path": "public, pg_catalog",
    "session_replication_role": "replica",
    "statement_timeout": "1min",
    "synchronous_commit": "off",
    "TimeZone": "Asia/Kathmandu",
    "transaction_timeout": "1min",
    "transform_null_equals": "on",
    "vacuum_cost_delay": "100ms",
    "work_mem": "64kB",
    "xmloption": "document",
}
# PGMQ's own functions have a literal with a backslash, so nothing works on beyond the upgrade.
ONLY_FOR_THE_UPGRADE = {"standard_conforming_strings": "off"}
OTHERWISE = {
    "plpgsql.variable_conflict": "use_variable",
    "default_transaction_isolation": "repeatable read",
    "session_replication_role": "origin",
    "row_security": "on",
}

# Called in the middle of the upgrade's transaction.
LOOK = """
  create table public.seen (name text, value text);
  create function public.look() returns event_trigger language plpgsql as $$
  begin
    insert into public.seen select name, current_setting(name) from pg_settings;
    perform pg_sleep({seconds});
  end $$;
  create event trigger look on table_rewrite execute function public.look();
  alter event trigger look enable always;
"""


@pytest.fixture
def elsewhere(server: Server) -> Iterator[str]:
    """A tablespace."""
    name = "elsewhere"
    with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
        admin.execute("set allow_in_place_tablespaces = on")
        admin.execute(sql.SQL("create tablespace {} location ''").format(sql.Identifier(name)))
        yield name
        admin.execute(sql.SQL("drop tablespace {}").format(sql.Identifier(name)))


def settle(dsn: str, settings: dict[str, str], level: str) -> dict[str, str]:
    """Set what the server knows, and look at a new session that it is in force; returns that."""
    with psycopg.connect(dsn, autocommit=True, client_encoding="UTF8") as connection:
        known = {row[0] for row in connection.execute("select name from pg_catalog.pg_settings")}
        settings = {name: value for name, value in settings.items() if name in known or "." in name}
        for name, value in settings.items():
            # SET FROM CURRENT has no string to read, which standard_conforming_strings could change.
            connection.execute(
                f"set {name} = {value}" if name == "search_path" else f"set {name} = '{value}'"
            )
            connection.execute(f"alter {level} set {name} from current".encode())
            connection.execute(f"reset {name}".encode())
    names = [name for name in settings if name != "client_encoding"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        in_force = {name: connection.execute(f"show {name}".encode()).fetchall()[0][0] for name in settings}
    assert in_force == settings
    return {name: settings[name] for name in names}


@pytest.mark.parametrize(("way", "level"), [("command", "database"), ("script", "role")])
def test_the_upgrade_works_under_every_setting_and_so_does_what_comes_after(
    way: str,
    level: str,
    elsewhere: str,
    old: str,
    upgrade_by: Callable[[str, str], None],
    work: Callable[[Session], str],
    reach: Callable[[str], Session],
) -> None:
    session = reach(old)
    database = session.info.dbname
    place = f"database {database}" if level == "database" else f"role postgres in database {database}"
    wanted = ALL_AT_ONCE | ONLY_FOR_THE_UPGRADE | (OTHERWISE if level == "role" else {})
    session.execute("create access method other_heap type table handler heap_tableam_handler")
    settle(old, wanted, place)
    session.execute(LOOK.format(seconds=0).encode())

    assert (read_status(old).release, read_status(old).disagreement) == ("0.16.0", None)
    upgrade_by(way, old)
    seen = dict(session.execute("select distinct name, value from public.seen order by name").fetchall())
    limits = {name for name in seen if name.endswith("_timeout") and name in wanted} - {"lock_timeout"}
    assert {seen[name] for name in limits} == {"0"}
    lifted = {"quote_all_identifiers", "standard_conforming_strings", "search_path", "row_security"}
    lifted |= {"lock_timeout", *limits}
    # The preflight and the functions' bodies set and reset more; in the rewrite all else is the server's.
    of_the_transaction = {"transaction_isolation", "default_transaction_isolation", "client_encoding"}
    kept = seen.keys() & wanted.keys() - lifted - of_the_transaction
    assert {name: seen[name] for name in kept} == {name: wanted[name] for name in kept}
    assert len(kept) > 30
    assert seen["transaction_isolation"] == "read committed"

    assert verify(old).violations == ()
    assert read_status(old).release == HEAD
    session.execute(f"alter {place} reset standard_conforming_strings".encode())
    assert work(reach(old)) == "completed"
    with psycopg.connect(old, autocommit=True) as again:
        again.execute("select pgflow.delete_flow_and_data('Order_flow')")
        assert again.execute("select count(*) from pgflow.step_tasks").fetchall() == [(0,)]


@pytest.mark.parametrize("way", ["command", "script"])
def test_limits_of_time_do_not_end_the_upgrade(
    way: str, old: str, upgrade_by: Callable[[str, str], None], reach: Callable[[str], Session]
) -> None:
    names = ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")
    session = reach(old)
    session.execute(LOOK.format(seconds=1.2).encode())
    settle(old, dict.fromkeys((*names, "lock_timeout"), "1s"), f"database {session.info.dbname}")
    upgrade_by(way, old)
    assert session.execute("select count(*) > 0 from public.seen").fetchall() == [(True,)]


def test_an_idle_moment_does_not_end_the_upgrade(old: str) -> None:
    with psycopg.connect(old, autocommit=True) as connection:
        database = connection.info.dbname
        connection.execute(
            f"alter database {database} set idle_in_transaction_session_timeout = '1s'".encode()
        )
    paused: list[str] = []

    def pause(event: Event) -> None:
        if isinstance(event, FileDone) and not paused:
            time.sleep(1.2)
            paused.append(event.file)

    assert upgrade(old, on_progress=pause).revision == HEAD
    assert len(paused) == 1


def test_the_audit_outlives_limits_of_statements_and_transactions(
    old: str, reach: Callable[[str], Session]
) -> None:
    holder, watcher = reach(old), reach(old)
    settle(
        old,
        {"statement_timeout": "1s", "transaction_timeout": "1s", "lock_timeout": "1s"},
        f"database {holder.info.dbname}",
    )
    with ThreadPoolExecutor(1) as threads:
        with holder.transaction():
            holder.execute("lock table pgflow.runs in access exclusive mode")
            audit = threads.submit(run_audit, old)
            longer = (
                "select count(*) from pg_catalog.pg_stat_activity where datname = current_database()"
                " and wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '1.2 s'"
            )
            deadline = time.monotonic() + 60
            while watcher.execute(longer).fetchall() != [(1,)] and not audit.done():
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert audit.result().blocking == ()
