"""Each code that blocks or warns, arranged alone: exactly its rows; and docs/findings.md mends it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from pgflow_migrate import audit, resources
from pgflow_migrate.audit import script
from pgflow_migrate.audit.codes import CODES
from pgflow_migrate.audit.render import page
from pgflow_migrate.audit.run import run_audit

Database = psycopg.Connection[dict[str, Any]]

RUN_1 = "00000000-0000-4000-8000-000000000001"
RUN_2 = "00000000-0000-4000-8000-000000000002"
ORDERS = """
  select pgflow.create_flow('orders');
  select pgflow.add_step('orders', 'pack');
"""
BILLING = "select pgflow.create_flow('billing');"
A_RUN = f"select pgflow.start_flow('orders', '{{}}', '{RUN_1}');"


@dataclass(frozen=True)
class Case:
    """How a code comes about from an empty 0.16.0 database, and what the audit says then.

    Attributes:
        arrange: statements.
        rows: the errors and warnings, without their hints.
        rename: (flow, step or None, new slug) where renaming is the mend.
    """

    arrange: str
    rows: tuple[tuple[Any, ...], ...]
    rename: tuple[str, str | None, str] | None = None


def about(
    code: str,
    flow: str | None = None,
    step: str | None = None,
    queue: str | None = None,
    *,
    count: int = 1,
    samples: tuple[str, ...] = (),
) -> tuple[Any, ...]:
    return (CODES[code].severity, code, flow, step, queue, count, samples)


CASES: dict[str, Case] = {
    "slug-leading-underscore, flow": Case(
        "select pgflow.create_flow('_orders');",
        (about("slug-leading-underscore", "_orders"),),
        rename=("_orders", None, "orders"),
    ),
    "slug-leading-underscore, step": Case(
        ORDERS + "select pgflow.add_step('orders', '_seal');",
        (about("slug-leading-underscore", "orders", "_seal"),),
        rename=("orders", "_seal", "seal"),
    ),
    "slug-trailing-underscore, flow": Case(
        "select pgflow.create_flow('orders_');",
        (about("slug-trailing-underscore", "orders_"),),
        rename=("orders_", None, "orders"),
    ),
    "slug-trailing-underscore, step": Case(
        ORDERS + "select pgflow.add_step('orders', 'seal_', array['pack']);",
        (about("slug-trailing-underscore", "orders", "seal_"),),
        rename=("orders", "seal_", "seal"),
    ),
    "slug-double-underscore, flow": Case(
        "select pgflow.create_flow('order__intake');",
        (about("slug-double-underscore", "order__intake"),),
        rename=("order__intake", None, "order_intake"),
    ),
    "slug-double-underscore, step": Case(
        ORDERS
        + "select pgflow.add_step('orders', 'pack__all');"
        + "select pgflow.add_step('orders', 'send', array['pack__all']);",
        (about("slug-double-underscore", "orders", "pack__all"),),
        rename=("orders", "pack__all", "pack_all"),
    ),
    "slug-invalid, flow": Case(
        "alter table pgflow.flows drop constraint slug_is_valid;"
        "alter table pgflow.steps drop constraint steps_step_slug_check;"
        "insert into pgflow.flows (flow_slug) values ('9-lives');",
        (about("slug-invalid", "9-lives"),),
        rename=("9-lives", None, "nine_lives"),
    ),
    "slug-invalid, step": Case(
        ORDERS + "alter table pgflow.flows drop constraint slug_is_valid;"
        "alter table pgflow.steps drop constraint steps_step_slug_check;"
        "insert into pgflow.steps (flow_slug, step_slug, step_index) values ('orders', 'run', 1);",
        (about("slug-invalid", "orders", "run"),),
        rename=("orders", "run", "run_it"),
    ),
    "flow-slug-case-duplicate": Case(
        ORDERS + "select pgflow.create_flow('Orders'); delete from pgmq.meta where queue_name = 'Orders';",
        (
            about("flow-slug-case-duplicate", "Orders", samples=("orders",)),
            about("flow-slug-case-duplicate", "orders", samples=("Orders",)),
        ),
        rename=("Orders", None, "big_orders"),
    ),
    "step-slug-case-duplicate": Case(
        ORDERS + "select pgflow.add_step('orders', 'Pack'); select pgflow.add_step('orders', 'PACK');",
        (
            about("step-slug-case-duplicate", "orders", "PACK", count=2, samples=("Pack", "pack")),
            about("step-slug-case-duplicate", "orders", "Pack", count=2, samples=("PACK", "pack")),
            about("step-slug-case-duplicate", "orders", "pack", count=2, samples=("PACK", "Pack")),
        ),
    ),
    "queue-name-invalid": Case(
        "insert into pgflow.flows (flow_slug) values (repeat('a', 48));",
        (about("queue-name-invalid", "a" * 48, None, "a" * 48),),
        rename=("a" * 48, None, "a47"),
    ),
    "queue-absent": Case(
        ORDERS + A_RUN + "select pgmq.drop_queue('orders');",
        (about("queue-absent", "orders", None, "orders"),),
    ),
    "queue-metadata-missing": Case(
        ORDERS + "delete from pgmq.meta;", (about("queue-metadata-missing", "orders", None, "orders"),)
    ),
    "queue-metadata-ambiguous": Case(
        ORDERS + "select pgmq.create('ORDERS');",
        (about("queue-metadata-ambiguous", "orders", None, "orders", count=2, samples=("ORDERS", "orders")),),
    ),
    "queue-incomplete": Case(
        ORDERS + A_RUN + "drop table pgmq.a_orders;",
        (about("queue-incomplete", "orders", None, "orders", samples=("pgmq.a_orders",)),),
    ),
    "queue-incomplete, the queue": Case(
        ORDERS + A_RUN + "drop table pgmq.q_orders;",
        (about("queue-incomplete", "orders", None, "orders", samples=("pgmq.q_orders",)),),
    ),
    "queue-malformed": Case(
        ORDERS + "drop index pgmq.q_orders_vt_idx; alter table pgmq.q_orders set unlogged;"
        "update pgmq.meta set is_unlogged = true;",
        (
            about(
                "queue-malformed",
                "orders",
                None,
                "orders",
                count=4,
                samples=(
                    "pgmq.meta says unlogged",
                    "pgmq.q_orders has no valid index on vt",
                    "pgmq.q_orders is unlogged",
                    "pgmq.q_orders_msg_id_seq is unlogged",
                ),
            ),
        ),
    ),
    "queue-sequence-behind": Case(
        ORDERS
        + A_RUN
        + "select pgmq.archive('orders', 1); alter table pgmq.q_orders alter column msg_id restart;",
        (
            about(
                "queue-sequence-behind",
                "orders",
                None,
                "orders",
                samples=("next msg_id 1, highest message_id 1",),
            ),
        ),
    ),
    "queue-referenced-by-other-flow": Case(
        ORDERS + BILLING + """select pgmq.send('orders', '{"flow_slug": "billing", "total": 7}'::jsonb);""",
        (about("queue-referenced-by-other-flow", "orders", None, "orders", samples=("orders/1",)),),
    ),
    "message-without-task": Case(
        ORDERS + """select pgmq.send('orders', '{"total": 7}'::jsonb);""",
        (about("message-without-task", "orders", None, "orders", samples=("orders/1",)),),
    ),
    "message-without-task, more than are named": Case(
        ORDERS + """select pgmq.send('orders', '{"total": 7}'::jsonb) from generate_series(1, 41);""",
        (
            about(
                "message-without-task",
                "orders",
                None,
                "orders",
                count=41,
                samples=tuple(f"orders/{number}" for number in range(1, 21)),
            ),
        ),
    ),
    "message-body-mismatch": Case(
        ORDERS + A_RUN + """update pgmq.q_orders set message = message || '{"task_index": 5}';""",
        (about("message-body-mismatch", "orders", None, "orders", samples=("orders/1",)),),
    ),
    "duplicate-queue-message": Case(
        ORDERS
        + A_RUN
        + f"select pgflow.start_flow('orders', '{{}}', '{RUN_2}');"
        + "select pgmq.archive('orders', 2);"
        + f"update pgflow.step_tasks set message_id = 1, status = 'cancelled' where run_id = '{RUN_2}';",
        (about("duplicate-queue-message", "orders", None, "orders", samples=("orders/1",)),),
    ),
    "task-flow-mismatch": Case(
        ORDERS
        + BILLING
        + A_RUN
        + "select pgmq.archive('orders', 1); update pgflow.step_tasks set flow_slug = 'billing';",
        (about("task-flow-mismatch", "billing", samples=(f"{RUN_1}/pack/0",)),),
    ),
    "pgmq-absent": Case(
        "drop extension if exists pgmq cascade; drop schema if exists pgmq cascade;", (about("pgmq-absent"),)
    ),
    "release-unexpected": Case(
        "alter table pgflow.steps drop column opt_start_delay;",
        (
            about(
                "release-unexpected",
                samples=("pgflow.steps lacks column opt_start_delay integer",),
            ),
        ),
    ),
    "row-type-in-function": Case(
        """
        create function public.tasks_of(run uuid) returns setof pgflow.step_tasks language sql
        as 'select * from pgflow.step_tasks where run_id = run';
        create function pgflow.describe(s pgflow.steps[]) returns text language sql as 'select s::text';
        create function public.one(out one pgflow.worker_functions) language sql
        as 'select * from pgflow.worker_functions';
        create function public.run_of(run pgflow.runs) returns uuid language sql as 'select run.run_id';
        """,
        (
            about(
                "row-type-in-function",
                count=3,
                samples=("pgflow.describe(pgflow.steps[])", "public.one()", "public.tasks_of(uuid)"),
            ),
        ),
    ),
    "prune-helper-customised": Case(
        """
        create function pgflow.prune_data_older_than(retention_interval interval) returns void language sql
        as $$ delete from pgflow.runs where completed_at < now() - retention_interval $$;
        """,
        (about("prune-helper-customised", samples=("pgflow.prune_data_older_than(interval)",)),),
    ),
}
"""Missing rights are in test_privileges.py, the stock helper in test_prune_helper.py."""

NOT_MENDED_BY_STATEMENTS = {"release-unexpected", "row-type-in-function", "prune-helper-customised"}
# Those whose hints have statements to copy; the others want a decision, or SQL that is longer than a hint.
MENDED_BY_THE_HINT = {
    *("queue-absent", "queue-metadata-missing", "queue-incomplete", "queue-sequence-behind", "pgmq-absent"),
    *("queue-referenced-by-other-flow", "message-without-task"),
}
# What would delete what somebody may want back.
DESTROYS = re.compile(r"\b(drop|delete|truncate|purge)|delete_flow_and_data", re.IGNORECASE)


def page_section(heading: str) -> str:
    """A section of docs/findings.md."""
    page = (resources.root() / "docs" / "findings.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"docs/findings.md has no section {heading}"
    return found[1]


def statements(heading: str) -> str:
    """The SQL of a section."""
    return "\n".join(re.findall(r"```sql\n(.*?)```", page_section(heading), re.DOTALL))


def renaming(flow: str, step: str | None, new: str) -> str:
    """The page's block for renaming, with these names."""
    if step is None:
        block = statements("Renaming a flow").replace("'order__intake'", f"'{flow}'")
        return block.replace("'order_intake'", f"'{new}'")
    block = statements("Renaming a step").replace("'orders'", f"'{flow}'")
    return block.replace("'pack__all'", f"'{step}'").replace("'pack_all'", f"'{new}'")


