"""25-engine-turns: a run's requests to the engine, each with its answer."""

from pgflow_migrate.work_center.revision import run_sql

revision = "wc_25_engine_turns"
down_revision = "wc_24_action_stream"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A table and an index, each unless it is there."""
    run_sql(revision, "engine_turns", "engine_turns_recovery")
