"""Upgrades again and again while others write: nobody deadlocks, nothing is lost, all work goes on.

``make traffic`` is the full size; PGFLOW_MIGRATE_TRAFFIC_UPGRADES sets it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.traffic.work import work_off
from tests.traffic.writers import ARRANGE, DOOMED, KINDS, Books, Writer

from pgflow_migrate.errors import FenceError
from pgflow_migrate.upgrade.run import UpgradeResult, upgrade
from pgflow_migrate.upgrade.session import Fence

Connection = psycopg.Connection[dict[str, Any]]

SEED = int(os.environ.get("PGFLOW_MIGRATE_TEST_SEED", "650"))
UPGRADES = int(os.environ.get("PGFLOW_MIGRATE_TRAFFIC_UPGRADES", "4"))
FENCE = Fence(timedelta(seconds=2), timedelta(seconds=20), allow_live_workers=True)
ACTS = 5
PATIENCE = 60.0

QUEUES = ("orders", "billing")
MESSAGES = " union all ".join(
    f"select '{place}' as place, '{queue}' as queue_name, msg_id from pgmq.{place}_{queue}"
    for queue in QUEUES
    for place in "qa"
)
LIVE = """
select task.queue_name, task.message_id from pgflow.step_tasks task
join pgflow.runs run using (run_id)
where task.status in ('queued', 'started') and run.status = 'started'
"""


class Traffic:
    """All writers at work."""

    def __init__(self, dsn: str, deadlock_timeout: str) -> None:
        self.books = Books()
        self.writers: list[Writer] = [
            kind(number, dsn, SEED, self.books, deadlock_timeout) for number, kind in enumerate(KINDS)
        ]

    def __enter__(self) -> Traffic:
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self.writers:
            writer.stop.set()
        for writer in self.writers:
            writer.join()

    def go_on(self, acts: int) -> None:
        """Return once each writer has acted so often again."""
        goal = {writer.name: self.books.acts[writer.name] + acts for writer in self.writers}
        deadline = time.monotonic() + PATIENCE
        while any(self.books.acts[name] < count for name, count in goal.items()):
            assert self.books.crashes == [], f"seed {SEED}: {self.books.crashes}"
            assert time.monotonic() < deadline, f"seed {SEED}: stuck, {self.books.acts}, goal {goal}"
            time.sleep(0.01)

    def undocumented(self, *, upgraded: bool) -> list[str]:
        """Errors that no writer should have seen."""
        known = {kind.__name__: kind.allowed | (kind.documented if upgraded else set()) for kind in KINDS}
        return [
            f"{kind} {sqlstate} ({count}): {self.books.samples[kind, sqlstate]}"
            for (kind, sqlstate), count in self.books.errors.items()
            if sqlstate not in known[kind]
        ]


def attempt(dsn: str, *, dry_run: bool) -> UpgradeResult | None:
    """An upgrade; None when it gave up because somebody was always in the middle of something."""
    try:
        return upgrade(dsn, fence=FENCE, dry_run=dry_run)
    except FenceError as error:
        if "deadlock" in error.message:
            raise
        return None


def deadlocks(chief: Connection) -> int:
    """How many sessions of the database have been chosen as victims, the upgrade's among them."""
    chief.execute("select pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    (row,) = chief.execute(
        "select deadlocks from pg_stat_database where datname = current_database()"
    ).fetchall()
    count: int = row["deadlocks"]
    return count


def check_messages(chief: Connection) -> None:
    """Each message is in its queue or its archive, once; what is in a queue belongs to a live task."""
    twice = chief.execute(
        f"select queue_name, msg_id from ({MESSAGES}) message group by 1, 2 having count(*) > 1"
    ).fetchall()
    queued = {
        (row["queue_name"], row["msg_id"])
        for row in chief.execute(f"select * from ({MESSAGES}) message where place = 'q'").fetchall()
    }
    live = [(row["queue_name"], row["message_id"]) for row in chief.execute(LIVE.encode()).fetchall()]
    assert twice == [], f"seed {SEED}"
    assert len(live) == len(set(live)), f"seed {SEED}"
    assert queued == set(live), f"seed {SEED}: {queued - set(live)} strays, {set(live) - queued} lost"


def test_the_writers_alone_meet_no_error_but_those_that_they_may(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    """The measure for the next test."""
    dsn = database_at("core_0_16_0")
    chief = connect(dsn)
    chief.execute(ARRANGE.encode())
    with Traffic(dsn, "100ms") as traffic:
        traffic.go_on(20)
    assert traffic.books.crashes == []
    assert traffic.undocumented(upgraded=False) == []
    assert deadlocks(chief) == 0


@pytest.mark.parametrize("deadlock_timeout", ["1s", "100ms"])
def test_upgrades_under_traffic_deadlock_with_nobody_and_lose_nothing(
    database_at: Callable[[str], str], connect: Callable[[str], Connection], deadlock_timeout: str
) -> None:
    dsn = database_at("core_0_16_0")
    chief = connect(dsn)
    chief.execute(ARRANGE.encode())
    chief.execute(f"alter database {chief.info.dbname} set deadlock_timeout = '{deadlock_timeout}'".encode())
    results: list[UpgradeResult] = []
    given_up = 0
    began = time.monotonic()
    with Traffic(dsn, deadlock_timeout) as traffic:
        while len(results) < UPGRADES:
            traffic.go_on(ACTS)
            result = attempt(dsn, dry_run=len(results) < UPGRADES - 1)
            if result is None:
                given_up += 1
                assert given_up <= UPGRADES, f"seed {SEED}: the locks were not obtained"
            else:
                results.append(result)
        traffic.go_on(ACTS)
    assert traffic.books.crashes == [], f"seed {SEED}"
    assert traffic.undocumented(upgraded=True) == [], f"seed {SEED}"
    assert deadlocks(chief) == 0, f"seed {SEED}"
    assert [result.already_current for result in results] == [False] * UPGRADES

    chief.execute("select pgflow.delete_flow_and_data(%s)", (DOOMED,))
    check_messages(chief)
    work_off(chief, "Orders", "billing")
    check_messages(chief)
    assert chief.execute(
        "select count(*) as n from pgflow.step_tasks where queue_name <> lower(flow_slug)"
    ).fetchall() == [{"n": 0}]
    locked = sorted(result.locked_seconds or 0 for result in results)
    print(
        f"deadlock_timeout {deadlock_timeout}: {UPGRADES} upgrades in {time.monotonic() - began:.0f} s,"
        f" {given_up} times no locks, locked {locked[0]:.2f} to {locked[-1]:.2f} s, in the middle"
        f" {locked[len(locked) // 2]:.2f} s; rounds {dict(traffic.books.acts)};"
        f" errors {dict(traffic.books.errors)}"
    )
