"""What is mutated, and which tests ought to notice.

Tests that compare texts (the catalogue's snapshots, the composed audit, checksums) are left out: they notice
every change, whatever it does.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgflow_migrate.releases.chain import HEAD


@dataclass(frozen=True)
class Target:
    """Files and their tests.

    Attributes:
        files: from the top of the checkout.
        tests: what pytest is given, the quickest first.
        select: which of these tests, as pytest's -k; all of them when empty.
        slow: what pytest is given for mutants that these tests do not notice.
        slow_select: which of the slow ones.
        sample: how many mutants are tried; 0 is all.
        revision: of what the tests use the newest; a mutant of SQL with which it cannot be built is invalid.
        audits: the file is the audit's block, which is in no template. Then ``tests`` are run once, and the
            databases that they audit are kept: a mutant is noticed that finds something else in one of them.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]
    select: str = ""
    slow: tuple[str, ...] = ()
    slow_select: str = ""
    sample: int = 0
    revision: str = HEAD
    audits: bool = False

    @property
    def stages(self) -> list[list[str]]:
        """What pytest is given: a list for all mutants, and one for those that are left then."""
        both = ((self.tests, self.select), (self.slow, self.slow_select))
        return [[*tests, *(("-k", select) if select else ())] for tests, select in both if tests]


_SRC = "src/pgflow_migrate"
_QUEUES = "alembic/sql/queue_identity"
_DIRTY = "alembic/sql/dirty_runs"
_FROZEN = "tests/test_dataclasses.py"

TARGETS: dict[str, Target] = {
    "canonical_json": Target(
        (f"{_SRC}/canonical_json.py",),
        (_FROZEN, "tests/dirty_runs/test_canonical_json.py"),
    ),
    "reporter": Target(
        tuple(f"{_SRC}/dirty_runs/{name}.py" for name in ("reporter", "outcomes")),
        (_FROZEN, "tests/dirty_runs/test_reporter.py"),
        select="whole_run or passes_over or not (executor or handler or message or body)",
    ),
    "slugs": Target((f"{_SRC}/slugs.py",), ("tests/test_slugs.py",)),
    "slugs-sql": Target(
        (f"{_QUEUES}/functions/is_valid_slug.sql", f"{_QUEUES}/slug_rules.sql"),
        ("tests/test_slugs.py",),
    ),
    "failures": Target(
        (f"{_SRC}/upgrade/failures.py",),
        ("tests/upgrade/test_failures.py", "tests/upgrade/test_rights.py", "tests/upgrade/test_waiting.py"),
    ),
    "connections": Target(
        (f"{_SRC}/connection_errors.py",),
        (_FROZEN, "tests/test_connection_errors.py"),
    ),
    "fence": Target(
        (f"{_SRC}/upgrade/session.py",),
        (
            _FROZEN,
            "tests/upgrade/test_session.py",
            "tests/upgrade/test_run.py",
            "tests/upgrade/test_waiting.py",
            "tests/upgrade/test_standby.py",
        ),
    ),
    "fence-sql": Target(
        (f"{_QUEUES}/fence.sql",),
        ("tests/queue_identity/test_fence.py",),
        slow=("tests/upgrade/test_waiting.py", "tests/traffic/test_snapshots.py"),
        revision="queue_identity",
    ),
    "classification-sql": Target(
        (
            f"{_QUEUES}/functions/_message_fault.sql",
            f"{_DIRTY}/functions/_judge_messages.sql",
        ),
        (
            "tests/dirty_runs/isolation/test_claims.py",
            "tests/core/runtime/test_claim_refusals.py",
            "tests/core/runtime/test_claim_bodies.py",
            "tests/core/runtime/test_claim_tasks.py",
        ),
    ),
    "queues-sql": Target(
        (f"{_QUEUES}/functions/_queue_faults.sql",),
        ("tests/queue_identity/test_provisioning.py",),
        select="other_schemas or superuser and (damaged or lost or every_queue or goes_all_the_way)",
        slow=("tests/dirty_runs/transitions/test_start.py", "tests/queue_identity/test_provisioning.py"),
        slow_select="test_a_queue",
    ),
    "routes-sql": Target(
        (f"{_DIRTY}/functions/_v2_route_faults.sql",),
        ("tests/dirty_runs/transitions/test_start.py",),
        select="test_a_queue or as_defined or everything",
    ),
    "protocols-sql": Target(
        tuple(
            f"{_DIRTY}/functions/{name}.sql"
            for name in (
                "_speaks_protocol_2",
                "_flow_speaks_protocol_2",
                "_require_protocol_1",
                "_v2_bounded_error",
            )
        ),
        (
            "tests/dirty_runs/isolation/test_completion.py",
            "tests/dirty_runs/isolation/test_deletion.py",
            "tests/dirty_runs/isolation/test_recovery.py",
            "tests/dirty_runs/test_limits.py",
        ),
    ),
    "audit-sql": Target(
        (f"{_QUEUES}/preflight_findings.sql",),
        tuple(
            f"tests/audit/test_{name}.py"
            for name in (
                "each_code_alone",
                "tasks",
                "messages",
                "queue_objects",
                "slugs",
                "prune_helper",
                "release",
            )
        ),
        select="not (preflight or statements or is_silent)",
        slow=(
            *(
                f"tests/audit/test_{name}.py"
                for name in (
                    "prune_helper",
                    "release",
                    "privileges",
                    "read_only",
                    "tasks",
                    "messages",
                    "slugs",
                    "queue_objects",
                    "locale",
                )
            ),
            "tests/hosted/test_in_the_way.py",
            "tests/audit/test_many_queues.py",
        ),
        slow_select="not (preflight or statements or is_silent)",
        sample=60,
        revision="queue_identity",
        audits=True,
    ),
    "audit": Target(
        (
            *(f"{_SRC}/audit/{name}.py" for name in ("codes", "findings", "refusal", "run", "script")),
            f"{_SRC}/audit/outlook.py",
            f"{_SRC}/audit/render/words.py",
            f"{_SRC}/audit/render/page.py",
        ),
        (
            _FROZEN,
            "tests/audit/test_render.py",
            "tests/audit/test_page.py",
            "tests/audit/test_outlook.py",
        ),
        select="not browser",
        slow=(
            "tests/audit/test_lost.py",
            "tests/audit/test_script.py",
            "tests/audit/test_read_only.py",
            "tests/upgrade/test_failures.py",
        ),
    ),
    "releases": Target(
        tuple(f"{_SRC}/releases/{name}.py" for name in ("comparison", "identify")),
        (_FROZEN, "tests/releases/test_catalogue_comparison.py"),
        slow=("tests/upgrade/test_adoption.py",),
    ),
}
