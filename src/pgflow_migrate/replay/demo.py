"""The demonstration: a small database's way from 0.16.0 to the newest revision, verified at each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg

from pgflow_migrate import database
from pgflow_migrate.audit.findings import AuditReport
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.errors import BlockedError
from pgflow_migrate.layout import plural
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.checks import identity_differences, release_differences
from pgflow_migrate.replay.differences import differences, history_differences
from pgflow_migrate.replay.work import work_off
from pgflow_migrate.upgrade.progress import Event
from pgflow_migrate.upgrade.run import UpgradeResult, upgrade
from pgflow_migrate.upgrade.session import AMONG_WORKERS

FLOW = "orderIntake"

_STORY = Path(__file__).parent / "story"

_MESSAGES = """
select count(*), count(t.run_id) from (
  select 'orderintake' as queue, msg_id from pgmq.q_orderintake
  union all select 'newsletter', msg_id from pgmq.q_newsletter
  union all select 'thumbnails', msg_id from pgmq.q_thumbnails
) m
left join pgflow.step_tasks t on t.queue_name = m.queue and t.message_id = m.msg_id
"""

_FLOWS = """
select flow_slug, count(distinct run_id), count(*), count(*) filter (where status in ('queued', 'started'))
from pgflow.step_tasks group by 1 order by 1
"""

_QUEUES = """
select flow_slug, queue_name, count(*), count(*) filter (where status in ('queued', 'started'))
from pgflow.step_tasks group by 1, 2 order by 1
"""

_RUNS = "select status, count(*) from pgflow.runs where flow_slug = 'orderIntake' group by 1"

_QUEUE = "select (select count(*) from pgmq.q_orderintake), (select count(*) from pgmq.a_orderintake)"


@dataclass(frozen=True)
class Verification:
    """A promise, whether it was kept, and what was found.

    Attributes:
        promise: a sentence.
        kept: whether it holds.
        found: the figures, or what contradicts it.
    """

    promise: str
    kept: bool
    found: str


@dataclass(frozen=True)
class Busy:
    """A flow before the upgrade: how many runs and tasks it has, and how many tasks are unfinished."""

    flow_slug: str
    runs: int
    tasks: int
    unfinished: int


@dataclass(frozen=True)
class Routed:
    """The tasks of a flow after the upgrade: the queue they carry, how many, and how many are unfinished."""

    flow_slug: str
    queue_name: str
    tasks: int
    unfinished: int


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration came to.

    Attributes:
        first_audit: of the database as it was found.
        refused: whether the upgrade then refused to run.
        second_audit: after what the first one found was mended.
        upgrade: what the upgrade did.
        routed: the tasks of each flow afterwards.
        verifications: every promise that was checked.
    """

    first_audit: AuditReport
    refused: bool
    second_audit: AuditReport
    upgrade: UpgradeResult
    routed: tuple[Routed, ...]
    verifications: tuple[Verification, ...]

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        return all(verification.kept for verification in self.verifications)


class Audience(Protocol):
    """Who is told what happens, while it happens."""

    def chapter(self, title: str) -> None:
        """A new part of the story begins."""

    def populated(self, flows: tuple[Busy, ...]) -> None:
        """The database is filled."""

    def audited(self, report: AuditReport) -> None:
        """The audit was made."""

    def statements(self, text: str) -> None:
        """SQL is about to be run by the operator."""

    def refused(self, error: BlockedError) -> None:
        """The upgrade has refused."""

    def progress(self, event: Event) -> None:
        """Something happened inside the upgrade."""

    def upgraded(self, result: UpgradeResult, routed: tuple[Routed, ...]) -> None:
        """The upgrade is committed."""

    def verified(self, verification: Verification) -> None:
        """A promise was checked."""


def demonstrate(dsn: str, audience: Audience) -> Demonstration:
    """Tell the story in an empty database at 0.16.0.

    Args:
        dsn: the database.
        audience: told as it goes.

    Raises:
        PgflowMigrateError: the upgrade that should succeed did not.
    """
    with database.connect(dsn, autocommit=True) as connection:
        return _Demonstrator(dsn, connection, audience).tell()