@pytest.mark.parametrize("name", CASES)
def test_is_reported_alone_with_exact_names(
    name: str, database: Database, audited: Callable[[Database], list[tuple[Any, ...]]]
) -> None:
    assert audited(database) == []
    database.execute(CASES[name].arrange)
    assert audited(database) == list(CASES[name].rows)


@pytest.mark.parametrize("name", CASES)
def test_the_preflight_raises_for_errors_and_only_for_them(name: str, database: Database) -> None:
    database.execute(CASES[name].arrange)
    expected = run_audit(database).blocking
    assert {finding.code for finding in expected if hinted(finding)} == MENDED_BY_THE_HINT & {
        finding.code for finding in expected
    }
    with database.transaction():
        database.execute(script.findings_block().encode())
        raising = (resources.revision_sql("queue_identity") / "preflight_raise.sql").read_bytes()
        if not expected:
            database.execute(raising)
            return
        with pytest.raises(psycopg.Error) as refused, database.transaction():
            database.execute(raising)
    assert refused.value.sqlstate == "PF001"
    assert audit.findings_from_error(refused.value) == expected
    stand = "finding stands" if len(expected) == 1 else "findings stand"
    assert refused.value.diag.message_primary == f"{len(expected)} {stand} in the way of queue identity"


def hinted(finding: audit.Finding) -> list[str]:
    """The statements of a hint that a page would offer to copy."""
    return [text for is_sql, text in page.parts(finding.hint, finding.code) if is_sql]


