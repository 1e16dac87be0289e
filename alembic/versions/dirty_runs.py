"""dirty_runs: an internal second run protocol beside the first, which stays as it is. Adds, and changes no row."""

from pgflow_migrate.revision import run_folder, run_sql

revision = "dirty_runs"
down_revision = "queue_identity"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns and tables, the functions of both protocols, the guards, a last look."""
    run_sql("queue_identity", "live_workers", "fence", "functions_before")
    run_sql(revision, "run_protocol", "run_work", "task_claims", "new_tables")
    run_sql("queue_identity", "function_bodies_unchecked")
    run_folder(revision, "functions")
    run_folder(revision, "guards")
    run_sql("queue_identity", "function_bodies_checked", "new_functions")
    run_sql(revision, "invariants", "verify")


def downgrade() -> None:
    """There is no way back but the backup: see docs/upgrade.md."""
    raise NotImplementedError("restore the backup that was taken before the upgrade")
