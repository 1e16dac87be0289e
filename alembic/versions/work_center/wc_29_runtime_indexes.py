"""29-runtime-indexes: columns that older stores lack in engine_turns, and two indexes."""

from pgflow_migrate.work_center.revision import add_missing_columns, run_sql

revision = "wc_29_runtime_indexes"
down_revision = "wc_28_run_identity"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns and indexes, each unless it is there."""
    add_missing_columns(
        revision,
        "engine_turns",
        "message_entry_ids",
        "control_entry_ids",
        "claimed_through_sequence",
        "consumed_through_sequence",
    )
    run_sql(revision, "action_entries_engine_turn", "mailbox_work_item_status")
