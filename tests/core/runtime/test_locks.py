"""Which rows are locked, in which order; and that task rows change before their messages do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core, Sessions

RUN = "select 1 from pgflow.runs where run_id = %s for update"
STEP = "select 1 from pgflow.step_states where run_id = %s and step_slug = 'first' for update"


def claimed(core: Core) -> UUID:
    core.flow("plain")
    core.step("plain", "first")
    core.step("plain", "second", "first")
    run = core.start("plain", {})
    core.claim(run, "first")
    return run


def is_locked(core: Core, query: str, *values: object) -> bool:
    """Whether another session holds the row of a ``for update`` query."""
    try:
        core.execute(query + " nowait", *values)
    except psycopg.errors.LockNotAvailable:
        return True
    return False


CALLBACKS: dict[str, Callable[[Core, UUID], Any]] = {
    "complete_task": lambda core, run: core.complete(run, "first", 1),
    "fail_task": lambda core, run: core.fail(run, "first"),
}


@pytest.mark.parametrize("callback", list(CALLBACKS))
def test_a_callback_that_waits_for_the_run_has_not_locked_the_step(
    sessions: Sessions, release: str, callback: str
) -> None:
    holder, caller, looker = sessions(release, 3)
    run = claimed(holder)
    with holder.transaction():
        holder.execute(RUN, run)
        call = caller.in_background(lambda: CALLBACKS[callback](caller, run))
        holder.wait_until_blocked(caller, call)
        assert not is_locked(looker, STEP, run)
    call.result()


@pytest.mark.parametrize("callback", list(CALLBACKS))
def test_a_callback_of_a_failed_run_waits_for_no_lock(
    sessions: Sessions, release: str, callback: str
) -> None:
    holder, caller = sessions(release, 2)
    run = claimed(holder)
    holder.execute("update pgflow.runs set status = 'failed', failed_at = now()")
    caller.execute("set lock_timeout = '5s'")
    with holder.transaction():
        holder.execute(RUN, run)
        holder.execute(STEP, run)
        CALLBACKS[callback](caller, run)
    late = "failed" if callback == "fail_task" and not holder.hardened else "started"
    assert holder.task(run, "first")["status"] == late


@pytest.mark.parametrize("callback", list(CALLBACKS))
def test_a_callback_that_waits_for_the_step_holds_the_run(
    sessions: Sessions, release: str, callback: str
) -> None:
    holder, caller, looker = sessions(release, 3)
    run = claimed(holder)
    with holder.transaction():
        holder.execute(STEP, run)
        call = caller.in_background(lambda: CALLBACKS[callback](caller, run))
        holder.wait_until_blocked(caller, call)
        assert is_locked(looker, RUN, run)
        assert not is_locked(looker, "select 1 from pgflow.step_tasks where run_id = %s for update", run)
    call.result()


def test_claims_and_requeues_take_no_lock_on_run_or_step(sessions: Sessions, release: str) -> None:
    holder, caller = sessions(release, 2)
    run = claimed(holder)
    holder.age(run, "first", 1000)
    caller.execute("set lock_timeout = '5s'")
    with holder.transaction():
        holder.execute(RUN, run)
        holder.execute(STEP, run)
        assert caller.requeue() == 1
        assert len(caller.claim(run, "first")) == 1


def test_ready_steps_are_locked_in_ascending_slug(sessions: Sessions, release: str) -> None:
    holder, caller, looker = sessions(release, 3)
    holder.flow("fan")
    holder.step("fan", "gate")
    for slug in ("cc", "bb", "aa"):
        holder.step("fan", slug, "gate")
    run = holder.start("fan", {})
    holder.execute("update pgflow.step_states set remaining_deps = 0")
    one = "select 1 from pgflow.step_states where run_id = %s and step_slug = %s for update"
    with holder.transaction():
        holder.execute(one, run, "bb")
        call = caller.in_background(lambda: caller.execute("select pgflow.start_ready_steps(%s)", run))
        holder.wait_until_blocked(caller, call)
        assert is_locked(looker, one, run, "aa")
        assert not is_locked(looker, one, run, "cc")
    call.result()
    assert set(holder.states(run).values()) == {"started"}


def watch(core: Core, queue: str) -> None:
    """Note, for each change of a queue row, the status that its task has at that moment."""
    core.execute("create temporary table seen (step_slug text, task_index int, change text, status text)")
    core.execute(
        f"""
        create function pg_temp.look() returns trigger language plpgsql as $$
        begin
          insert into seen
          select task.step_slug, task.task_index, tg_op, task.status
          from pgflow.step_tasks as task
          where task.flow_slug = '{queue}' and task.message_id = old.msg_id;
          return coalesce(new, old);
        end $$"""
    )
    core.execute(
        f"create trigger look before update or delete on pgmq.q_{queue}"
        " for each row execute function pg_temp.look()"
    )


def seen(core: Core, change: str) -> dict[str, str]:
    rows = core.rows("select * from seen where change = %s", change)
    assert len({(row["step_slug"], row["task_index"]) for row in rows}) == len(rows)
    return {f"{row['step_slug']}/{row['task_index']}": row["status"] for row in rows}


def crowd(core: Core, mode: str = "fail") -> UUID:
    """A map with a claimed last attempt (0), a claimed (1) and a queued task (2); another step is queued."""
    core.flow("crowd")
    core.map_step("crowd", "each", max_attempts=1, when_exhausted=mode)
    core.step("crowd", "beside")
    run = core.start("crowd", [1, 2, 3])
    core.claim(run, "each", 0)
    core.claim(run, "each", 1)
    watch(core, "crowd")
    return run


def test_messages_are_sent_before_the_rows_of_their_tasks_are_written(core: Core) -> None:
    core.flow("mapped")
    core.step("mapped", "list")
    core.map_step("mapped", "each", "list")
    run = core.start("mapped", {})
    core.execute("create temporary table tasks_at_send (number bigint)")
    core.execute(
        """
        create function pg_temp.look() returns trigger language plpgsql as $$
        begin
          insert into tasks_at_send
          select count(*) from pgflow.step_tasks as task
          where task.step_slug = new.message ->> 'step_slug';
          return new;
        end $$"""
    )
    core.execute(
        "create trigger look after insert on pgmq.q_mapped for each row execute function pg_temp.look()"
    )
    core.do(run, "list", [1, 2])
    assert [row["number"] for row in core.rows("select number from tasks_at_send")] == [0, 0]


def test_a_completed_task_is_written_before_its_message_is_archived(core: Core) -> None:
    run = crowd(core)
    core.complete(run, "each", 1, 0)
    assert seen(core, "DELETE") == {"each/0": "completed"}


def test_a_retried_task_is_written_before_its_message_is_delayed(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    core.claim(run, "first")
    watch(core, "plain")
    core.fail(run, "first")
    assert seen(core, "UPDATE") == {"first/0": "queued"}


def test_a_requeued_task_is_written_before_its_message_is_shown(core: Core) -> None:
    run = crowd(core)
    core.age(run, "each", 1000, 1)
    assert core.requeue() == 1
    assert seen(core, "UPDATE") == {"each/1": "queued"}


def test_a_claimed_task_is_written_before_its_message_is_hidden(hardened: Core) -> None:
    run = crowd(hardened)
    hardened.claim(run, "each", 2)
    assert seen(hardened, "UPDATE") == {"each/2": "started"}


def test_a_failure_cancels_tasks_before_it_archives_their_messages(hardened: Core) -> None:
    run = crowd(hardened)
    hardened.fail(run, "each", "the end", 0)
    assert seen(hardened, "DELETE") == {
        "each/0": "failed",
        "each/1": "cancelled",
        "each/2": "cancelled",
        "beside/0": "cancelled",
    }


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_a_skip_by_failure_skips_tasks_before_it_archives_their_messages(hardened: Core, mode: str) -> None:
    run = crowd(hardened, mode)
    hardened.fail(run, "each", "the end", 0)
    assert seen(hardened, "DELETE") == {"each/0": "failed", "each/1": "skipped", "each/2": "skipped"}


def test_a_forced_skip_skips_tasks_before_it_archives_their_messages(hardened: Core) -> None:
    run = crowd(hardened)
    hardened.execute("select pgflow._cascade_force_skip_steps(%s, 'each', 'by_hand')", run)
    assert seen(hardened, "DELETE") == {"each/0": "skipped", "each/1": "skipped", "each/2": "skipped"}


def test_a_failing_condition_cancels_tasks_before_it_archives_their_messages(hardened: Core) -> None:
    hardened.flow("strict")
    hardened.step("strict", "first")
    hardened.step("strict", "beside")
    hardened.step("strict", "after", "first", required_input_pattern={"never": "there"}, when_unmet="fail")
    run = hardened.start("strict", {})
    hardened.claim(run, "first")
    watch(hardened, "strict")
    hardened.complete(run, "first", 1)
    assert seen(hardened, "DELETE") == {"first/0": "completed", "beside/0": "cancelled"}


def test_a_type_violation_ends_tasks_before_it_archives_their_messages(hardened: Core) -> None:
    hardened.flow("typed")
    hardened.step("typed", "list")
    hardened.step("typed", "beside")
    hardened.map_step("typed", "each", "list")
    run = hardened.start("typed", {})
    hardened.claim(run, "list")
    watch(hardened, "typed")
    hardened.complete(run, "list", 1)
    assert seen(hardened, "DELETE") == {"list/0": "failed", "beside/0": "cancelled"}


def test_at_0_15_0_messages_go_before_the_rows_of_siblings_change(unhardened: Core) -> None:
    run = crowd(unhardened)
    unhardened.fail(run, "each", "the end", 0)
    assert seen(unhardened, "DELETE") == {
        "each/0": "failed",
        "each/1": "started",
        "each/2": "queued",
        "beside/0": "queued",
    }
