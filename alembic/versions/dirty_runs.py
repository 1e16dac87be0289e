"""dirty_runs: an internal second run protocol beside the first, which stays as it is.

It adds, and changes no row; so it can be taken back (``reversible``), while no run speaks protocol 2.
"""

from pgflow_migrate.revision import run_folder, run_namesakes, run_sql

revision = "dirty_runs"
down_revision = "queue_identity"
branch_labels = None
depends_on = None

reversible = True


def upgrade() -> None:
    """Columns and tables, the functions of both protocols, the guards, a last look."""
    run_sql("queue_identity", "live_workers", "fence", "functions_before")
    run_sql(revision, "run_work", "task_claims", "routes", "new_tables")
    run_sql("queue_identity", "function_bodies_unchecked")
    run_folder(revision, "functions")
    run_folder(revision, "guards")
    run_sql("queue_identity", "function_bodies_checked", "new_functions")
    run_sql(revision, "invariants", "verify")
    # On the way from an older release it is here that tables rewritten by queue_identity are committed.
    run_sql("queue_identity", "snapshots")


def downgrade() -> None:
    """Leave what was there before. With runs of protocol 2 there is no way back but the backup."""
    run_sql("queue_identity", "live_workers", "fence")
    run_sql(revision, "back/refuse", "back/triggers")
    # Replaced in place, so that owners and grants stay.
    run_sql("queue_identity", "function_bodies_unchecked")
    run_namesakes("queue_identity", revision, "functions")
    run_sql("queue_identity", "function_bodies_checked")
    run_sql(revision, "back/tables", "back/functions")
