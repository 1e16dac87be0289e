"""28-run-identity: every run gets its number within its action, and every ended one its terminal identity."""

from pgflow_migrate.work_center.revision import add_missing_columns, run_sql, store
from pgflow_migrate.work_center.run_identity import number_runs

revision = "wc_28_run_identity"
down_revision = "wc_27_coordinator_mailbox"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns, their values, and the index that keeps the numbers apart."""
    add_missing_columns(revision, "runs", "ordinal", "terminal_status", "terminal_at")
    number_runs(store().connection)
    run_sql(revision, "runs_action_ordinal")
