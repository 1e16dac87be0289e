"""A change to a database shows as one sentence, and says whether it matters to an upgrade."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.comparison import compare
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

Connection = psycopg.Connection[dict[str, object]]

# Who changes these has made another release of it: the upgrade must not guess.
MATTERS = {
    "a column of another type": (
        "alter table pgflow.runs alter column output type json",
        "column runs.output: type is json, not jsonb",
    ),
    "a column that allows null": (
        "alter table pgflow.runs alter column input drop not null",
        "column runs.input: nullable is yes, not no",
    ),
    "a column with another default": (
        "alter table pgflow.flows alter column opt_base_delay set default 5",
        "column flows.opt_base_delay: default is 5, not 1",
    ),
    "a column without its default": (
        "alter table pgflow.flows alter column opt_base_delay drop default",
        "column flows.opt_base_delay: default is none, not 1",
    ),
    "a column with another collation": (
        'alter table pgflow.flows alter column flow_slug type text collate "C"',
        'column flows.flow_slug: collation is "C", not none',
    ),
    "a missing column": (
        "alter table pgflow.step_tasks drop column permanently_stalled_at",
        "column step_tasks.permanently_stalled_at is missing",
    ),
    "a column of the user's": (
        "alter table pgflow.step_tasks add column note text",
        "column step_tasks.note is not part of the release",
    ),
    "a missing check": (
        "alter table pgflow.runs drop constraint status_is_valid",
        "constraint runs.status_is_valid is missing",
    ),
    "a check that old rows need not pass": (
        "alter table pgflow.runs drop constraint runs_remaining_steps_check, "
        "add constraint runs_remaining_steps_check check (remaining_steps >= 0) not valid",
        "constraint runs.runs_remaining_steps_check: definition is "
        "CHECK ((remaining_steps >= 0)) NOT VALID, not CHECK ((remaining_steps >= 0))",
    ),
    "a foreign key that cascades": (
        "alter table pgflow.runs drop constraint runs_flow_slug_fkey, "
        "add constraint runs_flow_slug_fkey foreign key (flow_slug) references pgflow.flows "
        "on delete cascade",
        "constraint runs.runs_flow_slug_fkey: definition is "
        "FOREIGN KEY (flow_slug) REFERENCES pgflow.flows(flow_slug) ON DELETE CASCADE, "
        "not FOREIGN KEY (flow_slug) REFERENCES pgflow.flows(flow_slug)",
    ),
    "a missing index": (
        "drop index pgflow.idx_runs_status",
        "index runs.idx_runs_status is missing",
    ),
    "an index on another column": (
        "drop index pgflow.idx_runs_status; create index idx_runs_status on pgflow.runs (started_at)",
        "index runs.idx_runs_status: definition is "
        "CREATE INDEX idx_runs_status ON pgflow.runs USING btree (started_at), "
        "not CREATE INDEX idx_runs_status ON pgflow.runs USING btree (status)",
    ),
    "an index that a failed build left": (
        "update pg_index set indisvalid = false where indexrelid = 'pgflow.idx_runs_status'::regclass",
        "index runs.idx_runs_status: state is invalid, not valid",
    ),
    "a missing table, told without its parts": (
        "drop table pgflow.worker_functions",
        "table worker_functions is missing",
    ),
    "an unlogged table": (
        "alter table pgflow.worker_functions set unlogged",
        "table worker_functions: persistence is unlogged, not permanent",
    ),
    "columns in another order": (
        "alter table pgflow.workers drop column queue_name cascade; "
        "alter table pgflow.workers add column queue_name text not null; "
        "create index idx_workers_queue_name on pgflow.workers (queue_name)",
        "table workers: order of columns is worker_id, function_name, started_at, deprecated_at, "
        "last_heartbeat_at, stopped_at, queue_name, not worker_id, queue_name, function_name, started_at, "
        "deprecated_at, last_heartbeat_at, stopped_at",
    ),
    "row security that binds the owner": (
        "alter table pgflow.runs enable row level security, force row level security",
        "table runs: row security is forced, not off",
    ),
    "a composite type with one attribute more": (
        "alter type pgflow.step_task_record add attribute queue_name text",
        "type step_task_record: attributes is flow_slug text; run_id uuid; step_slug text; input jsonb; "
        "msg_id bigint; task_index integer; flow_input jsonb; queue_name text, "
        "not flow_slug text; run_id uuid; step_slug text; input jsonb; "
        "msg_id bigint; task_index integer; flow_input jsonb",
    ),
    "a function with another search_path": (
        "alter function pgflow.start_flow(text, jsonb, uuid) set search_path = public",
        'function start_flow(text, jsonb, uuid): settings is search_path=public, not search_path=""',
    ),
    "a function without a search_path": (
        "alter function pgflow.start_flow(text, jsonb, uuid) reset search_path",
        'function start_flow(text, jsonb, uuid): settings is none, not search_path=""',
    ),
    "a function with the rights of its caller": (
        "alter function pgflow.requeue_stalled_tasks() security invoker",
        "function requeue_stalled_tasks(): security definer is no, not yes",
    ),
    "a strict function": (
        "alter function pgflow.is_valid_slug(text) strict",
        "function is_valid_slug(text): strict is yes, not no",
    ),
    "a function of another volatility": (
        "alter function pgflow.is_valid_slug(text) stable",
        "function is_valid_slug(text): volatility is stable, not immutable",
    ),
    "a function that is not parallel safe": (
        "alter function pgflow.is_local() parallel restricted",
        "function is_local(): parallel is restricted, not safe",
    ),
    "a leakproof function": (
        "alter function pgflow.is_local() leakproof",
        "function is_local(): leakproof is yes, not no",
    ),
    "a dear function": (
        "alter function pgflow.is_local() cost 1000",
        "function is_local(): cost is 1000, not 100",
    ),
    "a function of few rows": (
        "alter function pgflow.start_flow(text, jsonb, uuid) rows 1",
        "function start_flow(text, jsonb, uuid): rows is 1, not 1000",
    ),
    "a missing function": (
        "drop function pgflow.mark_worker_stopped(uuid)",
        "function mark_worker_stopped(uuid) is missing",
    ),
    "an argument of another name": (
        "drop function pgflow.delete_flow_and_data(text); "
        "create function pgflow.delete_flow_and_data(flow_slug text) returns void language plpgsql "
        "set search_path = '' as 'begin end'",
        "function delete_flow_and_data(text): arguments is flow_slug text, not p_flow_slug text",
    ),
    "an argument without its default": (
        "drop function pgflow.setup_requeue_stalled_tasks_cron(text); "
        "create function pgflow.setup_requeue_stalled_tasks_cron(cron_interval text) returns text "
        "language plpgsql security definer set search_path = pgflow, cron, pg_temp as 'begin end'",
        "function setup_requeue_stalled_tasks_cron(text): arguments is cron_interval text, "
        "not cron_interval text DEFAULT '15 seconds'::text",
    ),
    "a function of another result": (
        "drop function pgflow.is_local(); create function pgflow.is_local() returns integer language sql "
        "stable parallel safe set search_path = '' as 'select 1'",
        "function is_local(): result is integer, not boolean",
    ),
    "an overload that makes calls ambiguous": (
        "create function pgflow.ensure_flow_compiled(flow_slug text, shape jsonb, allow_data_loss boolean "
        "default false) returns jsonb language sql as 'select null::jsonb'",
        "function ensure_flow_compiled(text, jsonb, boolean) is not part of the release",
    ),
    "a right that its owner gave up": (
        "revoke update on pgflow.runs from current_user",
        "table runs: UPDATE to owner is not granted",
    ),
}

# These are the operator's own affair.
HARMLESS = {
    "a table of the user's, told without its parts": (
        "create table pgflow.notes (id integer primary key, body text)",
        "table notes is not part of the release",
    ),
    "a view": (
        "create view pgflow.failed_runs as select run_id from pgflow.runs where status = 'failed'",
        "table failed_runs is not part of the release",
    ),
    "an index of the user's": (
        "create index on pgflow.runs (started_at)",
        "index runs.runs_started_at_idx is not part of the release",
    ),
    "a constraint of the user's": (
        "alter table pgflow.runs add constraint input_is_small check (pg_column_size(input) < 100000)",
        "constraint runs.input_is_small is not part of the release",
    ),
    "a function of the user's": (
        "create function pgflow.prune_data_older_than(retention_interval interval) returns void "
        "language sql as ''",
        "function prune_data_older_than(interval) is not part of the release",
    ),
    "an enum": (
        "create type pgflow.mood as enum ('calm', 'busy')",
        "type mood is not part of the release",
    ),
    "a domain": (
        "create domain pgflow.slug as text check (pgflow.is_valid_slug(value))",
        "type slug is not part of the release",
    ),
    "a sequence": (
        "create sequence pgflow.numbers",
        "sequence numbers is not part of the release",
    ),
    "a trigger": (
        "create trigger quiet before update on pgflow.runs for each row "
        "execute function suppress_redundant_updates_trigger()",
        "trigger runs.quiet is not part of the release",
    ),
    "a policy": (
        "create policy everyone on pgflow.runs for select using (true)",
        "policy runs.everyone is not part of the release",
    ),
    "row security": (
        "alter table pgflow.runs enable row level security",
        "table runs: row security is on, not off",
    ),
    "a grant on the schema": (
        "grant usage on schema pgflow to anon",
        "schema pgflow: USAGE to anon was granted",
    ),
    "a grant on a table": (
        "grant select on pgflow.runs to anon with grant option",
        "table runs: SELECT to anon with grant option was granted",
    ),
    "a grant on a column": (
        "grant select (status) on pgflow.runs to anon",
        "column runs.status: SELECT to anon was granted",
    ),
    "a right taken from everyone": (
        "revoke execute on function pgflow.start_flow(text, jsonb, uuid) from public",
        "function start_flow(text, jsonb, uuid): EXECUTE to PUBLIC is not granted",
    ),
    "a job at another pace": (
        "select pgflow.setup_ensure_workers_cron('5 seconds')",
        "cron job pgflow_ensure_workers: schedule is 5 seconds, not 1 second",
    ),
    "a job that was stopped": (
        "select cron.unschedule('pgflow_requeue_stalled_tasks')",
        "cron job pgflow_requeue_stalled_tasks is missing",
    ),
    "a job that rests": (
        "update cron.job set active = false where jobname = 'pgflow_cleanup_logs'",
        "cron job pgflow_cleanup_logs: active is no, not yes",
    ),
    "a job of the user's": (
        "select cron.schedule('nightly', '0 3 * * *', 'select pgflow.is_local()')",
        "cron job nightly is not part of the release",
    ),
}

# No difference at all.
UNSEEN = {
    "storage": "alter table pgflow.step_tasks set (fillfactor = 70)",
    "a comment": "comment on table pgflow.runs is 'ours'",
    "an index that was built again": "reindex table pgflow.runs",
    "a column that came and went": (
        "alter table pgflow.runs add column gone text; alter table pgflow.runs drop column gone"
    ),
    "another job": "select cron.schedule('vacuum', '0 3 * * *', 'vacuum public.orders')",
    "a function's body": (
        "create or replace function pgflow.mark_worker_stopped(worker_id uuid) returns void "
        "language sql as ''"
    ),
}


@pytest.fixture(scope="module")
def connection(server: Server, templates: Templates) -> Iterator[Connection]:
    """A connection to a database of 0.16.0, which every test leaves as it was."""
    dsn = templates.clone("core_0_16_0", "catalogue_comparison")
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        yield connection
    server.drop_database("catalogue_comparison")


def differences_after(change: str, connection: Connection) -> list[tuple[str, bool]]:
    """The differences that a change makes; it is rolled back."""
    with connection.transaction(force_rollback=True):
        connection.execute(change.encode())
        found = compare(catalogue.snapshot("0.16.0"), catalogue.read(connection))
    return [(str(difference), difference.matters) for difference in found]


@pytest.mark.parametrize("case", MATTERS)
def test_a_change_to_what_the_release_defines_matters(case: str, connection: Connection) -> None:
    change, sentence = MATTERS[case]
    assert differences_after(change, connection) == [(sentence, True)]


@pytest.mark.parametrize("case", HARMLESS)
def test_what_the_operator_adds_or_tunes_is_told_but_does_not_matter(
    case: str, connection: Connection
) -> None:
    change, sentence = HARMLESS[case]
    assert differences_after(change, connection) == [(sentence, False)]


@pytest.mark.parametrize("case", UNSEEN)
def test_what_is_no_part_of_a_definition_is_not_told(case: str, connection: Connection) -> None:
    assert differences_after(UNSEEN[case], connection) == []


def test_a_database_without_pgflow_lacks_one_thing_the_schema(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    actual = catalogue.read(connect(database_at("")))
    assert actual.objects == {}
    found = compare(catalogue.snapshot("0.16.0"), actual)
    assert [(str(difference), difference.matters) for difference in found] == [
        ("schema pgflow is missing", True)
    ]


def test_differences_that_matter_come_first(connection: Connection) -> None:
    change = "create table pgflow.a (); drop index pgflow.idx_runs_status; drop function pgflow.is_local()"
    assert differences_after(change, connection) == [
        ("function is_local() is missing", True),
        ("index runs.idx_runs_status is missing", True),
        ("table a is not part of the release", False),
    ]
