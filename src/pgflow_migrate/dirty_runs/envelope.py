"""Which flows protocol 2 supports: the database's judgement, for definitions that a worker has."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pgflow_migrate.dirty_runs.limits import limit
from pgflow_migrate.worker.flow import Flow

# What create_flow() stores for an option that is not given.
_MAX_ATTEMPTS = 3
_TIMEOUT = 60

_Definition = dict[str, Any]


def faults(flow: Flow) -> tuple[str, ...]:
    """What keeps a flow outside the envelope, by the names that ``start_flow_v2`` rejects it with.

    Steps are taken to use the flow's own queue, as they do when they are compiled. Of a flow with too many
    steps only the first three are looked at further, as in the database.

    Args:
        flow: a definition that a worker has.

    Returns:
        Names in a fixed order; empty when protocol 2 can run it.
    """
    definition = _definition(flow)
    steps, edges = definition["steps"], definition["edges"]
    sized = (len(steps), len(edges)) == (limit("steps"), limit("edges"))

    def some(is_wrong: Callable[[dict[str, Any]], bool]) -> bool:
        return any(is_wrong(step) for step in steps)

    judged = {
        "step_count": len(steps) != limit("steps"),
        "edge_count": len(edges) != limit("edges"),
        "map_step": some(lambda step: step["type"] != "single"),
        "condition": some(lambda step: bool(step["condition"])),
        "when_exhausted": some(lambda step: step["whenExhausted"] != "fail"),
        "max_attempts": some(lambda step: step["maxAttempts"] != limit("max_attempts")),
        "timeout": some(
            lambda step: not limit("timeout_seconds_min") <= step["timeout"] <= limit("timeout_seconds_max")
        ),
        "start_delay": some(lambda step: not 0 <= step["startDelay"] <= limit("start_delay_seconds_max")),
        "definition_bytes": sized and _size(definition) > limit("definition_bytes"),
    }
    return tuple(name for name, is_there in judged.items() if is_there)


def _definition(flow: Flow) -> _Definition:
    """The definition as the database identifies it, at most one step beyond the envelope."""
    return {
        "flow": flow.slug,
        "steps": [
            {
                "slug": step.slug,
                "index": index,
                "type": step.step_type,
                "queue": flow.queue_name,
                "maxAttempts": _first(step.max_attempts, flow.max_attempts, _MAX_ATTEMPTS),
                "timeout": _first(step.timeout, flow.timeout, _TIMEOUT),
                "startDelay": _first(step.start_delay, 0),
                "whenExhausted": step.when_exhausted,
                "condition": step.if_ is not None or step.if_not is not None,
            }
            for index, step in enumerate(flow.steps[: limit("steps") + 1])
        ],
        "edges": [[parent, step.slug] for step in flow.steps for parent in step.depends_on],
    }


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _size(definition: _Definition) -> int:
    """Bytes of its canonical JSON: keys in any order have as many; slugs are ASCII and numbers whole."""
    return len(json.dumps(definition))
