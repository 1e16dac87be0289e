"""33-coordinator-provider-turns: a coordinator's requests to its provider, which cannot be changed either."""

from pgflow_migrate.work_center.revision import run_sql

revision = "wc_33_coordinator_provider_turns"
down_revision = "wc_32_engine_turn_status_contract"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A table, an index and a trigger, each unless it is there."""
    run_sql(
        revision,
        "coordinator_provider_turns",
        "coordinator_provider_turns_recovery",
        "coordinator_provider_request_immutable",
    )
