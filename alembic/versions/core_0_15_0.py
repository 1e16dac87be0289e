"""pgflow 0.15.0, the oldest release that can be upgraded: the whole schema."""

from pgflow_migrate.revision import run_folder, run_sql

revision = "core_0_15_0"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "flows",
    "steps",
    "deps",
    "runs",
    "step_states",
    "workers",
    "step_tasks",
    "worker_functions",
)


def upgrade() -> None:
    """Create the surroundings that are missing, then tables, types, functions and cron jobs."""
    run_sql(revision, "prerequisites", "schema", "is_valid_slug")
    run_sql(revision, *(f"tables/{table}" for table in TABLES))
    run_sql(revision, "types/step_task_record")
    run_sql(revision, "function_bodies_unchecked")
    run_folder(revision, "functions")
    run_sql(revision, "function_bodies_checked")
    run_sql(revision, "cron_jobs")


def downgrade() -> None:
    """There is no way back but the backup: see docs/upgrade.md."""
    raise NotImplementedError("restore the backup that was taken before the upgrade")
