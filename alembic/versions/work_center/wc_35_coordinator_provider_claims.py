"""35-coordinator-provider-claims: who works on a coordinator's request."""

from pgflow_migrate.work_center.revision import add_missing_columns, run_sql

revision = "wc_35_coordinator_provider_claims"
down_revision = "wc_34_engine_turn_status_repair"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns and an index, each unless it is there."""
    add_missing_columns(revision, "coordinator_provider_turns", "claim_owner", "claim_epoch")
    run_sql(revision, "coordinator_provider_turns_claim")
