"""What a message in a flow's queue looks like, and which queue it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core


def test_the_body_of_a_single_task_has_exactly_four_keys(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {"secret": 1})
    message = core.message(run, "first")
    assert message["message"] == {
        "flow_slug": "plain",
        "run_id": str(run),
        "step_slug": "first",
        "task_index": 0,
    }
    assert message["headers"] is None


def test_the_bodies_of_map_tasks_differ_in_the_index_only(core: Core) -> None:
    core.flow("mapped")
    core.map_step("mapped", "each")
    run = core.start("mapped", ["a", "b", "c"])
    bodies = [core.message(run, "each", index)["message"] for index in range(3)]
    assert bodies == [
        {"flow_slug": "mapped", "run_id": str(run), "step_slug": "each", "task_index": index}
        for index in range(3)
    ]


def test_a_retry_and_a_requeue_keep_the_message(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    message = core.task(run, "first")["message_id"]
    core.break_(run, "first")
    assert core.task(run, "first")["message_id"] == message
    core.claim(run, "first")
    core.age(run, "first", 1000)
    assert core.requeue() == 1
    assert core.task(run, "first")["message_id"] == message
    assert core.queued("plain") == [message]


def test_only_reads_count_in_read_ct(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    core.break_(run, "first")
    core.claim(run, "first")
    assert (core.task(run, "first")["attempts_count"], core.message(run, "first")["read_ct"]) == (2, 0)
    core.show("plain")
    core.read("plain")
    core.show("plain")
    core.read("plain")
    assert (core.task(run, "first")["attempts_count"], core.message(run, "first")["read_ct"]) == (2, 2)


def test_two_flows_have_two_queues(core: Core) -> None:
    for slug in ("left", "right"):
        core.flow(slug)
        core.step(slug, "first")
    left, right = core.start("left", {}), core.start("right", {})
    assert core.queued("left") == core.messages(left, "first") == [1]
    assert core.queued("right") == core.messages(right, "first") == [1]
    assert core.message(left, "first")["message"]["run_id"] == str(left)
    assert core.message(right, "first")["message"]["run_id"] == str(right)


def test_a_mixed_case_flow_uses_the_lower_cased_tables_and_keeps_its_spelling(core: Core) -> None:
    core.flow("MixedCase", max_attempts=2)
    core.step("MixedCase", "First")
    core.step("MixedCase", "Second", "First")
    run = core.start("MixedCase", {})
    queue = core.value("select queue_name from pgmq.meta where lower(queue_name) = 'mixedcase'")
    assert queue == ("mixedcase" if core.routed else "MixedCase")
    assert core.message(run, "First")["message"]["flow_slug"] == "MixedCase"
    (message,) = core.read("MixedCase")
    assert len(core.start_tasks("MixedCase", [message])) == 1
    core.fail(run, "First")
    core.do(run, "First", 1)
    core.claim(run, "Second")
    core.age(run, "Second", 1000)
    assert core.requeue() == 1
    core.do(run, "Second", 2)
    assert core.run(run)["output"] == {"Second": 2}
    assert core.queued("mixedcase") == []
    assert core.archived("mixedcase") == core.messages(run, "First", "Second")


def test_a_message_that_is_gone_does_not_disturb_a_callback(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    core.step("plain", "second", "first")
    run = core.start("plain", {})
    core.claim(run, "first")
    core.lose("plain", core.task(run, "first")["message_id"])
    core.complete(run, "first", 1)
    core.claim(run, "second")
    core.lose("plain", core.task(run, "second")["message_id"])
    core.fail(run, "second", "again")
    assert core.task(run, "second")["status"] == "queued"
    assert core.archived("plain") == []


def test_a_missing_queue_rolls_the_calling_statement_back(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    core.step("plain", "second", "first")
    run = core.start("plain", {})
    core.claim(run, "first")
    core.execute("select pgmq.drop_queue('plain')")
    before = core.everything()
    for call in (
        lambda: core.complete(run, "first", 1),
        lambda: core.fail(run, "first"),
        lambda: core.start("plain", {}),
    ):
        with core.error() as caught:
            call()
        assert caught.value.sqlstate == "42P01"
        assert caught.value.diag.message_primary == 'relation "pgmq.q_plain" does not exist'
        assert core.everything() == before


def test_archive_task_message_moves_the_message_and_nothing_else(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    before = core.everything()
    core.execute("select pgflow._archive_task_message(%s, 'first', 0)", run)
    assert core.queued("plain") == []
    assert core.archived("plain") == core.messages(run, "first")
    assert core.everything() == before
    core.execute("select pgflow._archive_task_message(%s, 'first', 0)", run)
    assert core.archived("plain") == core.messages(run, "first")


def test_archive_task_message_ignores_unknown_tasks_and_tasks_without_a_message(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    core.execute("select pgflow._archive_task_message(%s, 'first', 7)", run)
    core.execute("select pgflow._archive_task_message(%s, 'absent', 0)", run)
    core.execute("select pgflow._archive_task_message(gen_random_uuid(), 'first', 0)")
    core.execute("update pgflow.step_tasks set message_id = null where run_id = %s", run)
    core.execute("select pgflow._archive_task_message(%s, 'first', 0)", run)
    assert core.archived("plain") == []
    assert len(core.queued("plain")) == 1


def test_the_archive_keeps_the_body(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    body = core.message(run, "first")["message"]
    core.do(run, "first", 1)
    query = sql.SQL("select message, headers from {}").format(sql.Identifier("pgmq", "a_plain"))
    assert core.connection.execute(query).fetchall() == [{"message": body, "headers": None}]
