"""Survivors that nothing can kill, or that nothing should: each with its reason."""

from __future__ import annotations

from typing import NamedTuple

from tests.mutation import explained_audit_sql

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
_QUEUE_FAULTS = "alembic/sql/queue_identity/functions/_queue_faults.sql"
_JUDGE = "alembic/sql/dirty_runs/functions/_judge_messages.sql"

_SHORTCUT = (
    "a shortcut: what it lets through is refused with the same words, after a conversion that takes long"
)
_REST = "how long the fence rests between two tries, holding nothing, is not tested"
_TUNING = "another wait is as right; it shows in the timing alone"
_FOUR = "4096 bytes less 2, 3 or 4 are as many whole groups of four"
_AGAIN = "it asks once more for locks that it has"
_ASCII = "slugs are ASCII, where upper() and lower() hold the same texts apart"
_ONCE = "each sentence can come but once: it has the names of the relation and the column"
_ONE_RECORD = "a chain without branches records one revision"
_INSTANT = "they differ at one instant of the clock, and nobody can call at it"


class Explained(NamedTuple):
    """A survivor.

    Attributes:
        path: the file.
        before: the line as it is.
        after: as it becomes; empty when it goes.
        reason: why no test tells them apart.
        nth: which of the file's lines that read so, from 1; 0 is every one.
    """

    path: str
    before: str
    after: str
    reason: str
    nth: int = 0

    def tells(self, path: str, before: str, after: str, nth: int) -> bool:
        """Whether this is the reason of that survivor."""
        return (self.path, self.before, self.after) == (path, before, after) and self.nth in (0, nth)


