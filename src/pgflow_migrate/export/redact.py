"""Placeholders for payloads: of the same JSON shape and size class, so that the copy behaves as the original.

Strings become ``x``, their length in bytes rounded down to a power of two; the digits of a number become 1; a
boolean becomes true; null stays. Keys become letters, because keys are often data too (a map by e-mail
address). Of a message's body four values stay: they say which task it belongs to, and audits compare them.

Nothing gets longer, so that no limit on a size is exceeded that was kept before: but for keys of a byte or
two, in an object with more keys than so many letters and digits can number.

What stays is listed, column by column: of a column that is in no list nothing does.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping

Redaction = Callable[["str | None"], "str | None"]

_TOKEN = re.compile(
    r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|(-?[0-9][0-9.eE+-]*)|(true|false)|([{}\[\]])|[\s,]+|null'
)
_DIGIT = re.compile(r"[0-9]")
_LETTERS = string.ascii_letters + string.digits

# The runtime's own; pgflow._cascade_force_skip_steps() takes whatever its caller says.
_SKIP_REASONS = frozenset({"condition_unmet", "dependency_skipped", "handler_failed"})

# What says which task a message belongs to, in the forms that can match one.
_ADDRESS: Mapping[str, re.Pattern[str]] = {
    "flow_slug": re.compile(r'"[^\s"\\]{1,128}"'),
    "step_slug": re.compile(r'"[^\s"\\]{1,128}"'),
    "run_id": re.compile(r'"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"'),
    "task_index": re.compile(r"-?[0-9]{1,10}(?:\.0+)?"),
}


def text(value: str | None) -> str | None:
    """A text as a placeholder; NULL stays."""
    return None if value is None else "x" * _size_class(len(value.encode()))


def digest(value: str | None) -> str | None:
    """A SHA-256 of a payload: one could try payloads until it fits."""
    return None if value is None else "\\x" + "00" * 32


def json(value: str | None) -> str | None:
    """A JSON document, as PostgreSQL prints it, as a placeholder; NULL stays."""
    return None if value is None else _document(value, {})


def message(value: str | None) -> str | None:
    """The same for a message's body, without what says which task it belongs to."""
    return None if value is None else _document(value, _ADDRESS)


def skip_reason(value: str | None) -> str | None:
    """One that the runtime gives stays."""
    return value if value in _SKIP_REASONS else text(value)


def nothing(value: str | None) -> str | None:
    """For what nobody knows the meaning of."""
    return None


PGFLOW: Mapping[str, Redaction] = {
    "runs.input": json,
    "runs.output": json,
    "step_states.output": json,
    "step_states.error_message": text,
    "step_states.skip_reason": skip_reason,
    "step_tasks.output": json,
    "step_tasks.error_message": text,
    "steps.required_input_pattern": json,
    "steps.forbidden_input_pattern": json,
    "worker_functions.pause_reason": text,
    "run_work.last_error": text,
    "task_claims.settlement_error": text,
    "task_claims.settlement_sha256": digest,
}
"""What of pgflow's tables is replaced."""

