"""What the claim boundary answers, typed. Message ids are decimal digits in text from end to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ClaimedTask:
    """A task that is now ours to do.

    Attributes:
        flow_slug: the flow.
        run_id: the run, a UUID in text form.
        step_slug: the step.
        task_index: position in a map step's array; 0 in a single step.
        attempt: which attempt at the task this is, counted from 1.
        queue_name: the queue of its message.
        msg_id: its message, in decimal digits.
        input: a map step's element, or an object with the outputs of the dependencies.
        flow_input: the run's input for a root single step, else None.
    """

    flow_slug: str
    run_id: str
    step_slug: str
    task_index: int
    attempt: int
    queue_name: str
    msg_id: str
    input: Any
    flow_input: Any

    def __str__(self) -> str:
        return (
            f"task {self.flow_slug}/{self.step_slug}/{self.task_index} of run {self.run_id}"
            f" (queue {self.queue_name}, message {self.msg_id})"
        )


@dataclass(frozen=True)
class Claimed:
    """The batch was in order.

    Attributes:
        queue_name: the queue.
        tasks: what was claimed.
        deferred: messages of tasks that somebody works on.
        archived: messages of tasks that have ended.
        busy: messages whose task another session holds just now; they are visible again after the time for
            which they were read.
        foreign: messages that were archived because no task of pgflow is theirs.
    """

    queue_name: str
    tasks: tuple[ClaimedTask, ...]
    deferred: tuple[str, ...]
    archived: tuple[str, ...]
    busy: tuple[str, ...]
    foreign: tuple[str, ...]


@dataclass(frozen=True)
class RefusedMessage:
    """A message that nobody can work on: ``missing_task``, ``wrong_route`` or ``inconsistent_task``."""

    msg_id: str
    reason: str


@dataclass(frozen=True)
class Fatal:
    """The batch holds pgflow work that this worker cannot do. Nothing was claimed; the worker has to stop.

    Attributes:
        queue_name: the queue.
        reason: one sentence that names the messages by their ids, without anything of their bodies.
        messages: the messages, 20 at most.
        message_count: how many there are.
        paused_function: the function that is not started any more until somebody resumes it, or None.
    """

    queue_name: str
    reason: str
    messages: tuple[RefusedMessage, ...]
    message_count: int
    paused_function: str | None


def parse(answer: Mapping[str, Any]) -> Claimed | Fatal:
    """Read the document that ``pgflow.claim_tasks`` returns.

    Raises:
        KeyError: it lacks a key.
        ValueError: the outcome is unknown.
    """
    if answer["outcome"] == "fatal":
        return Fatal(
            queue_name=answer["queue_name"],
            reason=answer["reason"],
            messages=tuple(RefusedMessage(m["msg_id"], m["reason"]) for m in answer["messages"]),
            message_count=answer["message_count"],
            paused_function=answer["paused_function"],
        )
    if answer["outcome"] != "claimed":
        raise ValueError(
            f"pgflow.claim_tasks answered {answer['outcome']!r}, which this worker does not know."
        )
    return Claimed(
        queue_name=answer["queue_name"],
        tasks=tuple(_task(task) for task in answer["tasks"]),
        deferred=tuple(answer["deferred"]),
        archived=tuple(answer["archived"]),
        busy=tuple(answer["busy"]),
        foreign=tuple(answer["foreign"]),
    )


def _task(task: Mapping[str, Any]) -> ClaimedTask:
    return ClaimedTask(
        flow_slug=task["flow_slug"],
        run_id=task["run_id"],
        step_slug=task["step_slug"],
        task_index=task["task_index"],
        attempt=task["attempt"],
        queue_name=task["queue_name"],
        msg_id=task["msg_id"],
        input=task["input"],
        flow_input=task["flow_input"],
    )
