"""pgflow 0.16.0: ensure_flow_compiled can no longer be asked to destroy data."""

from pgflow_migrate.revision import run_sql

revision = "core_0_16_0"
down_revision = "core_0_15_1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the three-argument function, then create the one with two."""
    run_sql(revision, "drop_ensure_flow_compiled", "functions/ensure_flow_compiled")


def downgrade() -> None:
    """There is no way back but the backup: see docs/upgrade.md."""
    raise NotImplementedError("restore the backup that was taken before the upgrade")
