"""The calls of protocol 2 as a session makes them, and what the tests look at."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row, tuple_row

WORKER = UUID("00000000-0000-4000-8000-000000000002")
LATER = "interval '1 day'"

Row = dict[str, Any]


def text(value: object) -> str:
    """A Python value as JSON text; a string is taken as it is, so that tests can spell JSON out."""
    return value if isinstance(value, str) else json.dumps(value)


class Session:
    """A connection (autocommit) to a database with protocol 2.

    Args:
        dsn: the database.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connection = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        self.pid = self.connection.info.backend_pid

    def close(self) -> None:
        self.connection.close()

    # -- looking ---------------------------------------------------------------------------------

    def rows(self, query: str, *values: object) -> list[Row]:
        return self.connection.execute(query.encode(), values or None).fetchall()

    def row(self, query: str, *values: object) -> Row:
        (found,) = self.rows(query, *values)
        return found

    def value(self, query: str, *values: object) -> Any:
        cursor = self.connection.cursor(row_factory=tuple_row)
        found = cursor.execute(query.encode(), values or None).fetchall()
        ((one,),) = found
        return one

    def execute(self, query: str, *values: object) -> None:
        self.connection.execute(query.encode(), values or None)

    # -- the protocol ----------------------------------------------------------------------------

    def start(self, flow: str = "demo", given: object = "{}", run: UUID | None = None) -> Row:
        found: Row = self.value("select pgflow.start_flow_v2(%s, %s::jsonb, %s)", flow, text(given), run)
        return found

    def started(self, flow: str = "demo", given: object = "{}") -> UUID:
        """Start a run that is expected to start; its id."""
        outcome = self.start(flow, given)
        assert outcome["outcome"] == "started", outcome
        return UUID(outcome["run_id"])

    def claim(
        self,
        run: UUID,
        step: str,
        ids: list[Any] | None = None,
        *,
        queue: str | None = None,
        index: int = 0,
        worker: UUID = WORKER,
        token: UUID | None = None,
    ) -> Row:
        found: Row = self.value(
            "select pgflow.claim_task_v2(%s, %s, %s, %s, %s::bigint[], %s, %s)",
            run, step, index, queue, ids, worker, token,
        )  # fmt: skip
        return found

    def claimed(self, run: UUID, step: str) -> UUID:
        """Claim a task that is expected to be free; the token."""
        outcome = self.claim(run, step)
        assert outcome["outcome"] == "claimed", outcome
        return UUID(outcome["claim_id"])

    def recover(self, run: UUID, step: str, token: UUID, ids: list[Any] | None = None, index: int = 0) -> Row:
        found: Row = self.value(
            "select pgflow.recover_task_v2(%s, %s, %s, %s, %s::bigint[])", run, step, index, token, ids
        )
        return found

    def complete(self, token: UUID, output: object) -> Row:
        found: Row = self.value("select pgflow.complete_claim_v2(%s, %s::jsonb)", token, text(output))
        return found

    def fail(self, token: UUID, error: str | None = "it broke") -> Row:
        found: Row = self.value("select pgflow.fail_claim_v2(%s, %s)", token, error)
        return found

    def reconcile(self, run: UUID | None = None) -> Row:
        found: Row = self.value("select pgflow.reconcile_one_run(%s)", run)
        return found

    def request(self, run: UUID) -> Row:
        found: Row = self.value("select pgflow.request_reconciliation_v2(%s)", run)
        return found

    # -- definitions -----------------------------------------------------------------------------

    def define(self, flow: str = "demo", *, queues: bool = False, timeout: int = 60, delay: int = 0) -> None:
        """Flow of steps a → b, one attempt each.

        Args:
            flow: its slug.
            queues: whether each step has a queue of its own, ``<flow>__<step>``.
            timeout: of both, in seconds.
            delay: start delay of b, in seconds.
        """
        self.execute("select pgflow.create_flow(%s, 1, 0, %s)", flow, timeout)
        self.execute("select pgflow.add_step(%s, 'a')", flow)
        self.execute("select pgflow.add_step(%s, 'b', '{a}', start_delay => %s)", flow, delay)
        if queues:
            for step in "ab":
                self.execute("select pgmq.create(%s)", f"{flow}__{step}".lower())
            self.execute(
                "update pgflow.steps set queue_name = lower(flow_slug || '__' || step_slug)"
                " where flow_slug = %s",
                flow,
            )

    def expire(self, token: UUID) -> None:
        """Let a claim's lease be over, as if a day had passed: only a superuser without triggers can."""
        self.execute("set session_replication_role = replica")
        self.execute(
            f"update pgflow.task_claims set claimed_at = claimed_at - {LATER},"
            f" lease_expires_at = lease_expires_at - {LATER} where claim_id = %s",
            token,
        )
        self.execute("reset session_replication_role")

    def release(self, run: UUID) -> None:
        """Let a finished run's evidence be older than the replay horizon, likewise."""
        self.execute("set session_replication_role = replica")
        self.execute(
            f"update pgflow.runs set started_at = started_at - {LATER} * 2,"
            f" completed_at = completed_at - {LATER} * 2, failed_at = failed_at - {LATER} * 2"
            " where run_id = %s",
            run,
        )
        self.execute("reset session_replication_role")

    def due(self, run: UUID) -> None:
        """Let the back-off of a run be over, likewise."""
        self.execute("set session_replication_role = replica")
        self.execute(
            f"update pgflow.run_work set next_attempt_at = next_attempt_at - {LATER} where run_id = %s", run
        )
        self.execute("reset session_replication_role")

    def settle_down(self, run: UUID) -> list[str]:
        """Reconcile until the work is clean; the outcomes."""
        outcomes: list[str] = []
        while not outcomes or outcomes[-1] not in ("clean", "idle"):
            outcomes.append(self.reconcile(run)["outcome"])
            assert len(outcomes) < 10, outcomes
        return outcomes

    # -- what is there ---------------------------------------------------------------------------

    def run(self, run: UUID) -> Row:
        return self.row("select * from pgflow.runs where run_id = %s", run)

    def work(self, run: UUID) -> Row:
        return self.row("select * from pgflow.run_work where run_id = %s", run)

    def state(self, run: UUID, step: str) -> Row:
        return self.row("select * from pgflow.step_states where run_id = %s and step_slug = %s", run, step)

    def task(self, run: UUID, step: str) -> Row:
        return self.row("select * from pgflow.step_tasks where run_id = %s and step_slug = %s", run, step)

    def claim_row(self, token: UUID) -> Row:
        return self.row("select * from pgflow.task_claims where claim_id = %s", token)

    def messages(self, queue: str = "demo") -> list[int]:
        """Ids in a queue."""
        return [row["msg_id"] for row in self.rows(f'select msg_id from pgmq."q_{queue}" order by 1')]

    def archived(self, queue: str = "demo") -> list[int]:
        """Ids in a queue's archive."""
        return [row["msg_id"] for row in self.rows(f'select msg_id from pgmq."a_{queue}" order by 1')]

    def everything(self) -> dict[str, list[str]]:
        """Every row of pgflow and PGMQ as text, by table: to show that nothing was changed."""
        tables = self.rows(
            "select format('%I.%I', n.nspname, c.relname) as name from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname in ('pgflow', 'pgmq') and c.relkind = 'r' order by 1"
        )
        return {
            row["name"]: sorted(
                str(found["row"]) for found in self.rows(f"select t::text as row from {row['name']} t")
            )
            for row in tables
        }


def token() -> UUID:
    """A claim's token of the caller's own."""
    return uuid4()
