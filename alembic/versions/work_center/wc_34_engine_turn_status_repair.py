"""34-engine-turn-status-repair: step 32 once more where it did not hold, and a look whether it does now."""

from pgflow_migrate.work_center import engine_turns
from pgflow_migrate.work_center.revision import store

revision = "wc_34_engine_turn_status_repair"
down_revision = "wc_33_coordinator_provider_turns"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Contract, foreign keys, indexes, trigger and references are all there, or the step fails."""
    if not engine_turns.has_contract(store().connection):
        engine_turns.rebuild(store())
    engine_turns.require(store().connection)
