"""24-action-stream: what an action is told, as entries in order."""

from pgflow_migrate.work_center.revision import run_sql

revision = "wc_24_action_stream"
down_revision = "wc_23_conversation_stream"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A table and an index, each unless it is there."""
    run_sql(revision, "action_entries", "action_entries_delivery")
