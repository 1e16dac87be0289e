"""Every number of the contract, with its unit and why it is this one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A number that is enforced.

    Attributes:
        name: the key in ``pgflow._v2_limits()``, or the name of a constant of the reporter.
        value: in ``unit``.
        unit: bytes (of canonical JSON or of UTF-8 text), seconds, or what is counted.
        why: why this number.
        enforced: "sql" or "worker".
    """

    name: str
    value: int
    unit: str
    why: str
    enforced: str = "sql"


CONTRACT_VERSION = 1
PROTOCOL_VERSION = 2

_STEPS = 2
_CLAIMS_PER_TASK = 2
_RESULT_BYTES = 65_536
_SLUG_BYTES = 128
_ERROR_BYTES = 4_096
_SHA256_BYTES = 32
# {"<slug>": <result>}
_RUN_OUTPUT_BYTES = len('{"": }') + _SLUG_BYTES + _RESULT_BYTES
_SETTLEMENT_BYTES = _ERROR_BYTES + _SHA256_BYTES
# run and work; flow, two steps and an edge; two states; two tasks
_EXAMINED_ROWS = 2 + 4 + 2 + 2

LIMITS: tuple[Limit, ...] = (
    Limit("steps", _STEPS, "steps", "A and B: the smallest graph with a dependency."),
    Limit("edges", 1, "edges", "A → B."),
    Limit("tasks", 2, "tasks", "One for each step: there are no maps."),
    Limit("max_attempts", 1, "attempts", "The first failure of a handler is the last: no retry policy yet."),
    Limit(
        "definition_bytes",
        768,
        "bytes",
        "Two steps with slugs of ordinary length, and no more to read or hash.",
    ),
    Limit("input_bytes", _RESULT_BYTES, "bytes", "Read again by each claim of A; as large as a result."),
    Limit(
        "result_bytes",
        _RESULT_BYTES,
        "bytes",
        "Larger results belong in a store, with a reference as the result.",
    ),
    Limit(
        "run_output_bytes",
        _RUN_OUTPUT_BYTES,
        "bytes",
        f"The one leaf's result under a slug of at most {_SLUG_BYTES} bytes.",
    ),
    Limit(
        "error_bytes",
        _ERROR_BYTES,
        "bytes",
        "A message and the top of a stack; the rest is cut, not refused.",
    ),
    Limit(
        "settlement_bytes",
        _SETTLEMENT_BYTES,
        "bytes",
        "What a claim keeps of its settlement: a SHA-256 and an error text. The payload is not kept twice.",
    ),
    Limit("timeout_seconds_min", 1, "seconds", "As every step's timeout."),
    Limit("timeout_seconds_max", 3_600, "seconds", "A lease that a person can wait for."),
    Limit("start_delay_seconds_max", 3_600, "seconds", "As the timeout; the minimum is 0."),
    Limit("lease_grace_seconds", 30, "seconds", "Between timeout and recovery, as in protocol 1."),
    Limit("message_ids_per_call", 1, "ids", "One task a call; two equal ids are two."),
    Limit(
        "claims_per_task",
        _CLAIMS_PER_TASK,
        "claims",
        "The first and one takeover: enough to show that fencing holds.",
    ),
    Limit(
        "transitions_per_chunk",
        1,
        "transitions",
        "So that every commit between two transitions can be tested.",
    ),
    Limit(
        "examined_rows_per_chunk",
        _EXAMINED_ROWS,
        "rows",
        "Run, work, flow, 2 steps, edge, 2 states, 2 tasks.",
    ),
    Limit("candidate_rows", 16, "rows", "Due runs looked at before a processor says that all are busy."),
    Limit(
        "generation_max", 2**53 - 1, "generations", "Exact in every JSON reader; far from where bigint wraps."
    ),
    Limit("backoff_seconds", 1, "seconds", "Doubled with each failed chunk: 1, 2, 4, 8."),
    Limit("attention_failures", 5, "chunks", "After as many failed chunks in a row a person is asked."),
    Limit(
        "replay_horizon_seconds",
        86_400,
        "seconds",
        "After a run's end: longer than any executor goes on reporting.",
    ),
    Limit("report_attempts", 5, "attempts", "Of one acknowledgement.", "worker"),
    Limit(
        "report_deadline_seconds",
        10,
        "seconds",
        "For all attempts together: SQL in flight, delays between them, and shutdown.",
        "worker",
    ),
)

_BY_NAME = {limit.name: limit.value for limit in LIMITS}


def limit(name: str) -> int:
    """The value of a limit, in its own unit.

    Args:
        name: as in :data:`LIMITS`.

    Raises:
        KeyError: there is none of that name.
    """
    return _BY_NAME[name]


def retained_bytes() -> int:
    """The most that a run keeps of inputs, results, errors and settlements, in bytes.

    Its input; each result in its task and in its step's state; the run's output; the evidence of every claim;
    the error of a failed step in its state and task; the last error of its work row.
    """
    claims = _STEPS * _CLAIMS_PER_TASK
    return (
        limit("input_bytes")
        + 2 * _STEPS * limit("result_bytes")
        + limit("run_output_bytes")
        + claims * limit("settlement_bytes")
        + 3 * limit("error_bytes")
    )
