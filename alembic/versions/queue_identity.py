"""queue_identity: every step and task carries the physical queue that its messages live in.

Fence, preflight, backfill, constraints, functions, a last look: in this order, in the caller's transaction.
"""

from pgflow_migrate.revision import run_folder, run_sql

revision = "queue_identity"
down_revision = "core_0_16_0"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Take a 0.16.0 database to queue identity, or leave it as it was."""
    run_sql(revision, "live_workers", "fence")
    run_sql(revision, "preflight_findings", "preflight_raise")
    run_sql(revision, "functions/is_valid_slug", "slug_rules")
    run_sql(revision, "backfill", "message_identity")
    run_sql(revision, "worker_pause")
    run_sql(revision, "functions_before", "drop_ensure_flow_compiled")
    run_sql(revision, "function_bodies_unchecked")
    run_folder(revision, "functions")
    run_sql(revision, "function_bodies_checked", "new_functions")
    run_sql(revision, "invariants", "verify", "snapshots")


def downgrade() -> None:
    """There is no way back but the backup: see docs/upgrade.md."""
    raise NotImplementedError("restore the backup that was taken before the upgrade")
