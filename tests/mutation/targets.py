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
        sample: how many mutants are tried; 0 is all.
        revision: of what the tests use the newest; a mutant of SQL with which it cannot be built is invalid.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]
    select: str = ""
    sample: int = 0
    revision: str = HEAD

    @property
    def arguments(self) -> list[str]:
        """What pytest is given."""
        return [*self.tests, *(("-k", self.select) if self.select else ())]


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
        (
            "tests/queue_identity/test_fence.py",
            "tests/upgrade/test_waiting.py",
            "tests/traffic/test_snapshots.py",
        ),
        sample=25,
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
        (f"{_QUEUES}/functions/_queue_faults.sql", f"{_DIRTY}/functions/_v2_route_faults.sql"),
        ("tests/dirty_runs/isolation/test_envelope.py", "tests/queue_identity/test_provisioning.py"),
        select="each_fault or damaged or lost or every_queue or share or another_flows",
        sample=25,
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
        (
            "tests/audit/test_each_code_alone.py",
            "tests/audit/test_tasks.py",
            "tests/audit/test_messages.py",
            "tests/audit/test_queue_objects.py",
            "tests/audit/test_release.py",
            "tests/hosted/test_in_the_way.py",
            "tests/audit/test_privileges.py",
        ),
        select="exact_names or test_tasks or test_messages or defect or named or in_the_way or privileges",
        sample=24,
        revision="queue_identity",
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
            "tests/audit/test_read_only.py",
            "tests/audit/test_script.py",
            "tests/upgrade/test_failures.py",
        ),
        select="not browser",
        sample=50,
    ),
    "releases": Target(
        tuple(f"{_SRC}/releases/{name}.py" for name in ("comparison", "identify")),
        (_FROZEN, "tests/releases/test_catalogue_comparison.py", "tests/upgrade/test_adoption.py"),
        sample=40,
    ),
}
