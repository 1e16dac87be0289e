"""27-coordinator-mailbox: what waits for a work item's coordinator."""

from pgflow_migrate.work_center.revision import run_sql

revision = "wc_27_coordinator_mailbox"
down_revision = "wc_26_operation_identity"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A table and an index, each unless it is there."""
    run_sql(revision, "coordinator_mailbox_entries", "coordinator_mailbox_claim")
