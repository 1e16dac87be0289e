"""31-reliability-guards: requests, run identity and terminal results can no longer be changed."""

from pgflow_migrate.work_center.revision import add_missing_columns, run_sql

revision = "wc_31_reliability_guards"
down_revision = "wc_30_backfill_projections"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns that older stores lack in engine_turns, then the triggers."""
    add_missing_columns(
        revision, "engine_turns", "dispatch_capability", "dispatched_at", "response_hash", "error"
    )
    run_sql(
        revision,
        "replaced_triggers",
        "engine_turn_request_immutable",
        "runs_identity_immutable",
        "runs_capture_terminal_identity",
        "runs_terminal_identity_immutable",
    )
