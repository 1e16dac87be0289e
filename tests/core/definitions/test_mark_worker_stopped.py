"""``pgflow.mark_worker_stopped(worker_id)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]

WORKER = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"


@pytest.fixture(autouse=True)
def workers(db: Connection) -> None:
    """Two workers."""
    for worker in (WORKER, OTHER):
        db.execute(
            "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, 'q', 'f')",
            (worker,),
        )


@pytest.mark.parametrize("earlier", [None, "2020-01-01"])
def test_sets_the_wall_clock_also_when_it_was_stopped_before(
    db: Connection, row: Callable[..., dict[str, Any]], earlier: str | None
) -> None:
    db.execute("update pgflow.workers set stopped_at = %s where worker_id = %s", (earlier, WORKER))
    others = row("select * from pgflow.workers where worker_id = %s", OTHER)
    before = row("select * from pgflow.workers where worker_id = %s", WORKER)
    db.execute("select pgflow.mark_worker_stopped(%s)", (WORKER,))
    after = row("select * from pgflow.workers where worker_id = %s", WORKER)
    now, clock = row("select now(), clock_timestamp()").values()
    assert now < after["stopped_at"] < clock
    assert after == {**before, "stopped_at": after["stopped_at"]}
    assert row("select * from pgflow.workers where worker_id = %s", OTHER) == others


def test_an_unknown_worker_changes_nothing(db: Connection, state_of: Callable[[Connection], object]) -> None:
    before = state_of(db)
    db.execute("select pgflow.mark_worker_stopped(gen_random_uuid())")
    db.execute("select pgflow.mark_worker_stopped(null)")
    assert state_of(db) == before
