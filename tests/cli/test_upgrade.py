"""``pgflow-migrate upgrade``."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable

import psycopg
import pytest
from click.testing import Result

from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, EXIT_FENCE, EXIT_OK, EXIT_USAGE
from pgflow_migrate.servers import open_server

Invoke = Callable[..., Result]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_it_upgrades_and_tells_progress_on_stderr(database_at: Callable[[str], str], invoke: Invoke) -> None:
    result = invoke("upgrade", "--dsn", database_at("core_0_15_1"))
    assert result.exit_code == EXIT_OK
    summary, rows, locked = result.stdout.splitlines()
    assert summary.startswith("Upgraded from 0.15.1 to dirty_runs in ")
    assert summary.endswith(" s, committed.")
    assert rows == "Rows that got their queue's name: 0 in pgflow.steps, 0 in pgflow.step_tasks."
    assert re.fullmatch(r"Others were locked out for \d+\.\d s\.", locked)
    assert re.sub(r"\d+\.\d\d s", "N s", result.stderr).splitlines() == [
        "Found 0.15.1 (recorded).",
        "core_0_16_0 (1 of 3)",
        "core_0_16_0: N s",
        "queue_identity (2 of 3)",
        "queue_identity: N s",
        "dirty_runs (3 of 3)",
        "dirty_runs: N s",
        "To check it, with the same connection: pgflow-migrate verify",
    ]
    assert "\x1b" not in result.output


def test_with_debug_a_log_names_the_sql_files_too(database_at: Callable[[str], str], invoke: Invoke) -> None:
    result = invoke("--debug", "upgrade", "--dsn", database_at("core_0_15_1"))
    assert result.exit_code == EXIT_OK
    assert "  core_0_16_0/drop_ensure_flow_compiled.sql" in result.stderr.splitlines()


def test_a_second_upgrade_says_that_it_is_done(database_at: Callable[[str], str], invoke: Invoke) -> None:
    dsn = database_at("core_0_16_0")
    assert invoke("upgrade", "--dsn", dsn).exit_code == EXIT_OK
    result = invoke("upgrade", "--dsn", dsn)
    assert result.exit_code == EXIT_OK
    assert result.stdout == "Already upgraded: the database is at dirty_runs; nothing was changed.\n"
    assert result.stderr.splitlines()[1:] == ["To check it, with the same connection: pgflow-migrate verify"]
    result = invoke("upgrade", "--dsn", dsn, "--format", "json")
    assert json.loads(result.stdout) == {
        "schema": "urn:pgflow-migrate:upgrade:1",
        "status": "already-upgraded",
        "exit_code": 0,
        "from_release": "dirty_runs",
        "revision": "dirty_runs",
        "applied": [],
        "already_current": True,
        "backfilled": None,
        "locked_seconds": None,
        "dry_run": False,
    }


def test_json_is_one_document(database_at: Callable[[str], str], invoke: Invoke) -> None:
    result = invoke("upgrade", "--dsn", database_at("core_0_16_0"), "--format", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == document["exit_code"] == EXIT_OK
    assert document["status"] == "upgraded"
    assert [applied["revision"] for applied in document["applied"]] == ["queue_identity", "dirty_runs"]
    assert document["backfilled"] == {"steps": 0, "tasks": 0}
    assert result.stderr == ""


def test_the_environment_names_the_database(database_at: Callable[[str], str], run: Run) -> None:
    dsn = database_at("core_0_16_0")
    done = run("upgrade", DATABASE_URL="postgresql://127.0.0.1:1/nowhere", PGFLOW_DSN=dsn)
    assert done.returncode == EXIT_OK
    assert done.stdout.startswith("Upgraded from 0.16.0 to dirty_runs in ")


def test_an_empty_dsn_does_not_fall_back_on_the_environment(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/production")
    result = invoke("upgrade", "--dsn", "")
    assert result.exit_code == EXIT_COULD_NOT_RUN
    assert result.stderr.startswith("error: The connection string that was given is empty.\n")


@pytest.mark.parametrize("duration", ["5", "0s", "-1s", "5 parsecs", "25d"])
def test_a_lock_timeout_without_unit_or_bound_is_a_usage_error(invoke: Invoke, duration: str) -> None:
    result = invoke("upgrade", "--dsn", "host=/nonexistent", "--lock-timeout", duration)
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert "'--lock-timeout'" in result.stderr


def test_findings_are_printed_as_the_audit_prints_them(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("core_0_16_0")
    execute(dsn, "select pgflow.create_flow('bad__slug')")
    audited = invoke("audit", "--dsn", dsn)
    refused = invoke("upgrade", "--dsn", dsn)
    assert refused.exit_code == audited.exit_code == EXIT_BLOCKED
    assert "slug-double-underscore" in refused.stdout
    assert refused.stdout.strip()
    assert all(line in audited.stdout for line in refused.stdout.splitlines() if line.strip())
    assert (
        "error: The preflight refuses: 1 finding stands in the way of queue identity.\n"
        "The database is unchanged. Mend each finding as its hint says, then repeat.\n"
    ) in refused.stderr


def test_a_refusal_is_one_json_document_with_its_findings(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("core_0_16_0")
    execute(dsn, "select pgflow.create_flow('bad__slug')")
    result = invoke("upgrade", "--dsn", dsn, "--format", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == document["exit_code"] == EXIT_BLOCKED
    assert document["status"] == "blocked"
    (finding,) = document["findings"]
    assert (finding["severity"], finding["code"], finding["flow_slug"]) == (
        "error",
        "slug-double-underscore",
        "bad__slug",
    )


def test_a_lock_that_is_not_had_is_exit_4_and_names_who_has_it(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("core_0_16_0")
    with psycopg.connect(dsn, application_name="a worker") as holder:
        holder.execute("lock table pgflow.runs in row exclusive mode")
        result = invoke(
            "upgrade", "--dsn", dsn, "--lock-timeout", "200ms", "--max-wait", "200ms", "--format", "json"
        )
        pid = holder.info.backend_pid
    document = json.loads(result.stdout)
    assert result.exit_code == document["exit_code"] == EXIT_FENCE
    assert document["status"] == "fence"
    assert [(b["pid"], b["application"], b["holds"]) for b in document["blockers"]] == [
        (pid, "a worker", ["pgflow.runs"])
    ]


def test_an_unknown_release_is_exit_1_with_the_differences(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("core_0_16_0")
    execute(dsn, "drop schema pgflow_migrate cascade; alter table pgflow.runs add column tenant text")
    result = invoke("upgrade", "--dsn", dsn)
    assert (result.exit_code, result.stdout) == (EXIT_COULD_NOT_RUN, "")
    assert result.stderr.splitlines()[:2] == [
        "error: Schema pgflow matches no known release; the closest is 0.16.0, from which 1 thing differs.",
        "  column runs.tenant is not part of the release",
    ]


@pytest.mark.parametrize("command", ["upgrade", "status", "audit"])
@pytest.mark.parametrize(
    ("dsn", "message"),
    [
        ("postgresql://ann:s3cr%40t@host.invalid/app", "The host of host.invalid:5432 cannot be found."),
        ("postgresql://ann:s3cr%40t@127.0.0.1:1/app", "No server listens at 127.0.0.1:1."),
        ("postgresql://ann:s3cr@t%41@h/app", "The connection string cannot be read: the password mixes"),
        ("host=h password=s3cr@t app", "The connection string cannot be read: it is neither a URL"),
    ],
)
def test_without_a_server_it_is_one_sentence_without_the_password(
    invoke: Invoke, command: str, dsn: str, message: str
) -> None:
    for options in ([], ["--format", "json"]):
        result = invoke(command, "--dsn", dsn, *options)
        assert result.exit_code == EXIT_COULD_NOT_RUN
        assert result.stderr.startswith(f"error: {message}")
        assert len(result.stderr.splitlines()) == 2
        assert "s3cr" not in result.output
        if options:
            assert json.loads(result.stdout)["error"]["message"].startswith(message)
        else:
            assert result.stdout == ""


@pytest.mark.parametrize("secret", ["p%@:/#?w", "100%zz@", "a:b@c/d"])
def test_a_server_with_a_hard_password(invoke: Invoke, secret: str) -> None:
    with open_server("embedded:18", password=secret) as server:
        port = psycopg.conninfo.conninfo_to_dict(server.admin_dsn)["port"]
        for word in (secret, "wr0ng-secret"):
            dsn = f"postgresql://postgres:{word}@127.0.0.1:{port}/postgres"
            result = invoke("--debug", "status", "--dsn", dsn)
            assert result.exit_code == (EXIT_OK if word == secret else EXIT_COULD_NOT_RUN)
            assert word not in result.output
        assert "refuses the password of user" in result.stderr
        dsn = f"postgresql://postgres:{secret}@127.0.0.1:{port}/nowhere"
        result = invoke("--debug", "status", "--dsn", dsn)
        assert result.exit_code == EXIT_COULD_NOT_RUN
        assert f'There is no database "nowhere" at 127.0.0.1:{port}.' in result.stderr
        assert secret not in result.output


def on_a_terminal(command: list[str], **environment: str) -> tuple[int, str]:
    """Exit code and what is written to a terminal that is stdout and stderr at once."""
    parent, child = pty.openpty()
    try:
        process = subprocess.Popen(
            command,
            stdin=child,
            stdout=child,
            stderr=child,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
    finally:
        os.close(child)
    written = b""
    with os.fdopen(parent, "rb", buffering=0) as terminal:
        while select.select([terminal], [], [], 60)[0]:
            try:
                block = terminal.read(4096)
            except OSError:  # Linux: the other end is closed
                break
            if not block:
                break
            written += block
    return process.wait(timeout=60), written.decode()


def test_on_a_terminal_there_is_a_bar_with_an_estimate_and_no_list_of_files(
    database_at: Callable[[str], str],
) -> None:
    dsn = database_at("core_0_16_0")
    with psycopg.connect(dsn, autocommit=True) as connection:  # as if there were two million tasks
        connection.execute("update pg_class set reltuples = 2e6 where oid = 'pgflow.step_tasks'::regclass")
    command = [sys.executable, "-m", "pgflow_migrate", "upgrade", "--dsn", dsn]
    code, written = on_a_terminal(command, NO_COLOR="1")
    assert code == EXIT_OK
    assert "\x1b[2K" in written  # the bar is drawn over
    assert " 0 s of about 20 s" in written
    assert "queue_identity/fence.sql" in written
    assert "Found 0.16.0 (recorded)." in written
    assert "Upgraded from 0.16.0 to dirty_runs in " in written


def test_errors_are_red_on_a_terminal_unless_no_color_is_set() -> None:
    command = [sys.executable, "-m", "pgflow_migrate", "status", "--dsn", "host=127.0.0.1 port=1"]
    code, written = on_a_terminal(command)
    assert code == EXIT_COULD_NOT_RUN
    assert "\x1b[31m" in written
    code, written = on_a_terminal(command, NO_COLOR="1")
    assert code == EXIT_COULD_NOT_RUN
    assert "\x1b" not in written


def test_a_database_without_pgflow_is_refused_and_left_alone(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    """A mistyped connection string must not install pgflow somewhere else."""
    dsn = database_at("")
    result = invoke("upgrade", "--dsn", dsn)
    assert result.exit_code == EXIT_COULD_NOT_RUN
    assert "There is no schema pgflow in this database." in result.stderr
    assert result.stdout == ""
    with psycopg.connect(dsn) as connection:
        schemas = connection.execute(
            "select nspname from pg_namespace where nspname like 'pgflow%'"
        ).fetchall()
    assert schemas == []
