"""What a session has really read, as the server counts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.dirty_runs.protocol import Session

Reads = dict[str, int]


def counted(session: Session) -> Reads:
    """Rows of sequential scans and entries of index scans, of this transaction so far, by table."""
    return {
        row["relname"]: int(row["reads"])
        for row in session.rows(
            "select c.relname, pg_stat_get_xact_tuples_returned(c.oid) + coalesce(("
            "   select sum(pg_stat_get_xact_tuples_returned(i.indexrelid))"
            "   from pg_index i where i.indrelid = c.oid"
            " ), 0) as reads"
            " from pg_class c where c.relnamespace = 'pgflow'::regnamespace and c.relkind = 'r'"
        )
    }


@contextmanager
def reading(session: Session) -> Iterator[Reads]:
    """What a block reads, filled in at its end; it runs in a transaction that is rolled back."""
    reads: Reads = {}
    with session.connection.transaction(force_rollback=True):
        before = counted(session)
        yield reads
        after = counted(session)
        reads.update(
            {table: after[table] - before[table] for table in after if after[table] != before[table]}
        )
