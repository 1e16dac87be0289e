"""The calls that may come along while the upgrade holds its locks, each on a flow of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pgflow_migrate import resources

WORKER = "11111111-1111-1111-1111-111111111111"
DEAD = "22222222-1111-1111-1111-111111111111"
CAPABLE = '{"queueIdentity": true}'
LOCAL = "set app.settings.jwt_secret = 'super-secret-jwt-token-with-at-least-32-characters-long'"


@dataclass(frozen=True)
class Call:
    """A call in flight. Arranged for it is a flow of two steps, first and then second, and a run.

    Attributes:
        name: also what the slug of the flow is made of.
        query: what the session runs. ``{run}`` is the id of the run, ``{flow}`` the slug.
        claimed: whether the task of the first step is started before.
        own: whether it has a flow of its own; else it changes none, and shares one.
        waits: whether it waits for the upgrade at all.
        later: the same to a database that has been upgraded.
        prepare: run once at the end of the arrangement.
        refused: whether the upgrade would be refused after it.
        error: SQLSTATE and message that it ends with in a session that has made it before; None: with the
            result that it has without an upgrade.
        error_when_new: the same in a session that has not.
    """

    name: str
    query: str
    claimed: bool = False
    own: bool = True
    waits: bool = True
    later: str = ""
    error: tuple[str, str] | None = None
    error_when_new: tuple[str, str] | None = None
    prepare: str = ""
    refused: bool = False

    @property
    def run(self) -> str:
        """The id of its run."""
        return f"00000000-0000-4000-8000-{CALLS.index(self) if self.own else 999:012}"

    @property
    def flow(self) -> str:
        """The slug of its flow, in mixed case."""
        return self.name.title().replace(" ", "").replace(",", "") if self.own else SHARED

    def sql(self, text: str) -> str:
        """A text of ours, filled in."""
        return text.replace("{run}", self.run).replace("{flow}", self.flow)


def _shape(*steps: str) -> str:
    return json.dumps(
        {
            "steps": [
                {
                    "slug": step,
                    "stepType": "single",
                    "dependencies": list(steps[:number]),
                    "whenUnmet": "skip",
                    "whenExhausted": "fail",
                    "requiredInputPattern": {"defined": False},
                    "forbiddenInputPattern": {"defined": False},
                }
                for number, step in enumerate(steps)
            ]
        }
    )


SHARED = "Shared"
CALLBACK = ("42804", "structure of query does not match function result type")
APPENDED = (
    "23502",
    'null value in column "queue_name" of relation "steps" violates not-null constraint',
)

CALLS = [
    # producers
    Call("start",
         "select * from pgflow.start_flow('{flow}', '{\"n\": 1}',"
         " overlay('{run}' placing 'ffff' from 1)::uuid)"),
    Call("start in the select list", "select pgflow.start_flow('{flow}', '{}')"),
    Call("start with states", "select pgflow.start_flow_with_states('{flow}', '{}')"),
    Call("start several in one statement",
         "select (pgflow.start_flow('{flow}', to_jsonb(n))).status from generate_series(1, 3) as n"),
    Call("look at a run", "select pgflow.get_run_with_states('{run}')", own=False),
    # definitions
    Call("create", "select * from pgflow.create_flow('{flow}New')"),
    Call("create again", "select * from pgflow.create_flow('{flow}')", own=False),
    Call("append", "select * from pgflow.add_step('{flow}', 'third', '{second}')", error=APPENDED),
    Call("append, row", "select pgflow.add_step('{flow}', 'third', '{second}')", error=APPENDED,
         error_when_new=APPENDED),
    Call("append again", "select * from pgflow.add_step('{flow}', 'first')", error=APPENDED),
    Call("compile", f"select pgflow.ensure_flow_compiled('{{flow}}New', '{_shape('first', 'second')}')",
         later=f"select pgflow.ensure_flow_compiled('{{flow}}New', '{_shape('first', 'second')}',"
         f" '{CAPABLE}')"),
    Call("verify", f"select pgflow.ensure_flow_compiled('{{flow}}', '{_shape('first', 'second')}')"),
    Call("mismatch", f"select pgflow.ensure_flow_compiled('{{flow}}', '{_shape('first')}')"),
    Call("recompile", f"{LOCAL}; select pgflow.ensure_flow_compiled('{{flow}}', '{_shape('first')}')",
         later=f"{LOCAL}; select pgflow.ensure_flow_compiled('{{flow}}', '{_shape('first')}', '{CAPABLE}')"),
    Call("delete", "select pgflow.delete_flow_and_data('{flow}')"),
    # workers
    Call("claim", f"select * from pgflow.start_tasks('{{flow}}', '{{1}}', '{WORKER}')"),
    Call("complete", "select * from pgflow.complete_task('{run}', 'first', 0, '[1]')", True, error=CALLBACK),
    Call("complete, row", "select pgflow.complete_task('{run}', 'first', 0, '[1]')", True, error=CALLBACK),
    Call("complete, one column", "select status from pgflow.complete_task('{run}', 'first', 0, '[1]')", True,
         error=CALLBACK),
    Call("fail", "select * from pgflow.fail_task('{run}', 'first', 0, 'no')", True, error=CALLBACK),
    Call("fail, row", "select pgflow.fail_task('{run}', 'first', 0, 'no')", True, error=CALLBACK),
    Call("set visibility",
         "select msg_id, read_ct, message from pgflow.set_vt_batch('{flow}', '{1}', '{9}')"),
    Call("poll", "select * from pgflow.poll_for_tasks('{flow}', 1, 1)", waits=False, own=False),
    Call("register", f"insert into pgflow.workers (worker_id, queue_name, function_name)"
         f" values ('{WORKER[:-4]}4444', '{{flow}}', 'other')", waits=False, own=False),
    Call("heartbeat", f"update pgflow.workers set last_heartbeat_at = now() where worker_id = '{WORKER}'"
         " returning deprecated_at", waits=False, own=False),
    Call("stop", f"select pgflow.mark_worker_stopped('{WORKER}')", waits=False, own=False),
    Call("forget a worker", f"delete from pgflow.workers where worker_id = '{DEAD}'", own=False),
    Call("track", "select pgflow.track_worker_function('another', 'process')", own=False),
    # cron jobs and helpers
    Call("recover", "select pgflow.requeue_stalled_tasks()", True,
         prepare="update pgflow.step_tasks set queued_at = queued_at - interval '1 day',"
         " started_at = started_at - interval '1 day' where run_id = '{run}'"),
    Call("ensure workers", f"{LOCAL}; select * from pgflow.ensure_workers()", own=False),
    Call("clean up", "select pgflow.cleanup_ensure_workers_logs(1)", waits=False, own=False),
    Call("prune", "select pgflow.prune_data_older_than('30 days')", True,
         prepare="update pgflow.runs set status = 'failed', started_at = now() - interval '1 year',"
         " failed_at = now() - interval '31 days' where run_id = '{run}'"),
    # reads
    Call("read tasks",
         "select run_id, step_slug, status from pgflow.step_tasks where run_id = '{run}'", own=False),
    Call("count tasks", "select count(*) from pgflow.step_tasks where flow_slug = '{flow}'", own=False),
    Call("read steps", "select step_slug from pgflow.steps where flow_slug = '{flow}' order by 1", own=False),
    Call("read runs", "select * from pgflow.runs where flow_slug = '{flow}'", own=False),
    # PGMQ, past pgflow
    Call("send", "select * from pgmq.send('{flow}', '{\"from\": \"outside\"}'::jsonb)",
         refused=True),
    Call("read", "select msg_id, read_ct, message from pgmq.read('{flow}', 30, 5)"),
    Call("archive", "select pgmq.archive('{flow}', array[1::bigint])", refused=True),
    Call("create a queue", "select pgmq.create('a_new_queue')", own=False),
    Call("list queues", "select queue_name from pgmq.list_queues() where queue_name = '{flow}'",
         waits=False, own=False),
    Call("send elsewhere", "select * from pgmq.send('unrelated', '{}'::jsonb)", waits=False, own=False),
]  # fmt: skip

# The pruning helper looks into the queues of all flows, also of those that other calls delete.
ROUNDS = [[call for call in CALLS if call.name != "prune"], [call for call in CALLS if call.name == "prune"]]


def prune_helper() -> str:
    """The statement that installs the documented pruning helper (a stand-in of the same behaviour)."""
    scenario = resources.fixtures() / "0.16.0" / "prune_helper_stock" / "populate.sql"
    before, body, after = scenario.read_text(encoding="utf-8").split("$$")
    return f"{before}$${body}$${after.partition(';')[0]}"
