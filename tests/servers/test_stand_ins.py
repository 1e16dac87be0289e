"""The stand-ins for Supabase do what pgflow and its users see of the originals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Database = Callable[[str], str]
Connect = Callable[[str], psycopg.Connection[dict[str, Any]]]


@pytest.fixture
def db(database_at: Database, connect: Connect) -> psycopg.Connection[dict[str, Any]]:
    """A database with PGMQ and the stand-ins."""
    return connect(database_at(""))


Db = psycopg.Connection[dict[str, Any]]


def value(db: Db, query: str, *parameters: object) -> Any:
    row = db.execute(query.encode(), parameters).fetchone()
    assert row is not None
    (only,) = row.values()
    return only


# -- roles


def test_the_roles_of_supabase_exist_and_cannot_log_in(db: Db) -> None:
    rows = db.execute(
        """
        select rolname, rolcanlogin, rolinherit, rolbypassrls from pg_roles
        where rolname in ('anon', 'authenticated', 'service_role') order by 1
        """
    ).fetchall()
    assert [tuple(row.values()) for row in rows] == [
        ("anon", False, False, False),
        ("authenticated", False, False, False),
        ("service_role", False, False, True),
    ]


def test_the_stand_ins_go_into_any_number_of_databases_of_a_server(
    database_at: Database, connect: Connect
) -> None:
    for _ in range(2):
        assert value(connect(database_at("")), "select count(*) from realtime.messages") == 0


# -- realtime


def test_an_event_is_recorded_in_the_order_in_which_it_was_sent(db: Db) -> None:
    with db.transaction():
        db.execute("select realtime.send('{\"a\": 1}', 'run:started', 'pgflow:run:1', false)")
        db.execute("select realtime.send('{\"a\": 2}', 'run:completed', 'pgflow:run:1')")
    rows = db.execute("select payload, event, topic, private, extension from realtime.messages order by id")
    assert [tuple(row.values()) for row in rows] == [
        ({"a": 1}, "run:started", "pgflow:run:1", False, "broadcast"),
        ({"a": 2}, "run:completed", "pgflow:run:1", True, "broadcast"),
    ]
    # Not the start of the transaction: the two differ.
    assert value(db, "select count(distinct inserted_at) from realtime.messages") == 2


def test_an_event_that_cannot_be_recorded_aborts_its_caller(db: Db) -> None:
    with pytest.raises(psycopg.errors.NotNullViolation):
        # Several statements in one call are one transaction.
        db.execute("create table public.done (); select realtime.send('{}', 'run:started', null)")
    assert value(db, "select to_regclass('public.done')") is None


def test_a_role_of_supabase_may_send(db: Db) -> None:
    db.execute("set role authenticated")
    db.execute("select realtime.send('{}', 'greeting', 'room')")
    assert value(db, "select count(*) from realtime.messages") == 1


# -- pg_cron


def test_a_job_is_replaced_by_its_name_and_keeps_its_id(db: Db) -> None:
    first = value(db, "select cron.schedule('pgflow_cleanup', '5 seconds', 'select 1')")
    other = value(db, "select cron.schedule('other', '0 * * * *', 'select 2')")
    again = value(db, "select cron.schedule('pgflow_cleanup', '*/5 * * * *', 'select 3')")
    assert again == first != other
    rows = db.execute(
        "select jobid, jobname, schedule, command, username, active, database from cron.job order by jobid"
    )
    user, database = db.info.user, db.info.dbname
    assert [tuple(row.values()) for row in rows] == [
        (first, "pgflow_cleanup", "*/5 * * * *", "select 3", user, True, database),
        (other, "other", "0 * * * *", "select 2", user, True, database),
    ]


def test_a_job_without_a_name_is_a_new_job_each_time(db: Db) -> None:
    ids = {value(db, "select cron.schedule('* * * * *', 'select 1')") for _ in range(2)}
    assert len(ids) == 2
    assert value(db, "select count(*) from cron.job where jobname is null") == 2


@pytest.mark.parametrize(
    "schedule",
    ["* * * * *", "*/5 0-6,12 1,15 jan-mar MON", "0 0 $ * *", "1 second", "59 seconds", "@hourly", "@daily"],
)
def test_schedules_of_every_form_are_taken(db: Db, schedule: str) -> None:
    job = value(db, "select cron.schedule('job', %s, 'select 1')", schedule)
    assert value(db, "select schedule from cron.job where jobid = %s", job) == schedule


@pytest.mark.parametrize("schedule", ["", "whenever", "* * * *", "60 seconds", "0 seconds", "* * * * * *"])
def test_a_schedule_that_pg_cron_does_not_know_is_refused(db: Db, schedule: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
        db.execute("select cron.schedule('job', %s, 'select 1')", [schedule])
    assert caught.value.diag.message_primary == f"invalid schedule: {schedule}"
    assert value(db, "select count(*) from cron.job") == 0


def test_an_unscheduled_job_is_gone_and_cannot_be_unscheduled_again(db: Db) -> None:
    job = value(db, "select cron.schedule('job', '* * * * *', 'select 1')")
    assert value(db, "select cron.unschedule('job')") is True
    assert value(db, "select count(*) from cron.job") == 0
    for argument, shown in (("job", "job"), (job, str(job))):
        with pytest.raises(psycopg.errors.InternalError_) as caught:
            db.execute("select cron.unschedule(%s)", [argument])
        assert caught.value.sqlstate == "XX000"
        assert caught.value.diag.message_primary == f"could not find valid entry for job '{shown}'"


def test_a_job_is_unscheduled_by_its_id(db: Db) -> None:
    job = value(db, "select cron.schedule('* * * * *', 'select 1')")
    assert value(db, "select cron.unschedule(%s::bigint)", job) is True
    assert value(db, "select count(*) from cron.job") == 0


def test_a_job_can_be_paused(db: Db) -> None:
    job = value(db, "select cron.schedule('job', '* * * * *', 'select 1')")
    db.execute("select cron.alter_job(%s::bigint, active := false)", [job])
    row = db.execute("select active, schedule, command from cron.job").fetchone()
    assert row == {"active": False, "schedule": "* * * * *", "command": "select 1"}
    with pytest.raises(psycopg.errors.InternalError_, match="Job 99 does not exist or you don't own it"):
        db.execute("select cron.alter_job(99, active := false)")


def test_a_role_sees_its_own_jobs_only_and_needs_the_schema_granted(db: Db) -> None:
    db.execute("select cron.schedule('job', '* * * * *', 'select 1')")
    db.execute("set role authenticated")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for schema cron"):
        db.execute("select cron.schedule('job', '* * * * *', 'select 2')")
    db.execute("reset role")
    db.execute("grant usage on schema cron to authenticated")
    db.execute("set role authenticated")
    db.execute("select cron.schedule('job', '* * * * *', 'select 2')")
    assert value(db, "select command from cron.job") == "select 2"
    with pytest.raises(psycopg.errors.InternalError_, match="could not find valid entry for job 'nothing'"):
        db.execute("select cron.unschedule('nothing')")
    db.execute("reset role")
    assert value(db, "select count(*) from cron.job") == 2


def test_the_record_of_runs_has_the_columns_of_pg_cron(db: Db) -> None:
    names = value(
        db,
        """
        select array_agg(attname::text order by attnum) from pg_attribute
        where attrelid = 'cron.job_run_details'::regclass and attnum > 0
        """,
    )
    assert names == [
        *("jobid", "runid", "job_pid", "database", "username", "command", "status", "return_message"),
        *("start_time", "end_time"),
    ]


# -- pg_net


def test_a_post_is_queued_and_its_id_returned(db: Db) -> None:
    request = value(
        db,
        """
        select net.http_post(
          url := 'https://example.test/functions/v1/worker',
          headers := '{"Content-Type": "application/json", "Authorization": "Bearer key"}',
          body := '{"a": "\N{SNOWMAN}"}'
        )
        """,
    )
    row = db.execute("select *, convert_from(body, 'UTF8') as text from net.http_request_queue").fetchone()
    assert row is not None
    assert row.pop("body") == b'{"a": "\xe2\x98\x83"}'
    assert row == {
        "id": request,
        "method": "POST",
        "url": "https://example.test/functions/v1/worker",
        "headers": {"Content-Type": "application/json", "Authorization": "Bearer key"},
        "timeout_milliseconds": 5000,
        "text": '{"a": "\N{SNOWMAN}"}',
    }


def test_parameters_are_written_into_the_address(db: Db) -> None:
    parameters = '{"a b": "\N{LATIN SMALL LETTER U WITH DIAERESIS}&", "c": "", "d": "~x.y-z_1"}'
    db.execute("select net.http_get('https://example.test/', params := %s)", [parameters])
    db.execute("select net.http_get('https://example.test/?x=1', params := '{\"y\": \"2\"}')")
    urls = [row["url"] for row in db.execute("select url from net.http_request_queue order by id")]
    assert urls == [
        "https://example.test/?a%20b=%C3%BC%26&c=&d=~x.y-z_1",
        "https://example.test/?x=1&y=2",
    ]


def test_headers_without_a_content_type_get_json_and_another_type_is_refused(db: Db) -> None:
    db.execute("select net.http_post('https://example.test/', headers := '{\"X\": \"1\"}')")
    assert value(db, "select headers from net.http_request_queue") == {
        "X": "1",
        "Content-Type": "application/json",
    }
    with pytest.raises(psycopg.errors.RaiseException, match='Content-Type header must be "application/json"'):
        db.execute(
            "select net.http_post('https://example.test/', headers := '{\"content-type\": \"text/csv\"}')"
        )


# -- Vault


def test_a_secret_is_read_back_by_name_and_is_not_in_the_table_as_it_was(db: Db) -> None:
    secret = "k\N{EURO SIGN}y " * 40
    identity = value(db, "select vault.create_secret(%s, 'supabase_project_id', 'which project')", secret)
    row = db.execute(
        "select id, name, description, decrypted_secret = %s as same from vault.decrypted_secrets", [secret]
    ).fetchone()
    assert row == {
        "id": identity,
        "name": "supabase_project_id",
        "description": "which project",
        "same": True,
    }
    assert "key" not in value(db, "select secret from vault.secrets")


def test_a_name_is_taken_once_and_a_secret_needs_none(db: Db) -> None:
    db.execute("select vault.create_secret('a'), vault.create_secret('b'), vault.create_secret('c', 'name')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute("select vault.create_secret('d', 'name')")
    assert value(db, "select count(*) from vault.secrets") == 3


def test_a_secret_can_be_changed(db: Db) -> None:
    identity = value(db, "select vault.create_secret('old', 'name', 'kept')")
    db.execute("select vault.update_secret(%s, 'new')", [identity])
    row = db.execute("select name, description, decrypted_secret from vault.decrypted_secrets").fetchone()
    assert row == {"name": "name", "description": "kept", "decrypted_secret": "new"}


def test_nobody_but_the_owner_reads_secrets(db: Db) -> None:
    db.execute("select vault.create_secret('a', 'name')")
    db.execute("set role service_role")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for schema vault"):
        db.execute("table vault.decrypted_secrets")
