"""Survivors that nothing can kill, or that nothing should: each with its reason."""

from __future__ import annotations

_CANONICAL = "src/pgflow_migrate/canonical_json.py"
_REPORTER = "src/pgflow_migrate/dirty_runs/reporter.py"
_JUDGE = "alembic/sql/dirty_runs/functions/_judge_messages.sql"

_SHORTCUT = (
    "a shortcut: what it lets through is refused with the same words, after a conversion that takes long"
)
_INSTANT = "they differ at one instant of the clock, and nobody can call at it"

EXPLAINED: tuple[tuple[str, str, str, str], ...] = (
    (
        _CANONICAL,
        "if value.bit_length() > 4 * _MAX_WHOLE_DIGITS:",
        "if value.bit_length() >= 4 * _MAX_WHOLE_DIGITS:",
        _SHORTCUT,
    ),
    (
        _CANONICAL,
        "if value.bit_length() > 4 * _MAX_WHOLE_DIGITS:",
        "if value.bit_length() > 5 * _MAX_WHOLE_DIGITS:",
        _SHORTCUT,
    ),
    (
        _CANONICAL,
        "if len(digits) > 10 or int(digits) > _MAX_EXPONENT:",
        "if len(digits) > 11 or int(digits) > _MAX_EXPONENT:",
        "a shortcut: a number of eleven digits is above the limit itself",
    ),
    (_CANONICAL, "break", "continue", "no token follows the one that says that the text is over"),
    (_REPORTER, "if time.monotonic() >= end:", "if time.monotonic() > end:", _INSTANT),
    (
        _JUDGE,
        "case when pace.recovery_at > clock_timestamp()",
        "case when pace.recovery_at >= clock_timestamp()",
        _INSTANT,
    ),
)
"""File, the line as it is, as it becomes, and why no test tells them apart."""
