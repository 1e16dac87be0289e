"""Live tasks whose messages are gone: counted, told in every form, and mended as docs/findings.md says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from tests.audit.test_each_code_alone import hinted, statements

from pgflow_migrate.audit import AuditReport, LostMessages, lost
from pgflow_migrate.audit.render import words
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.cli import main
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.verify.run import verify

Database = psycopg.Connection[dict[str, Any]]

RUNS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(1, 7)]
SENTENCE = (
    "3 live tasks have no message in the queue: they will never run, upgraded or not (flow Gone 3). What to"
    ' do: "Live tasks without a message" in docs/findings.md (pgflow-migrate docs findings).'
)


@pytest.fixture
def gone(database: Database) -> Database:
    """Six runs whose queue was dropped: three live (one of them started), three not; and a whole queue."""
    database.execute(
        """
        select pgflow.create_flow('Gone');
        select pgflow.add_step('Gone', 'pack');
        select pgflow.create_flow('whole');
        select pgflow.add_step('whole', 'pack', start_delay => 3600);
        select pgflow.start_flow('whole', '{}');
        """
    )
    for run in RUNS:
        database.execute("select pgflow.start_flow('Gone', '{}', %s)", [run])
    database.execute("select from pgmq.read('Gone', 60, 1)")
    database.execute("select pgflow.start_tasks('Gone', array[1], null)")
    over = iter(RUNS[3:])
    for change in (
        "update pgflow.step_tasks set message_id = null where run_id = %s",
        "update pgflow.step_tasks set permanently_stalled_at = now() where run_id = %s",
        "update pgflow.runs set status = 'failed', failed_at = now() where run_id = %s",
    ):
        database.execute(change, [next(over)])
    database.execute("select pgmq.drop_queue('Gone')")
    return database


EXPECTED = (LostMessages("Gone", "gone", 3, tuple(f"{run}/pack/0" for run in RUNS[:3])),)


def mend(database: Database) -> None:
    """Follow the hint of queue-absent."""
    (finding,) = run_audit(database).blocking
    for sql in hinted(finding):
        database.execute(sql.encode())


def test_they_are_counted_whether_the_queue_is_gone_or_made_anew(gone: Database) -> None:
    report = run_audit(gone)
    assert (report.lost, report.lost_tasks) == (EXPECTED, 3)
    mend(gone)
    report = run_audit(gone)
    assert (report.blocking, report.lost) == ((), EXPECTED)


def test_every_form_tells_them_and_they_block_nothing(gone: Database) -> None:
    mend(gone)

    def audit(form: str, command: str = "audit") -> str:
        result = CliRunner().invoke(main, [command, "--dsn", gone.info.dsn, "--format", form])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert SENTENCE in audit("table").splitlines()
    assert f"::warning title=live tasks without a message::{SENTENCE}" in audit("github").splitlines()
    assert SENTENCE in audit("junit")
    (told,) = json.loads(audit("json"))["lost_messages"]
    assert (told["flow_slug"], told["queue_name"], told["tasks"]) == ("Gone", "gone", 3)
    page = audit("html")
    assert SENTENCE.replace('"', "&#34;") in page
    assert re.findall(r'<tr class="lost">\n<th scope="row"><code>(\w+)</code>', page) == ["Gone"]
    told = "3 live tasks have no message: they will never run; pgflow-migrate docs findings says what to do"
    assert told in audit("table", "status")
    assert json.loads(audit("json", "status"))["audit"]["lost_tasks"] == 3


def test_after_the_upgrade_verify_tells_the_same(gone: Database) -> None:
    mend(gone)
    upgrade(gone.info.dsn)
    assert [(v.check, v.count, v.samples) for v in verify(gone.info.dsn).violations] == [
        ("live-task-message", 3, EXPECTED[0].samples)
    ]
    assert run_audit(gone).lost == EXPECTED


def test_the_statement_of_the_page_sends_them_anew_and_the_runs_end(gone: Database) -> None:
    mend(gone)
    resend = statements(words.LOST_SECTION).replace("'orders'", "'Gone'").replace("q_orders", "q_gone")
    assert gone.execute(resend.encode()).rowcount == 3
    assert gone.execute(resend.encode()).rowcount == 0
    report = run_audit(gone)
    assert (report.blocking, report.lost) == ((), ())
    gone.execute(
        "update pgflow.step_tasks set queued_at = now() - interval '1 day',"
        " started_at = now() - interval '1 day' where status = 'started'"
    )
    gone.execute("select pgflow.requeue_stalled_tasks()")
    read = gone.execute("select array_agg(msg_id) as ids from pgmq.read('Gone', 60, 9)").fetchall()[0]["ids"]
    assert len(read) == 3
    tasks = gone.execute("select * from pgflow.start_tasks('Gone', %s::bigint[], null)", [read]).fetchall()
    for task in tasks:
        gone.execute("select pgflow.complete_task(%s, 'pack', 0, '1')", [task["run_id"]])
    done = gone.execute("select count(*) as n from pgflow.runs where status = 'completed'").fetchone()
    assert done == {"n": 3}


def test_a_message_in_the_archive_alone_is_lost_too(gone: Database) -> None:
    mend(gone)
    gone.execute("select pgmq.archive('whole', 1)")
    report = run_audit(gone)
    assert report.lost is not None
    assert [(found.flow_slug, found.tasks) for found in report.lost] == [("Gone", 3), ("whole", 1)]
    assert words.lost(report).startswith("4 live tasks have no message in the queue: they will never run,")
    assert "(flow Gone 3, whole 1)" in words.lost(report)


def test_many_flows_are_named_by_the_first_five(gone: Database) -> None:
    found = tuple(LostMessages(f"f{number}", f"f{number}", 1, ()) for number in range(7))
    report = run_audit(gone)
    many = AuditReport(report.findings, "d", "18", report.taken_at, found)
    assert "(flow f0 1, f1 1, f2 1, f3 1, f4 1 and 2 more)" in words.lost(many)
    one = AuditReport(report.findings, "d", "18", report.taken_at, found[:1])
    assert words.lost(one).startswith("1 live task has no message in the queue: it will never run,")


def test_many_queues_are_read_piece_by_piece_and_their_locks_given_back(
    gone: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost, "_QUEUES_PER_QUERY", 1)
    mend(gone)
    gone.execute("select pgmq.delete('whole', 1)")
    with gone.transaction():
        found = lost.lost_messages(gone)
        held = gone.execute(
            "select relation::regclass::text as held from pg_locks where pid = pg_backend_pid()"
            " and relation::regclass::text like 'pgmq.q%'"
        ).fetchall()
        path = gone.execute("show search_path").fetchone()
    assert found is not None
    assert [(one.flow_slug, one.tasks) for one in found] == [("Gone", 3), ("whole", 1)]
    assert (held, path) == ([], gone.execute("show search_path").fetchone())


@pytest.mark.parametrize(
    "change",
    [
        "revoke select on pgflow.step_states from looker",
        "revoke select on pgmq.q_whole from looker",
        "alter table pgflow.runs enable row level security",
        "revoke usage on schema pgflow from looker",
    ],
)
def test_what_may_not_be_read_is_not_called_none(change: str, gone: Database) -> None:
    gone.execute("create role looker; grant usage on schema pgflow, pgmq to looker")
    try:
        gone.execute(
            "grant select on all tables in schema pgflow, pgmq to looker;"
            " grant select on all sequences in schema pgmq to looker; set role looker"
        )
        assert run_audit(gone).lost == EXPECTED
        gone.execute(f"reset role; {change}; set role looker".encode())
        report = run_audit(gone)
        assert report.lost is None
        # Else a finding says what is lacking.
        assert bool(words.lost(report)) == ("step_states" in change)
    finally:
        gone.execute("reset role; drop owned by looker; drop role looker")


@pytest.mark.parametrize(
    "change",
    [
        "alter table pgflow.runs drop column status cascade",
        "alter table pgflow.step_tasks drop column permanently_stalled_at cascade",
        "drop table pgflow.step_states cascade",
    ],
)
def test_a_damaged_schema_is_a_finding_and_no_error(change: str, gone: Database) -> None:
    gone.execute(change.encode())
    report = run_audit(gone)
    assert {finding.code for finding in report.blocking} >= {"release-unexpected"}
    assert (report.lost, words.lost(report)) == (None, "")


@pytest.mark.parametrize("revision", ["", "core_0_16_0"])
def test_without_anything_to_look_at_there_is_none(
    revision: str, database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    assert run_audit(connect(database_at(revision))).lost == (() if revision else None)
