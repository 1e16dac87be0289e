"""What the contract decides in words: choices, what is left out, and when not to use it."""

from __future__ import annotations

DECISIONS: tuple[tuple[str, str], ...] = (
    (
        "First settlement after the lease is over, before revocation",
        "Accepted. The horizon makes a claim recoverable; only the revocation, under the run's lock, ends "
        "it. Work that "
        "was done is not thrown away for being late.",
    ),
    (
        "The claim limit",
        "The last allowed claim is never revoked: work goes into attention, and its result is still "
        "accepted.",
    ),
    (
        "Failure of a run in attention",
        "Its run ends as any other; attention stays until a person has looked.",
    ),
    (
        "Equality of JSON",
        "That of jsonb: key order and white space do not matter, the last of equal keys wins, 1.0 is 1; 0, "
        'false, "" and '
        "null are four values. Stored results are canonical. SQL NULL is no result.",
    ),
    (
        "Queues",
        "Both modes: the flow's own queue for every step, and a queue of its own for each step. All must "
        "be whole and of no "
        "other flow.",
    ),
    (
        "Counters of protocol 1",
        "attempts_count, requeued_count, last_worker_id and permanently_stalled_at of the tasks are not "
        "used. Claims are "
        'rows; handler failures are dispositions "failed"; lost executors are revocations "lease_lost".',
    ),
    (
        "Policy in flight",
        "A claim keeps the policy that it was made under. The definition cannot change while a run holds "
        "it, so a claim's "
        "snapshot and its run's definition never differ.",
    ),
    (
        "Reporting",
        "At most 5 attempts within 10 seconds, by the clock, from the first: SQL in flight, delays and "
        "shutdown included. "
        "Then the report is unconfirmed: neither accepted nor refused. A cancelled wait does not prove a "
        "rollback. The "
        "executor keeps claim and canonical outcome and may report the same again; it never runs the "
        "handler again, and "
        "never repeats a report that was answered.",
    ),
    (
        "Where the protocol is kept",
        "A run speaks protocol 2 exactly when it has a work row, made with it and kept as long. The table "
        "of runs "
        "itself is as it was, so sessions that have start_flow() compiled go on while the revision is "
        "applied.",
    ),
    (
        "Chunks that record nothing",
        "A chunk that is cancelled (statement_timeout), or whose commit fails, is as if it had never been "
        "tried: "
        "its run stays due, and first. Processors need a statement_timeout above what a chunk takes.",
    ),
    (
        "Runs that somebody has locked",
        "A processor passes over them. A claim waits in SQL; an executor's waits a quarter of a second, then "
        "the executor goes on, and the message comes back when its reservation is over.",
    ),
    (
        "Events",
        "Hints. One that cannot be sent is a warning; what the database accepted stays.",
    ),
)

DEFERRED: tuple[str, ...] = (
    "a bound on the nesting of JSON: PostgreSQL holds thousands of levels, Python's reader about a thousand",
    "maps, conditions, skipping, more than two steps, branches",
    "retries of handlers, and any policy but max_attempts 1 with when_exhausted fail",
    "what becomes of tasks whose executors are lost again and again, beyond attention",
    "repair and clearing of attention; archives and reconstruction",
    "automatic retention of runs of protocol 2",
    "a supervised runtime: cron, Edge loop, notifications; selection of runs by more than due time",
    "bounded parsing and hashing of payloads that arrive over a network: the bounds are checked once the "
    "JSON is in the "
    "database",
)

NO_GO: tuple[str, ...] = (
    "starts or structural changes of several flows in one transaction, in different orders: they "
    "deadlock, and "
    "one of them is rolled back",
    "production use, or protocol 2 as a default of anything",
    "a poller of protocol 1 on a queue of protocol 2: reading hides messages, though it cannot claim them",
    "flows that runs of both protocols use at the same time",
    "FORCE ROW LEVEL SECURITY on pgflow's tables: what its owner does not see is not frozen for him; "
    "functions that ask for a run's protocol raise an error there instead of answering wrongly",
    "a restore of rows alone (pg_dump --data-only) while there are runs of protocol 2, without "
    "--disable-triggers: guards refuse the rows; a whole dump comes back as it was",
    "SQL by hand as a superuser, disabled triggers, queues replaced from outside: not protected against",
    "an executor that cannot keep its claim and outcome until its report is answered or its process ends",
)
