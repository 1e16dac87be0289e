"""23-conversation-stream: what is said about a work item, as entries in order."""

from pgflow_migrate.work_center.revision import run_sql

revision = "wc_23_conversation_stream"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Two tables and an index, each unless it is there."""
    run_sql(revision, "conversations", "conversation_entries", "conversation_entries_work_item")
