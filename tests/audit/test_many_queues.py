"""More queues than one query takes, and than the server's lock table could hold at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from pgflow_migrate.audit.run import run_audit

Database = psycopg.Connection[dict[str, Any]]
Audited = Callable[[Database], list[tuple[Any, ...]]]


def test_each_batch_of_queues_is_judged(database: Database, audited: Audited) -> None:
    """501 queues: the first and the last are in different batches, as are their strays."""
    database.execute(
        """
        select pgflow.create_flow(slug), pgflow.add_step(slug, 'pack'), pgflow.start_flow(slug, '{}')
        from generate_series(1, 501) as n, format('flow_%s', lpad(n::text, 3, '0')) as slug
        """
    )
    assert audited(database) == []
    database.execute("select setval(format('pgmq.q_%s_msg_id_seq', flow_slug), 1, false) from pgflow.flows")
    behind = [row for row in audited(database) if row[1] == "queue-sequence-behind"]
    assert [row[2] for row in behind] == [f"flow_{number:03}" for number in range(1, 502)]
    database.execute("select setval(format('pgmq.q_%s_msg_id_seq', flow_slug), 1) from pgflow.flows")
    assert run_audit(database).findings[-1].samples[3:] == (
        "501 flows, 501 steps, 501 tasks",
        "501 messages in 501 queues",
    )
    strays = ("flow_001", "flow_500", "flow_501")
    for slug in strays:
        database.execute("select pgmq.send(%s, '{}'::jsonb)", [slug])
    database.execute("""select pgmq.send('flow_501', '{"flow_slug": "flow_001"}'::jsonb)""")
    assert audited(database) == [
        *(("error", "message-without-task", slug, None, slug, 1, (f"{slug}/2",)) for slug in strays),
        ("error", "queue-referenced-by-other-flow", "flow_501", None, "flow_501", 1, ("flow_501/3",)),
    ]
