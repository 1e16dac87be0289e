"""30-backfill-projections: messages, inputs and events of old become entries, consumed inputs get a turn."""

from pgflow_migrate.work_center.backfill import backfill
from pgflow_migrate.work_center.revision import store

revision = "wc_30_backfill_projections"
down_revision = "wc_29_runtime_indexes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rows alone; those that are there already stay as they are."""
    backfill(store())
