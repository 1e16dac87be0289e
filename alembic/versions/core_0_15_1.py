"""pgflow 0.15.1, hardening of the task lifecycle: two statuses, six functions, two repairs of old rows."""

from pgflow_migrate.revision import run_folder, run_sql

revision = "core_0_15_1"
down_revision = "core_0_15_0"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Allow the statuses, replace the functions, then repair. Skipped steps come first: see the files."""
    # The fence of queue_identity, taken here already: locks taken one by one would break its order.
    run_sql("queue_identity", "live_workers", "fence")
    run_sql(revision, "constraints")
    run_folder(revision, "functions")
    run_sql(revision, "repair_skipped_steps", "repair_failed_runs")


def downgrade() -> None:
    """There is no way back but the backup: see docs/upgrade.md."""
    raise NotImplementedError("restore the backup that was taken before the upgrade")
