"""Survivors that nothing can kill, or that nothing should: each with its reason."""

from __future__ import annotations

_CANONICAL = "src/pgflow_migrate/canonical_json.py"
_REPORTER = "src/pgflow_migrate/dirty_runs/reporter.py"
_FAILURES = "src/pgflow_migrate/upgrade/failures.py"
_SLUG = "alembic/sql/queue_identity/functions/is_valid_slug.sql"
_RULES = "alembic/sql/queue_identity/slug_rules.sql"
_FENCE = "alembic/sql/queue_identity/fence.sql"
_BOUNDED = "alembic/sql/dirty_runs/functions/_v2_bounded_error.sql"
_AUDIT_RUN = "src/pgflow_migrate/audit/run.py"
_SESSION = "src/pgflow_migrate/upgrade/session.py"
_OUTLOOK = "src/pgflow_migrate/audit/outlook.py"
_JUDGE = "alembic/sql/dirty_runs/functions/_judge_messages.sql"

_SHORTCUT = (
    "a shortcut: what it lets through is refused with the same words, after a conversion that takes long"
)
_TUNING = "another wait is as right; it shows in the timing alone"
_FOUR = "4096 bytes less 2, 3 or 4 are as many whole groups of four"
_AGAIN = "it asks once more for locks that it has"
_ASCII = "slugs are ASCII, where upper() and lower() hold the same texts apart"
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
        _FAILURES,
        'role, owner = others[0]["role"], others[0]["owner"]',
        'role, owner = others[ -1]["role"], others[0]["owner"]',
        "every row has the same role, that of the session",
    ),
    (
        _SLUG,
        "and length(slug) between 1 and 128",
        "and length(slug) between 0 and 128",
        "the pattern asks for a letter, too",
    ),
    (
        _BOUNDED,
        "else left(p_error, (kept.bytes - 3) / 4) || '...'",
        "else left(p_error, (kept.bytes - 4) / 4) || '...'",
        _FOUR,
    ),
    (
        _BOUNDED,
        "else left(p_error, (kept.bytes - 3) / 4) || '...'",
        "else left(p_error, (kept.bytes - 2) / 4) || '...'",
        _FOUR,
    ),
    (
        _FENCE,
        "brief constant interval := current_setting('deadlock_timeout')::interval / 2;",
        "brief constant interval := current_setting('deadlock_timeout')::interval / 3;",
        _TUNING,
    ),
    (
        _FENCE,
        "brief constant interval := current_setting('deadlock_timeout')::interval / 2;",
        "brief constant interval := current_setting('deadlock_timeout')::interval / 1;",
        _TUNING,
    ),
    (
        _FENCE,
        "for stage in 1 .. 2 loop",
        "for stage in 0 .. 2 loop",
        _AGAIN,
    ),
    (
        _FENCE,
        "for stage in 1 .. 2 loop",
        "for stage in 1 .. 3 loop",
        _AGAIN,
    ),
    (
        _AUDIT_RUN,
        "facts = cursor.execute(_FACTS.encode()).fetchall()[0]",
        "facts = cursor.execute(_FACTS.encode()).fetchall()[ -1]",
        "there is exactly one row",
    ),
    (
        _FENCE,
        "left_ms := 1000 * extract(epoch from asked_at + brief - clock_timestamp());",
        "left_ms := 1001 * extract(epoch from asked_at + brief - clock_timestamp());",
        _TUNING,
    ),
    (
        _FENCE,
        "left_ms := 1000 * extract(epoch from asked_at + brief - clock_timestamp());",
        "left_ms := 999 * extract(epoch from asked_at + brief - clock_timestamp());",
        _TUNING,
    ),
    (
        _FENCE,
        "left_ms := 1000 * extract(epoch from asked_at + brief - clock_timestamp());",
        "left_ms := 1000 * extract(epoch from asked_at - brief - clock_timestamp());",
        "then all but the first table are asked for with NOWAIT at once: more tries, and the same locks",
    ),
    (
        _FENCE,
        "perform set_config('lock_timeout', greatest(left_ms, 1)::text, true);",
        "perform set_config('lock_timeout', greatest(left_ms, 2)::text, true);",
        _TUNING,
    ),
    (
        _SESSION,
        "standby, read_only, read_committed, default = cursor.execute(_MODES).fetchall()[0]",
        "standby, read_only, read_committed, default = cursor.execute(_MODES).fetchall()[ -1]",
        "there is exactly one row",
    ),
    (
        _FENCE,
        "perform set_config('lock_timeout', greatest(left_ms, 1)::text, true);",
        "perform set_config('lock_timeout', greatest(left_ms, 0)::text, true);",
        "with nothing left NOWAIT is asked for, which knows no timeout",
    ),
    (
        _FENCE,
        "'lock table %s in %s mode %s', target, mode, case when left_ms <= 0 then 'nowait' end",
        "'lock table %s in %s mode %s', target, mode, case when left_ms > 0 then 'nowait' end",
        _TUNING,
    ),
    (
        _FENCE,
        "'lock table %s in %s mode %s', target, mode, case when left_ms <= 0 then 'nowait' end",
        "'lock table %s in %s mode %s', target, mode, case when left_ms <= 1 then 'nowait' end",
        _TUNING,
    ),
    (
        _OUTLOOK,
        "skipped, cancelled = connection.cursor(row_factory=tuple_row).execute(_REPAIRED).fetchall()[0]",
        "skipped, cancelled = connection.cursor(row_factory=tuple_row).execute(_REPAIRED).fetchall()[ -1]",
        "there is exactly one row",
    ),
    (
        _FENCE,
        "and a.pid <> pg_backend_pid()",
        "",
        "our own session is active, and not a pg_dump",
    ),
    (
        "src/pgflow_migrate/audit/render/words.py",
        '-len(group.findings) if code.severity != "info" else 0,',
        '-len(group.findings) if code.severity != "info" else 1,',
        "any number will do that is the same for all of them",
    ),
    (
        "src/pgflow_migrate/releases/identify.py",
        'raise FileNotFoundError("the installation has no snapshot of any release")',
        "pass",
        "a wheel has the snapshots, which tests/test_wheel.py sees to",
    ),
    (
        _FENCE,
        "'lock table %s in %s mode %s', target, mode, case when left_ms <= 0 then 'nowait' end",
        "'lock table %s in %s mode %s', target, mode, case when left_ms < 0 then 'nowait' end",
        _TUNING,
    ),
    (
        _RULES,
        "create unique index flows_slug_case_insensitive_key on pgflow.flows (lower(flow_slug));",
        "create unique index flows_slug_case_insensitive_key on pgflow.flows (upper(flow_slug));",
        _ASCII,
    ),
    (
        _RULES,
        "create unique index steps_slug_case_insensitive_key on pgflow.steps (flow_slug, lower(step_slug));",
        "create unique index steps_slug_case_insensitive_key on pgflow.steps (flow_slug, upper(step_slug));",
        _ASCII,
    ),
    (
        _JUDGE,
        "if judged_count < cardinality(p_msg_ids) then",
        "if judged_count <= cardinality(p_msg_ids) then",
        "a shortcut: when every message has a task the query behind it finds none without one",
    ),
    (
        _JUDGE,
        "case when pace.recovery_at > clock_timestamp()",
        "case when pace.recovery_at >= clock_timestamp()",
        _INSTANT,
    ),
)
"""File, the line as it is, as it becomes, and why no test tells them apart."""