class _Demonstrator:
    def __init__(self, dsn: str, connection: psycopg.Connection[Any], audience: Audience) -> None:
        self._dsn = dsn
        self._connection = connection
        self._audience = audience
        self._verifications: list[Verification] = []

    def tell(self) -> Demonstration:
        self._audience.chapter("A pgflow 0.16.0 database with three flows at work")
        self._run("populate.sql")
        self._audience.populated(tuple(Busy(*row) for row in self._rows(_FLOWS)))

        self._audience.chapter("The audit says what stands in the way")
        found = signature.take(self._connection)
        first = self._audit()
        self._verify("The audit changes nothing", differences(found, signature.take(self._connection)))

        self._audience.chapter("An upgrade that is not safe is refused")
        refused = self._refused()
        self._verify(
            "The refused upgrade changes nothing", differences(found, signature.take(self._connection))
        )

        self._audience.chapter("The operator decides and mends; the audit is clean")
        self._audience.statements((_STORY / "mend.sql").read_text(encoding="utf-8"))
        self._run("mend.sql")
        second = self._audit()
        self._verify("No finding blocks any more", [finding.code for finding in second.blocking])

        self._audience.chapter("The upgrade, in one transaction")
        before = signature.take(self._connection)
        result = upgrade(self._dsn, fence=AMONG_WORKERS, on_progress=self._audience.progress)
        routed = tuple(Routed(*row) for row in self._rows(_QUEUES))
        self._audience.upgraded(result, routed)

        self._audience.chapter("What was promised, checked by SQL")
        after = signature.take(self._connection)
        rows = sum(len(table.rows) for table in before.tables.values())
        self._verify(
            "No value of any row is another; queues and archives are untouched",
            history_differences(before, after),
            f"{plural(rows, 'row')} compared, column by column",
        )
        self._verify(
            "Every step and task carries its canonical queue", tuple(identity_differences(self._connection))
        )
        self._verify_messages()
        self._verify(
            f"Schema pgflow is exactly that of release {HEAD}",
            release_differences(self._connection),
        )
        again = upgrade(self._dsn, fence=AMONG_WORKERS)
        self._verify("A second upgrade has nothing to do", () if again.already_current else ("it ran again",))

        self._audience.chapter(f"Work goes on: {FLOW} is run to its end through SQL")
        self._verify_work()
        return Demonstration(first, refused, second, result, routed, tuple(self._verifications))

    def _audit(self) -> AuditReport:
        report = run_audit(self._connection)
        self._audience.audited(report)
        return report

    def _refused(self) -> bool:
        try:
            upgrade(self._dsn, fence=AMONG_WORKERS)
        except BlockedError as error:
            self._audience.refused(error)
            self._verify("The upgrade refuses", (), plural(len(error.findings), "finding"))
            return True
        self._verify("The upgrade refuses", ("it did not",))
        return False

    def _verify_messages(self) -> None:
        ((messages, owned),) = self._rows(_MESSAGES)
        self._verify(
            "Every active message is found by (queue_name, message_id)",
            () if messages == owned else (f"{messages - owned} of {plural(messages, 'message')} not found",),
            plural(messages, "message"),
        )

    def _verify_work(self) -> None:
        tasks = work_off(self._connection, FLOW)
        statuses = dict(self._rows(_RUNS))
        ((left, archived),) = self._rows(_QUEUE)
        self._verify(
            f"All runs of {FLOW} complete",
            () if set(statuses) == {"completed"} else (f"runs: {statuses}",),
            f"{plural(tasks, 'task')} claimed and completed, {plural(statuses.get('completed', 0), 'run')}",
        )
        self._verify(
            "Its queue is empty, its messages are archived",
            () if not left else (plural(left, "message is left", "messages are left"),),
            f"{archived:,} archived",
        )

    def _verify(self, promise: str, contradictions: tuple[str, ...] | list[str], found: str = "") -> None:
        kept = not contradictions
        verification = Verification(promise, kept, found if kept else "; ".join(contradictions))
        self._verifications.append(verification)
        self._audience.verified(verification)

    def _run(self, name: str) -> None:
        self._connection.execute((_STORY / name).read_bytes())

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        with self._connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            return iter(cursor.execute(query.encode()).fetchall())