EXPLAINED: tuple[Explained, ...] = (
    Explained(
        _CANONICAL,
        "if value.bit_length() > 4 * _MAX_WHOLE_DIGITS:",
        "if value.bit_length() >= 4 * _MAX_WHOLE_DIGITS:",
        _SHORTCUT,
    ),
    Explained(
        _CANONICAL,
        "if value.bit_length() > 4 * _MAX_WHOLE_DIGITS:",
        "if value.bit_length() > 5 * _MAX_WHOLE_DIGITS:",
        _SHORTCUT,
    ),
    Explained(
        _CANONICAL,
        "if len(digits) > 10 or int(digits) > _MAX_EXPONENT:",
        "if len(digits) > 11 or int(digits) > _MAX_EXPONENT:",
        "a shortcut: a number of eleven digits is above the limit itself",
    ),
    Explained(_CANONICAL, "break", "continue", "no token follows the one that says that the text is over"),
    Explained(_REPORTER, "if time.monotonic() >= end:", "if time.monotonic() > end:", _INSTANT),
    Explained(
        _FAILURES,
        'role, owner = others[0]["role"], others[0]["owner"]',
        'role, owner = others[ -1]["role"], others[0]["owner"]',
        "every row has the same role, that of the session",
    ),
    Explained(
        _SLUG,
        "and length(slug) between 1 and 128",
        "and length(slug) between 0 and 128",
        "the pattern asks for a letter, too",
    ),
    Explained(
        _BOUNDED,
        "else left(p_error, (kept.bytes - 3) / 4) || '...'",
        "else left(p_error, (kept.bytes - 4) / 4) || '...'",
        _FOUR,
    ),
    Explained(
        _BOUNDED,
        "else left(p_error, (kept.bytes - 3) / 4) || '...'",
        "else left(p_error, (kept.bytes - 2) / 4) || '...'",
        _FOUR,
    ),
    Explained(
        _FENCE,
        "brief constant interval := current_setting('deadlock_timeout')::interval / 2;",
        "brief constant interval := current_setting('deadlock_timeout')::interval / 3;",
        _TUNING,
    ),
    Explained(
        _FENCE,
        "brief constant interval := current_setting('deadlock_timeout')::interval / 2;",
        "brief constant interval := current_setting('deadlock_timeout')::interval / 1;",
        _TUNING,
    ),
    Explained(
        _FENCE,
        "perform pg_sleep(0.1 + 0.2 * random());",
        "perform pg_sleep(0.1 - 0.2 * random());",
        _REST,
    ),
    Explained(
        _FENCE,
        "perform pg_sleep(0.1 + 0.2 * random());",
        "perform pg_sleep(0.1 + 0.2 / random());",
        _REST,
    ),
    Explained(
        _FENCE,
        "for stage in 1 .. 2 loop",
        "for stage in 0 .. 2 loop",
        _AGAIN,
    ),
    Explained(
        _FENCE,
        "for stage in 1 .. 2 loop",
        "for stage in 1 .. 3 loop",
        _AGAIN,
    ),
    Explained(
        "src/pgflow_migrate/audit/refusal.py",
        "if TYPE_CHECKING:",
        "if not TYPE_CHECKING:",
        "it imports what is loaded anyway by whoever has an error of psycopg's to give",
    ),
    Explained(
        _AUDIT_RUN,
        "facts = cursor.execute(_FACTS.encode()).fetchall()[0]",
        "facts = cursor.execute(_FACTS.encode()).fetchall()[ -1]",
        "there is exactly one row",
    ),
    Explained(
        _FENCE,
        "left_ms := 1000 * extract(epoch from asked_at + brief - clock_timestamp());",
        "left_ms := 1001 * extract(epoch from asked_at + brief - clock_timestamp());",
        _TUNING,
    ),
    Explained(
        _FENCE,
        "left_ms := 1000 * extract(epoch from asked_at + brief - clock_timestamp());",
        "left_ms := 999 * extract(epoch from asked_at + brief - clock_timestamp());",
        _TUNING,
    ),
    Explained(
        _FENCE,
        "left_ms := 1000 * extract(epoch from asked_at + brief - clock_timestamp());",
        "left_ms := 1000 * extract(epoch from asked_at - brief - clock_timestamp());",
        "then all but the first table are asked for with NOWAIT at once: more tries, and the same locks",
    ),
    Explained(
        _FENCE,
        "perform set_config('lock_timeout', greatest(left_ms, 1)::text, true);",
        "perform set_config('lock_timeout', greatest(left_ms, 2)::text, true);",
        _TUNING,
    ),
    Explained(
        _SESSION,
        "standby, read_only, read_committed, default = cursor.execute(_MODES).fetchall()[0]",
        "standby, read_only, read_committed, default = cursor.execute(_MODES).fetchall()[ -1]",
        "there is exactly one row",
    ),
    Explained(
        _FENCE,
        "perform set_config('lock_timeout', greatest(left_ms, 1)::text, true);",
        "perform set_config('lock_timeout', greatest(left_ms, 0)::text, true);",
        "with nothing left NOWAIT is asked for, which knows no timeout",
    ),
    Explained(
        _FENCE,
        "'lock table %s in %s mode %s', target, mode, case when left_ms <= 0 then 'nowait' end",
        "'lock table %s in %s mode %s', target, mode, case when left_ms > 0 then 'nowait' end",
        _TUNING,
    ),
    Explained(
        _FENCE,
        "'lock table %s in %s mode %s', target, mode, case when left_ms <= 0 then 'nowait' end",
        "'lock table %s in %s mode %s', target, mode, case when left_ms <= 1 then 'nowait' end",
        _TUNING,
    ),
    Explained(
        _OUTLOOK,
        "skipped, cancelled = connection.cursor(row_factory=tuple_row).execute(_REPAIRED).fetchall()[0]",
        "skipped, cancelled = connection.cursor(row_factory=tuple_row).execute(_REPAIRED).fetchall()[ -1]",
        "there is exactly one row",
    ),
    Explained(
        _FENCE,
        "and a.pid <> pg_backend_pid()",
        "",
        "our own session is active, and not a pg_dump",
    ),
    Explained(
        "src/pgflow_migrate/audit/render/words.py",
        '-len(group.findings) if code.severity != "info" else 0,',
        '-len(group.findings) if code.severity != "info" else 1,',
        "any number will do that is the same for all of them",
    ),
    Explained(
        "src/pgflow_migrate/releases/identify.py",
        'raise FileNotFoundError("the installation has no snapshot of any release")',
        "pass",
        "a wheel has the snapshots, which tests/test_wheel.py sees to",
    ),
    Explained(
        _FENCE,
        "'lock table %s in %s mode %s', target, mode, case when left_ms <= 0 then 'nowait' end",
        "'lock table %s in %s mode %s', target, mode, case when left_ms < 0 then 'nowait' end",
        _TUNING,
    ),
    Explained(
        _RULES,
        "create unique index flows_slug_case_insensitive_key on pgflow.flows (lower(flow_slug));",
        "create unique index flows_slug_case_insensitive_key on pgflow.flows (upper(flow_slug));",
        _ASCII,
    ),
    Explained(
        _RULES,
        "create unique index steps_slug_case_insensitive_key on pgflow.steps (flow_slug, lower(step_slug));",
        "create unique index steps_slug_case_insensitive_key on pgflow.steps (flow_slug, upper(step_slug));",
        _ASCII,
    ),
    Explained(
        _JUDGE,
        "if judged_count < cardinality(p_msg_ids) then",
        "if judged_count <= cardinality(p_msg_ids) then",
        "a shortcut: when every message has a task the query behind it finds none without one",
    ),
    Explained(
        _JUDGE,
        "case when pace.recovery_at > clock_timestamp()",
        "case when pace.recovery_at >= clock_timestamp()",
        _INSTANT,
    ),
    Explained(_QUEUE_FAULTS, "union all", "union", _ONCE),
    Explained(
        _QUEUE_FAULTS,
        "and not a.attisdropped",
        "",
        "a dropped column has another name, and no type",
    ),
    Explained(
        "alembic/sql/dirty_runs/functions/_v2_route_faults.sql",
        "union all",
        "union",
        "names are collected as distinct, and inside exists one row is enough",
    ),
    Explained(
        "src/pgflow_migrate/releases/identify.py",
        "fewest = 0",
        "fewest = 1",
        "the first release sets it before anything reads it",
    ),
    Explained(
        "src/pgflow_migrate/releases/identify.py",
        "fewest = 0",
        "fewest = -1",
        "the first release sets it before anything reads it",
    ),
    *(
        Explained(
            "src/pgflow_migrate/releases/identify.py", before, before.replace("[0]", "[ -1]"), _ONE_RECORD
        )
        for before in (
            "if not wrong or release_of(wrong[0]) not in catalogue.releases():",
            "expected = catalogue.snapshot(release_of(wrong[0]))",
            'count = f"; from {wrong[0]} {count}"',
        )
    ),
    *(
        Explained("alembic/sql/queue_identity/preflight_findings.sql", before, after, reason)
        for reason, pairs in explained_audit_sql.BY_REASON.items()
        for before, after in pairs
    ),
)
