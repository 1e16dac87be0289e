"""Messages without a task: the foreign are archived, those that may be pgflow's are kept for a person."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core

KEYS = ("flow_slug", "run_id", "step_slug", "task_index")
SOMEBODY = "99999999-9999-9999-9999-999999999999"


@pytest.fixture
def run(routed: Core) -> UUID:
    """A run with one queued task, message 1."""
    routed.flow("plain")
    routed.step("plain", "first")
    routed.worker()
    return routed.start("plain", {})


def judge(core: Core, body: object) -> str:
    """The verdict on a message with this body that no task owns."""
    message = core.value(
        "select pgmq.send('plain', %s::jsonb)",
        body if body is None or isinstance(body, Jsonb) else Jsonb(body),
    )
    found = core.claim_tasks("plain", "plain", [message])
    if found["outcome"] == "claimed":
        assert (found["foreign"], core.archived("plain")[-1:]) == ([str(message)], [message])
        return "foreign"
    (named,) = found["messages"]
    assert (named["msg_id"], found["message_count"]) == (str(message), 1)
    assert message in core.queued("plain")
    return str(named["reason"])


@pytest.mark.parametrize(
    "body",
    [
        None,  # SQL NULL
        Jsonb(None),
        {},
        [],
        [[]],
        "",
        "flow_slug",
        "the flow_slug of it",
        0,
        False,
        {"slug": "plain", "run": SOMEBODY, "FLOW_SLUG": 1, "run_ids": [], "task index": 0},
        {"message": "a value may say run_id"},
        [{"n": 1}, "step_slug", None],
        {"$.flow_slug": 1, "flow-slug": 1, " run_id": 1, "my_run_id": 1},
        {"note": "see the run_id: 5 in the log", "flow": "task_index : 0"},
        'it said run_id: "5"',
    ],
)
def test_a_body_without_any_key_of_an_address_is_foreign(routed: Core, run: UUID, body: object) -> None:
    assert judge(routed, body) == "foreign"


@pytest.mark.parametrize("value", ["plain", "", 0, -1, Jsonb(None), [], {}, True, "x" * 10_000])
@pytest.mark.parametrize("key", KEYS)
def test_each_key_of_an_address_alone_is_reason_for_doubt(
    routed: Core, run: UUID, key: str, value: object
) -> None:
    body = {key: value.obj if isinstance(value, Jsonb) else value}
    assert judge(routed, body) == "missing_task"


@pytest.mark.parametrize("key", KEYS)
def test_a_key_at_any_depth_or_in_an_encoded_text_is_reason_for_doubt(
    routed: Core, run: UUID, key: str
) -> None:
    assert judge(routed, [{key: 1}]) == "missing_task"
    assert judge(routed, ["x", 1, {"other": 1, key: None}]) == "missing_task"
    assert judge(routed, json.dumps({key: "encoded twice"})) == "missing_task"
    assert judge(routed, json.dumps([{"a": {key: 1}}], indent=2)) == "missing_task"
    assert judge(routed, json.dumps(json.dumps({key: "thrice"}))) == "missing_task"
    assert judge(routed, {"payload": {key: 1}}) == "missing_task"
    assert judge(routed, {"a": [[{"b": {"c": {key: 1}}}]]}) == "missing_task"
    assert judge(routed, {"payload": json.dumps({key: 1})}) == "missing_task"


@pytest.mark.parametrize(
    "body",
    [
        {"flow_slug": "plain", "run_id": SOMEBODY, "step_slug": "first", "task_index": 0},
        {"flow_slug": "other", "run_id": SOMEBODY, "step_slug": "x", "task_index": 9},
        {"flow_slug": "plain", "run_id": "not a uuid", "step_slug": "first", "task_index": 0},
        {"flow_slug": "plain", "run_id": {"a": 1}, "step_slug": ["first"], "task_index": "0x"},
        {"run_id": "'; drop table pgflow.runs; --"},
        {"run_id": "\n" + SOMEBODY, "step_slug": "first", "task_index": 10**400},
    ],
)
def test_an_address_without_its_task_is_a_missing_task(routed: Core, run: UUID, body: object) -> None:
    assert judge(routed, body) == "missing_task"


def test_an_address_of_a_task_that_has_another_message_is_a_wrong_route(routed: Core, run: UUID) -> None:
    address = {"flow_slug": "plain", "run_id": str(run), "step_slug": "first", "task_index": 0}
    assert judge(routed, address) == "wrong_route"
    assert judge(routed, address | {"run_id": str(run).upper(), "more": 1}) == "wrong_route"
    assert judge(routed, address | {"task_index": 1}) == "missing_task"
    assert judge(routed, address | {"step_slug": "First"}) == "missing_task"
    # Also when that task has no message at all, or is over.
    routed.execute("update pgflow.step_tasks set message_id = null")
    assert judge(routed, address) == "wrong_route"
    routed.execute("update pgflow.step_tasks set status = 'completed', completed_at = now()")
    assert judge(routed, address) == "wrong_route"


def test_a_task_of_another_queue_is_a_wrong_route_whatever_queue_its_copy_is_in(
    routed: Core, run: UUID
) -> None:
    routed.flow("other")
    routed.step("other", "first")
    other = routed.start("other", {})
    assert routed.task(other, "first")["message_id"] == 1
    assert judge(routed, {"run_id": str(other), "step_slug": "first", "task_index": 0}) == "wrong_route"


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
)
ENCODED = re.compile("|".join(KEYS))


def clean(body: object) -> bool:
    """No key of an address anywhere, and no text that names one."""
    if isinstance(body, dict):
        return not set(KEYS) & set(body) and all(clean(value) for value in body.values())
    if isinstance(body, list):
        return all(clean(value) for value in body)
    return not (isinstance(body, str) and ENCODED.search(body))


BODIES: st.SearchStrategy[Any] = st.recursive(
    LEAVES | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.just("slug"), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies=st.lists(BODIES.filter(clean), min_size=1, max_size=12))
def test_arbitrary_bodies_without_the_keys_never_stop_a_batch(
    routed: Core, run: UUID, bodies: list[Any]
) -> None:
    with routed.connection.transaction(force_rollback=True):
        sent = [routed.value("select pgmq.send('plain', %s::jsonb)", Jsonb(body)) for body in bodies]
        found = routed.claim_tasks("plain", "plain", [1, *sent])
        assert [task["run_id"] for task in found["tasks"]] == [str(run)]
        assert found["foreign"] == [str(message) for message in sent]
        assert (routed.queued("plain"), routed.archived("plain")) == ([1], sent)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(TEXT, BODIES, max_size=4), key=st.sampled_from(KEYS), value=BODIES)
def test_arbitrary_bodies_with_one_of_the_keys_are_never_archived(
    routed: Core, run: UUID, body: dict[str, Any], key: str, value: object
) -> None:
    with routed.connection.transaction(force_rollback=True):
        for shape in (body | {key: value}, [body | {key: value}]):
            assert judge(routed, shape) == "missing_task"
        assert routed.archived("plain") == []
        assert routed.tasks(run) == {"first/0": "queued"}
