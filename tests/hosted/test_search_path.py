"""Traps in a schema that comes before pg_catalog: every operator, type and function of theirs raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate import prune_helper
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.status import read_status
from pgflow_migrate.verify.run import verify

Session = psycopg.Connection[Any]

RUN = "00000000-0000-4000-8000-00000000000a"
WORKER = "00000000-0000-4000-8000-00000000000b"
OPERANDS = ("bigint", "boolean", "integer", "jsonb", "name", "oid", "text", "timestamptz", "uuid")
OPERATORS = ("=", "<>", "<", ">", "<=", ">=", "||", "+", "~", "!~", "@>")
TYPES = (
    "text",
    "int8",
    "int4",
    "bool",
    "jsonb",
    "timestamptz",
    "uuid",
    "record",
    "name",
    "interval",
    "regclass",
)
FUNCTIONS = (
    "format(text, text)",
    "lower(text)",
    "now()",
    "clock_timestamp()",
    "current_schema()",
    "version()",
    "current_setting(text)",
    "set_config(text, text, boolean)",
    "pg_advisory_xact_lock(bigint)",
    "hashtextextended(text, bigint)",
    "txid_current_if_assigned()",
    "txid_status(bigint)",
    "pg_backend_pid()",
    "jsonb_typeof(jsonb)",
    "jsonb_array_length(jsonb)",
    "octet_length(text)",
    "gen_random_uuid()",
    "pg_is_in_recovery()",
)


def traps() -> str:
    body = "language plpgsql as $$ begin raise exception 'trapped'; end $$;\n"
    statements = ["create schema traps;", "create function traps.spring(text) returns boolean " + body]
    for of in OPERANDS:
        statements.append(f"create function traps.spring({of}, {of}) returns pg_catalog.bool {body}")
        statements += [
            f"create operator traps.{sign} (function = traps.spring, leftarg = {of}, rightarg = {of});"
            for sign in OPERATORS
        ]
    statements += [f"create function traps.{signature} returns text {body}" for signature in FUNCTIONS]
    # Last, because the statements above would find them.
    statements += [
        f"create domain traps.{name} as pg_catalog.text check (traps.spring(value));" for name in TYPES
    ]
    return "".join(statements)


@pytest.mark.parametrize("way", ["command", "script"])
def test_nothing_of_ours_springs_them(
    way: str,
    old: str,
    upgrade_by: Callable[[str, str], None],
    reach: Callable[[str], Session],
) -> None:
    arranging = reach(old)
    arranging.execute(traps().encode())
    database = arranging.info.dbname
    arranging.execute(f"alter database {database} set search_path = traps, pg_catalog, public".encode())
    victim = reach(old)
    for naive in (
        "select 1 = 1",
        "select lower('A'::pg_catalog.text)",
        "do $$ declare t text := 'a'; begin end $$",
    ):
        with pytest.raises(psycopg.errors.RaiseException, match="trapped"):
            victim.execute(naive)

    assert read_status(old).release == "0.16.0"
    assert prune_helper.find(old).queue_identity is False
    upgrade_by(way, old)
    assert verify(old).violations == ()
    assert read_status(old).release == HEAD

    # The runtime's functions pin their path; PGMQ's do not, and take over theirs.
    for call in (
        """select pgflow.ensure_flow_compiled('Other', '{"steps": []}', '{"queueIdentity": true}')""",
        "select pgflow.start_flow('Order_flow', '{}')",
        f"insert into pgflow.workers (worker_id, function_name, queue_name) values ('{WORKER}', 'w', 'q')",
        f"select pgflow.claim_tasks('order_flow', 'Order_flow', '{{1,2}}', '{WORKER}')",
        f"select pgflow.complete_task('{RUN}', 'pack', 0, '{{}}')",
        "select pgflow.requeue_stalled_tasks()",
        "select pgflow.delete_flow_and_data('Order_flow')",
    ):
        victim.execute(call.encode())
    assert arranging.execute("select flow_slug from pgflow.flows").fetchall() == [("Other",)]
