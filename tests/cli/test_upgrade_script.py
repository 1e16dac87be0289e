"""``pgflow-migrate upgrade --sql`` and ``--dry-run``: what is printed, what is done, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from click.testing import Result

from pgflow_migrate.cli import cmd_upgrade
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, EXIT_FENCE, EXIT_OK, EXIT_USAGE
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences
from pgflow_migrate.upgrade.progress import Event, FileDone
from pgflow_migrate.upgrade.run import upgrade

Invoke = Callable[..., Result]
Run = Callable[..., Any]
Database = psycopg.Connection[dict[str, Any]]

PACK = """
  select pgflow.create_flow('Orders');
  select pgflow.add_step('Orders', 'pack');
  select pgflow.start_flow('Orders', '{}');
"""


@pytest.fixture
def old(database_at: Callable[[str], str], connect: Callable[[str], Database]) -> Database:
    """A database at 0.16.0 with a task in its queue."""
    old = connect(database_at("core_0_16_0"))
    old.execute(PACK.encode())
    return old


def statements(script: str) -> list[str]:
    """The lines that are neither empty nor a comment."""
    return [line for line in script.splitlines() if line and not line.lstrip().startswith("--")]


def test_the_script_is_a_transaction(invoke: Invoke) -> None:
    result = invoke("upgrade", "--sql")
    assert (result.exit_code, result.stderr) == (EXIT_OK, "")
    assert result.stdout.startswith("-- pgflow-migrate: upgrade of schema pgflow.\n")
    lines = statements(result.stdout)
    assert (lines[0], lines[-1]) == ("BEGIN;", "COMMIT;")
    assert "set_config('pgflow_migrate.start_at', 'core_0_16_0', true)" in result.stdout


def test_without_transaction_it_has_neither_begin_nor_commit(invoke: Invoke) -> None:
    whole = statements(invoke("upgrade", "--sql").stdout)
    assert statements(invoke("upgrade", "--sql", "--no-transaction").stdout) == whole[1:-1]


@pytest.mark.parametrize(
    ("release", "revisions"),
    [
        ("0.15.0", ["core_0_15_1", "core_0_16_0", "queue_identity", "dirty_runs"]),
        ("0.15.1", ["core_0_16_0", "queue_identity", "dirty_runs"]),
        ("0.16.0", ["queue_identity", "dirty_runs"]),
        ("queue_identity", ["dirty_runs"]),
    ],
)
def test_it_starts_from_the_release_that_is_named(invoke: Invoke, release: str, revisions: list[str]) -> None:
    script = invoke("upgrade", "--sql", "--from", release).stdout
    assert re.findall(r"^-- Running upgrade \w+ -> (\w+)$", script, re.MULTILINE) == revisions


def test_options_of_the_fence_are_in_the_script(invoke: Invoke) -> None:
    options = ("--lock-timeout", "250ms", "--max-wait", "2min", "--allow-live-workers")
    script = invoke("upgrade", "--sql", *options).stdout
    for name, value in (("lock_timeout", "250ms"), ("max_wait", "120000ms"), ("allow_live_workers", "on")):
        assert f"set_config('pgflow_migrate.{name}', '{value}', true)" in script


def test_no_connection_is_looked_for(run: Run) -> None:
    done = run("upgrade", "--sql", PGFLOW_DSN="postgresql://127.0.0.1:1/nowhere", PGSERVICE="nowhere")
    assert (done.returncode, done.stderr) == (EXIT_OK, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--sql", "--dsn", "host=/nonexistent"), "--sql prints a script"),
        (("--sql", "--dry-run"), "--sql prints a script"),
        (("--sql", "--format", "json"), "--sql prints a script"),
        (("--no-transaction",), "--no-transaction and --from go with --sql."),
        (("--from", "0.16.0"), "--no-transaction and --from go with --sql."),
        (("--from", "0.15.0", "--dry-run"), "--no-transaction and --from go with --sql."),
        (
            ("--sql", "--from", "0.14.0"),
            "'0.14.0' is not one of '0.15.0', '0.15.1', '0.16.0', 'queue_",
        ),
        (("--sql", "--max-wait", "0s"), "'--max-wait'"),
        (("--sql", "--lock-timeout", "5"), "'--lock-timeout'"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(
    invoke: Invoke, arguments: tuple[str, ...], says: str
) -> None:
    result = invoke("upgrade", *arguments)
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert says in " ".join(result.stderr.split())


def test_releases_are_those_that_there_are_scripts_for() -> None:
    from pgflow_migrate.replay.run import REVISIONS

    assert set(cmd_upgrade.RELEASES) == set(REVISIONS)


# Dry runs -------------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(old: Database, invoke: Invoke) -> None:
    before = signature.take(old)
    result = invoke("upgrade", "--dsn", old.info.dsn, "--dry-run")
    assert result.exit_code == EXIT_OK
    lines = [re.sub(r"\d+\.\d s", "N s", line) for line in result.stdout.splitlines()]
    assert lines == [
        "Would upgrade from 0.16.0 to dirty_runs in N s, rolled back.",
        "Rows that would get their queue's name: 1 in pgflow.steps, 1 in pgflow.step_tasks.",
        "Others were locked out for N s.",
    ]
    result = invoke("upgrade", "--dsn", old.info.dsn, "--dry-run", "--format", "json")
    document = json.loads(result.stdout)
    assert (document["status"], document["exit_code"], document["dry_run"]) == ("dry-run", 0, True)
    assert document["backfilled"] == {"steps": 1, "tasks": 1}
    assert [one["revision"] for one in document["applied"]] == ["queue_identity", "dirty_runs"]
    assert 0 < document["locked_seconds"] <= sum(one["seconds"] for one in document["applied"]) + 5
    assert differences(before, signature.take(old)) == ()
    assert upgrade(old.info.dsn).applied[-1].revision == "dirty_runs"


def test_a_dry_run_takes_the_locks_and_gives_them_back(old: Database) -> None:
    """Another session sees them after the last file, and has to wait."""
    seen: list[tuple[str, str]] = []

    def look(event: Event) -> None:
        if isinstance(event, FileDone) and event.file == "verify.sql":
            rows = old.execute(
                """
                select relation::regclass::text as name, mode from pg_locks
                where granted and relation in (
                  'pgflow.runs'::regclass, 'pgflow.step_tasks'::regclass, 'pgmq.q_orders'::regclass
                ) and mode in ('AccessExclusiveLock', 'ShareLock') order by 1, 2
                """
            ).fetchall()
            seen.extend((row["name"], row["mode"]) for row in rows)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                old.execute("set lock_timeout = '50ms'; select pgflow.start_flow('Orders', '{}')")

    result = upgrade(old.info.dsn, dry_run=True, on_progress=look)
    assert (result.dry_run, result.revision) == (True, "dirty_runs")
    assert {("pgflow.runs", "AccessExclusiveLock"), ("pgmq.q_orders", "ShareLock")} <= set(seen)
    assert ("pgflow.step_tasks", "AccessExclusiveLock") in seen
    old.execute("select pgflow.start_flow('Orders', '{}')")


@pytest.mark.parametrize(
    ("obstacle", "exit_code"),
    [
        ("select pgmq.send('orders', '{}'::jsonb)", EXIT_BLOCKED),
        (
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (gen_random_uuid(), 'orders', 'packer')",
            EXIT_BLOCKED,
        ),
        ("drop function pgflow.start_ready_steps(uuid)", EXIT_COULD_NOT_RUN),
    ],
)
def test_a_dry_run_is_refused_as_the_upgrade_would_be(
    old: Database, invoke: Invoke, obstacle: str, exit_code: int
) -> None:
    old.execute(obstacle.encode())
    before = signature.take(old)
    dry = invoke("upgrade", "--dsn", old.info.dsn, "--dry-run")
    wet = invoke("upgrade", "--dsn", old.info.dsn)
    assert (dry.exit_code, dry.stdout) == (wet.exit_code, wet.stdout)
    assert dry.exit_code == exit_code
    assert differences(before, signature.take(old)) == ()


def test_a_dry_run_that_gets_no_locks_exits_4(
    old: Database, invoke: Invoke, connect: Callable[[str], Database]
) -> None:
    other = connect(old.info.dsn)
    with other.transaction():
        other.execute("lock table pgflow.runs in row exclusive mode")
        result = invoke(
            "upgrade", "--dsn", old.info.dsn, "--dry-run", "--lock-timeout", "100ms", "--max-wait", "200ms"
        )
    assert result.exit_code == EXIT_FENCE
