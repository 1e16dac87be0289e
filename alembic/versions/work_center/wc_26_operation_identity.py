"""26-operation-identity: effects on the outside world, each under one idempotency key."""

from pgflow_migrate.work_center.revision import run_sql

revision = "wc_26_operation_identity"
down_revision = "wc_25_engine_turns"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A table and an index, each unless it is there."""
    run_sql(revision, "operations", "operations_recovery")
