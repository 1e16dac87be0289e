"""32-engine-turn-status-contract: engine_turns of an older shape is rebuilt with the statuses of today."""

from pgflow_migrate.work_center import engine_turns
from pgflow_migrate.work_center.revision import store

revision = "wc_32_engine_turn_status_contract"
down_revision = "wc_31_reliability_guards"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing for a table that has the contract."""
    if not engine_turns.has_contract(store().connection):
        engine_turns.rebuild(store())
