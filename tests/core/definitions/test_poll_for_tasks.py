"""``pgflow.poll_for_tasks(...)``: kept for old callers, does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]


@pytest.mark.parametrize("arguments", ["'f', 5, 10", "'f', 5, 10, 2, 50", "'ghost', 5, 10"])
def test_says_that_it_is_deprecated_and_returns_no_task(
    db: Connection, state_of: Callable[[Connection], object], arguments: str
) -> None:
    db.execute("select pgflow.create_flow('f')")
    db.execute("select pgflow.add_step('f', 'a')")
    db.execute("select pgflow.start_flow('f', '{}')")
    before = state_of(db)
    notices: list[tuple[str | None, str | None]] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        notices.append((notice.severity_nonlocalized, notice.message_primary))

    db.add_notice_handler(note)
    cursor = db.execute(f"select * from pgflow.poll_for_tasks({arguments})")
    db.remove_notice_handler(note)

    assert cursor.fetchall() == []
    assert [column.name for column in cursor.description or ()] == [
        *("flow_slug", "run_id", "step_slug", "input", "msg_id", "task_index", "flow_input")
    ]
    ((severity, message),) = notices
    assert severity == "NOTICE"
    assert "deprecated" in str(message).lower()
    assert state_of(db) == before