KEPT: Mapping[str, tuple[str, ...]] = {
    "pgflow.flows": ("created_at", "flow_slug", "opt_base_delay", "opt_max_attempts", "opt_timeout"),
    "pgflow.steps": (
        *("created_at", "deps_count", "flow_slug", "opt_base_delay", "opt_max_attempts"),
        *("opt_start_delay", "opt_timeout", "queue_name", "step_index", "step_slug", "step_type"),
        *("when_exhausted", "when_unmet"),
    ),
    "pgflow.deps": ("created_at", "dep_slug", "flow_slug", "step_slug"),
    "pgflow.workers": (
        *("deprecated_at", "function_name", "last_heartbeat_at", "queue_name", "started_at"),
        *("stopped_at", "worker_id"),
    ),
    "pgflow.worker_functions": (
        *("created_at", "debounce", "enabled", "function_name", "last_invoked_at", "paused_at"),
        *("start_mode", "updated_at"),
    ),
    "pgflow.runs": (
        *("completed_at", "failed_at", "flow_slug", "remaining_steps", "run_id", "started_at", "status"),
    ),
    "pgflow.run_work": (
        *("attention_at", "attention_reason", "created_at", "definition_sha256", "failure_count"),
        *("flow_slug", "last_error_sqlstate", "last_failed_at", "next_attempt_at"),
        *("processed_generation", "protocol_version", "requested_at", "requested_generation", "run_id"),
        "state",
    ),
    "pgflow.step_states": (
        *("completed_at", "created_at", "failed_at", "flow_slug", "initial_tasks", "remaining_deps"),
        *("remaining_tasks", "run_id", "skipped_at", "started_at", "status", "step_slug"),
    ),
    "pgflow.step_tasks": (
        *("attempts_count", "completed_at", "current_claim_id", "failed_at", "flow_slug"),
        *("last_requeued_at", "last_worker_id", "message_id", "permanently_stalled_at", "queue_name"),
        *("queued_at", "requeued_count", "run_id", "started_at", "status", "step_slug", "task_index"),
    ),
    "pgflow.task_claims": (
        *("claim_id", "claim_number", "claimed_at", "disposition", "lease_expires_at", "max_attempts"),
        *("message_id", "queue_name", "revoked_at", "revoked_reason", "run_id", "settled_at"),
        *("settlement_bytes", "settlement_kind", "state", "step_slug", "task_index", "timeout_seconds"),
        *("when_exhausted", "worker_id"),
    ),
    "pgmq.meta": ("queue_name", "is_partitioned", "is_unlogged", "created_at"),
}
"""What of pgflow's tables stays, and of pgmq.meta: names, ids, states, counts and times."""

_QUEUE: Mapping[tuple[str, str], Redaction | None] = {
    ("message", "jsonb"): message,
    ("headers", "jsonb"): json,
    ("msg_id", "bigint"): None,
    ("read_ct", "integer"): None,
    ("enqueued_at", "timestamp with time zone"): None,
    ("last_read_at", "timestamp with time zone"): None,
    ("archived_at", "timestamp with time zone"): None,
    ("vt", "timestamp with time zone"): None,
}


def of_table(schema: str, table: str, column: str) -> Redaction | None:
    """What replaces the values of a column; None when they stay, :func:`nothing` for an unknown one's."""
    if column in KEPT.get(f"{schema}.{table}", ()):
        return None
    return PGFLOW.get(f"{table}.{column}", nothing) if schema == "pgflow" else nothing


def of_queue(name: str, type_: str) -> Redaction | None:
    """What replaces the values of a queue's column; None when they stay, :func:`nothing` for a stranger's."""
    return _QUEUE.get((name, type_), nothing)


def _size_class(length: int) -> int:
    """Rounded down."""
    return 1 << (length.bit_length() - 1) if length else 0


def _document(document: str, address: Mapping[str, re.Pattern[str]]) -> str:
    """Token by token, because a document may be nested deeper than Python's stack."""
    parts: list[str] = []
    keys = [0]  # how many keys each open object or array has had
    keeps: re.Pattern[str] | None = None
    top = "{"
    for match in _TOKEN.finditer(document):
        quoted, colon, number, boolean, bracket = match.groups()
        if colon:
            keys[-1] += 1
            # Of the body itself, and not of something within it.
            keeps = address.get(quoted[1:-1]) if len(keys) == 2 and top == "{" else None
            parts.append((quoted if keeps else _key(keys[-1], quoted)) + ":")
            continue
        if bracket is not None:
            if bracket in "{[":
                if len(keys) == 1:
                    top = bracket
                keys.append(0)
            else:
                keys.pop()
            parts.append(bracket)
        elif quoted is not None:
            kept = keeps is not None and keeps.fullmatch(quoted)
            parts.append(quoted if kept else f'"{text(quoted[1:-1])}"')
        elif number is not None:
            kept = keeps is not None and keeps.fullmatch(number)
            parts.append(number if kept else _DIGIT.sub("1", number))
        elif boolean is not None:
            parts.append("true")
        else:
            parts.append(match[0])
            continue
        keeps = None
    return "".join(parts)


def _key(number: int, quoted: str) -> str:
    """The number in letters and digits, filled up to the key's size class; unique within its object."""
    length = len(quoted.encode()) - 2
    if not length:
        return quoted
    letters = ""
    while number:
        number, digit = divmod(number - 1, len(_LETTERS))
        letters = _LETTERS[digit] + letters
    # Not letters again: b and its filling must not be another number.
    return f'"{letters:-<{_size_class(length)}}"'