@pytest.mark.parametrize("name", [name for name in CASES if name.split(",")[0] in MENDED_BY_THE_HINT])
def test_the_statements_of_the_hint_mend_it_and_destroy_nothing(
    name: str, database: Database, audited: Callable[[Database], list[tuple[Any, ...]]]
) -> None:
    code = name.split(",")[0]
    if (
        code == "pgmq-absent"
        and not database.execute("select name from pg_available_extensions where name = 'pgmq'").fetchone()
    ):
        pytest.skip("this server has PGMQ from plain SQL: create extension cannot bring it back")
    database.execute(CASES[name].arrange)
    found = [finding for finding in run_audit(database).findings if finding.severity != "info"]
    rounds = 0
    while found:
        rounds += 1
        for finding in found:
            for statements in hinted(finding):
                assert not DESTROYS.search(statements)
                database.execute(statements.encode())
        found = [finding for finding in run_audit(database).findings if finding.severity != "info"]
        assert rounds <= 3
        assert {finding.code for finding in found} <= {code}
    assert rounds == (3 if name.endswith(" named") else 1)


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_MENDED_BY_STATEMENTS])
def test_the_statements_of_the_page_mend_it(
    name: str, database: Database, audited: Callable[[Database], list[tuple[Any, ...]]]
) -> None:
    case = CASES[name]
    code = name.split(",")[0]
    if (
        code == "pgmq-absent"
        and not database.execute("select name from pg_available_extensions where name = 'pgmq'").fetchone()
    ):
        pytest.skip("this server has PGMQ from plain SQL: create extension cannot bring it back")
    database.execute(case.arrange)
    if case.rename:
        database.execute(renaming(*case.rename).encode())
    if code == "step-slug-case-duplicate":
        database.execute(renaming("orders", "Pack", "pack_twice").encode())
        database.execute(renaming("orders", "PACK", "pack_thrice").encode())
    if code == "slug-invalid" or not case.rename:
        # Where the queue itself is missing, the page refers to the other section.
        sql = statements("queue-absent" if name == "queue-incomplete, the queue" else code)
        if name.endswith(" named"):
            sql = sql.replace("array[1]", f"array{[*range(1, 42)]}")
        database.execute(sql.encode())
    assert audited(database) == []
