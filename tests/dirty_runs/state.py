"""What protocol 2 keeps of runs, without identities and times: two runs with the same past are equal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from tests.dirty_runs.protocol import Session

State = dict[str, Any]

RUN_FIELDS = """
  'status', run.status,
  'input', run.input,
  'output', run.output,
  'remaining_steps', run.remaining_steps,
  'ended', jsonb_build_array(run.completed_at is not null, run.failed_at is not null),
  'work', (
    select jsonb_build_object(
      'state', work.state, 'requested', work.requested_generation, 'processed', work.processed_generation,
      'dated', work.requested_at is not null, 'failures', work.failure_count,
      'sqlstate', work.last_error_sqlstate,
      'retry', work.next_attempt_at is not null, 'attention', work.attention_reason
    )
    from pgflow.run_work work
    where work.run_id = run.run_id
  ),
  'steps', (
    select jsonb_object_agg(state.step_slug, jsonb_build_object(
      'status', state.status, 'deps', state.remaining_deps, 'tasks', state.remaining_tasks,
      'output', state.output, 'error', state.error_message
    ))
    from pgflow.step_states state
    where state.run_id = run.run_id
  ),
  'tasks', (
    select jsonb_object_agg(concat_ws('/', task.step_slug, task.task_index), jsonb_build_object(
      'status', task.status, 'claim', task.current_claim_id, 'output', task.output,
      'error', task.error_message,
      'counted', task.attempts_count + task.requeued_count
    ))
    from pgflow.step_tasks task
    where task.run_id = run.run_id
  ),
  'claims', (
    select jsonb_agg(
      jsonb_build_object(
        'claim', claim.claim_id, 'step', claim.step_slug, 'number', claim.claim_number, 'state', claim.state,
        'reason', claim.revoked_reason, 'kind', claim.settlement_kind, 'disposition', claim.disposition,
        'bytes', claim.settlement_bytes, 'error', claim.settlement_error
      )
      order by claim.step_slug, claim.claim_number
    )
    from pgflow.task_claims claim
    where claim.run_id = run.run_id
  )
"""

MESSAGES = """
  'messages', (
    select jsonb_object_agg(task.step_slug, concat_ws(' ',
      (select case when m.vt <= clock_timestamp() then 'visible' else 'hidden' end
         from pgmq."q_{a}" m where m.msg_id = task.message_id and task.queue_name = '{a}'),
      (select case when m.vt <= clock_timestamp() then 'visible' else 'hidden' end
         from pgmq."q_{b}" m where m.msg_id = task.message_id and task.queue_name = '{b}' and '{a}' <> '{b}'),
      (select 'archived' from pgmq."a_{a}" m where m.msg_id = task.message_id and task.queue_name = '{a}'),
      (select 'archived' from pgmq."a_{b}" m
         where m.msg_id = task.message_id and task.queue_name = '{b}' and '{a}' <> '{b}')
    ))
    from pgflow.step_tasks task
    where task.run_id = run.run_id
  )
"""


def query(queues: tuple[str, str] | None) -> str:
    """The query for the states of runs, ids in an array; without messages when the queues are gone."""
    fields = RUN_FIELDS
    if queues is not None:
        fields += ", " + MESSAGES.format(a=queues[0], b=queues[1])
    return f"""
      select wanted.run_id, jsonb_build_object({fields}) as state
      from unnest(%s::uuid[]) as wanted (run_id)
      join pgflow.runs run using (run_id)
    """


def states(session: Session, queues: tuple[str, str] | None, runs: Iterable[UUID]) -> dict[UUID, State]:
    """The state of each of the runs that is there."""
    return {row["run_id"]: row["state"] for row in session.rows(query(queues), list(runs))}


def anonymous(state: State | None) -> State | None:
    """A state whose claims are told apart by step and number alone."""
    if state is None:
        return None
    claims = [{**claim, "claim": None} for claim in state["claims"] or ()]
    numbers = {claim["claim"]: claim["number"] for claim in state["claims"] or ()}
    tasks = {
        key: {**task, "claim": numbers.get(task["claim"])} for key, task in (state["tasks"] or {}).items()
    }
    return {**state, "claims": claims, "tasks": tasks}
