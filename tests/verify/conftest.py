"""An upgraded database at work, and its verification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.verify.run import verify

Database = psycopg.Connection[dict[str, Any]]
Rows = list[tuple[Any, ...]]

# Orders' tasks by message id, 1 to 4: completed, failed with its run, started, queued. mail's task has to
# wait for an hour. bare has no step, and its queue was made together with it.
WORK = """
  select pgflow.create_flow('Orders', max_attempts => 1);
  select pgflow.add_step('Orders', 'pack');
  select pgflow.create_flow('mail');
  select pgflow.add_step('mail', 'send', start_delay => 3600);
  select pgflow.ensure_flow_compiled('bare', '{"steps": []}', '{"queueIdentity": true}');
  insert into pgflow.workers (worker_id, queue_name, function_name)
  values ('00000000-0000-4000-9000-000000000001', 'orders', 'packer');
  select pgflow.start_flow('Orders', '{}', ('00000000-0000-4000-8000-00000000000' || n)::uuid)
  from generate_series(1, 4) n;
  select pgflow.start_flow('mail', '{}', '00000000-0000-4000-8000-000000000005');
  select pgflow.start_tasks('Orders', array[1, 2, 3], '00000000-0000-4000-9000-000000000001');
  select pgflow.complete_task('00000000-0000-4000-8000-000000000001', 'pack', 0, '1');
  select pgflow.fail_task('00000000-0000-4000-8000-000000000002', 'pack', 0, 'torn');
"""


@pytest.fixture
def database(database_at: Callable[[str], str], connect: Callable[[str], Database]) -> Database:
    """A superuser's connection to a database at the newest revision in which work is in flight."""
    database = connect(database_at(HEAD))
    database.execute(WORK.encode())
    return database


@pytest.fixture
def violated() -> Callable[[Database], Rows]:
    """Verify a database; the violations without their hints."""

    def rows(database: Database) -> Rows:
        return [
            (violation.check, violation.subject, violation.count, violation.samples)
            for violation in verify(database.info.dsn).violations
        ]

    return rows
