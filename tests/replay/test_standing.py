"""What was lost before is a note of ``replay --from``; what the upgrade breaks is a difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgflow_migrate.export import export
from pgflow_migrate.replay import Outcome, file, replay_file, standing
from pgflow_migrate.replay.results import Result
from pgflow_migrate.replay.run import run_scenario
from pgflow_migrate.replay.scenario import load
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server
from pgflow_migrate.upgrade import UpgradeResult, upgrade
from pgflow_migrate.verify.violations import Violation

Database = psycopg.Connection[dict[str, Any]]

RUNS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(1, 6)]
TASKS = [f"{run}/pack/0" for run in RUNS]

# Three live tasks of one queue without their messages, one in another whose message is in the archive alone.
LOST = f"""
  select pgflow.create_flow('gone');
  select pgflow.add_step('gone', 'pack');
  select pgflow.create_flow('put_away');
  select pgflow.add_step('put_away', 'pack');
  select pgflow.start_flow('gone', '{{}}', run::uuid) from unnest('{{{",".join(RUNS[:3])}}}'::text[]) run;
  select pgflow.start_flow('put_away', '{{}}', run::uuid) from unnest('{{{",".join(RUNS[3:])}}}'::text[]) run;
  delete from pgmq.q_gone;
  select pgmq.archive('put_away', 1);
"""


@pytest.fixture
def replayed(
    server: Server,
    database_at: Callable[[str], str],
    connect: Callable[[str], Database],
    tmp_path: Path,
) -> Callable[[str, str], Result]:
    """Export a database at a revision, filled by statements, and replay the file."""

    def replay(revision: str, statements: str) -> Result:
        dsn = database_at(revision)
        connect(dsn).execute(statements.encode())
        export(dsn, tmp_path / "export")
        (result,) = replay_file(server, tmp_path / "export").results
        return result

    return replay


def so_before(result: Result) -> list[str]:
    start = "It was so before the upgrade: "
    return [
        ": ".join(note.removeprefix(start).split("\n")[:2]) for note in result.notes if note.startswith(start)
    ]


@pytest.mark.parametrize("revision", ["core_0_16_0", "dirty_runs"])
def test_messages_that_were_lost_before_are_notes(
    revision: str, replayed: Callable[[str, str], Result]
) -> None:
    result = replayed(revision, LOST)
    assert (result.outcome, result.details) == (Outcome.UPGRADES, ())
    assert so_before(result) == [
        f"live-task-message, queue gone: 3: {'; '.join(TASKS[:3])}",
        f"live-task-archived, queue put_away: 1: {TASKS[3]}",
    ]


def test_whatever_else_an_upgraded_database_had_is_a_note_too(replayed: Callable[[str, str], Result]) -> None:
    result = replayed(
        "queue_identity",
        LOST + "select pgmq.send('gone', '{}'::jsonb); alter table pgmq.q_put_away alter msg_id restart;",
    )
    assert (result.outcome, result.details) == (Outcome.UPGRADES, ())
    assert [found.partition(",")[0] for found in so_before(result)] == [
        *("message-without-task", "live-task-message", "live-task-archived", "queue-sequence")
    ]


def test_of_both_only_what_the_upgrade_loses_is_a_difference(
    replayed: Callable[[str, str], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def losing_one_more(dsn: str, **options: Any) -> UpgradeResult:
        result = upgrade(dsn, **options)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("delete from pgmq.q_put_away; delete from pgmq.a_put_away")
        return result

    monkeypatch.setattr(file, "upgrade", losing_one_more)
    result = replayed("core_0_16_0", LOST)
    assert result.outcome is Outcome.DIFFERS
    (told,) = [text for text in result.details if text.startswith("An invariant does not hold: ")]
    # The one that was archived is lost now, as is the other.
    assert told.startswith(
        f"An invariant does not hold: live-task-message, queue put_away: 2\n{TASKS[3]}; {TASKS[4]}\n"
    )
    assert so_before(result) == [f"live-task-message, queue gone: 3: {'; '.join(TASKS[:3])}"]


def test_a_scenario_may_have_lost_messages_too(server: Server, templates: Templates, tmp_path: Path) -> None:
    folder = tmp_path / "0.16.0" / "lost"
    folder.mkdir(parents=True)
    (folder / "populate.sql").write_text(LOST)
    (folder / "scenario.toml").write_text('description = "Lost."\nupgrade = "succeeds"\n')
    result = run_scenario(server, templates, load(folder))
    assert (result.outcome, result.details) == (Outcome.AS_EXPECTED, ())


def violation(*rows: str, count: int = 0, subject: str = "queue a") -> Violation:
    return Violation("live-task-message", subject, count or len(rows), rows, "hint")


@pytest.mark.parametrize(
    ("before", "now", "new", "old"),
    [
        ([], [violation("1")], [violation("1")], []),
        ([violation("1", "2")], [violation("1", "2")], [], [violation("1", "2")]),
        ([violation("1", "2")], [violation("2")], [], [violation("2")]),
        ([violation("1", "2")], [violation("2", "3")], [violation("3")], []),
        ([violation("1")], [violation("1", subject="queue b")], [violation("1", subject="queue b")], []),
        # More than are compared by row: their number tells.
        ([violation("1", count=9)], [violation("1", count=9)], [], [violation("1", count=9)]),
        ([violation("1", count=9)], [violation("1", count=11)], [violation("1", count=2)], []),
        # Of two flows that share a queue.
        ([violation("1"), violation("2")], [violation("1", "2")], [], [violation("1", "2")]),
    ],
)
def test_before_and_after_are_compared_row_by_row(
    before: list[Violation],
    now: list[Violation],
    new: list[Violation],
    old: list[Violation],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Found:
        violations = tuple(now)

    def found(dsn: str, *, samples: int) -> Any:
        return Found

    monkeypatch.setattr(standing, "verify", found)
    assert standing.after("", standing._by_subject(before)) == (tuple(new), tuple(old))
