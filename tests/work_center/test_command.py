"""``pgflow-migrate work-center`` and ``alembic -n work_center``."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.config import main as alembic
from click.testing import CliRunner, Result
from rich.console import Console
from tests.work_center.stores import everything, state

from pgflow_migrate import resources
from pgflow_migrate.cli import main, output
from pgflow_migrate.work_center import upgrade as upgrades
from pgflow_migrate.work_center.progress import StepStarted
from pgflow_migrate.work_center.status import status

Make = Callable[..., Path]


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["work-center", *map(str, arguments)])


def _json(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_upgrade_says_what_it_did(make: Make) -> None:
    path = make(example=True)
    done = _run("upgrade", path, "--now", 1000)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"Upgraded {path} from version 22 to 35 in ")
    assert lines[0].endswith(" s: 13 steps.")
    assert lines[1] == (
        "Rows that were backfilled: 2 in conversations, 3 in conversation_entries, 1 in engine_turns,"
        " 3 in action_entries."
    )
    assert lines[2].startswith(f"The store as it was before: {path}.before-23-")
    told = done.stderr.splitlines()
    assert told[0].startswith(f"Backup: {path}.before-23-")
    assert [line.split(":")[0] for line in told[1:3]] == ["23-conversation-stream", "24-action-stream"]
    again = _run("upgrade", path)
    assert (again.exit_code, again.stderr) == (0, "")
    assert again.stdout == f"Already upgraded: {path} is at version 35; nothing was changed.\n"


def test_upgrade_in_json_is_one_document(make: Make, tmp_path: Path) -> None:
    path = make(example=True)
    done = _run("upgrade", path, "--now", 5, "--to", "28", "--backup", tmp_path / "copy", "--format", "json")
    document = _json(done)
    assert {name: value for name, value in document.items() if name != "steps"} == {
        "status": "upgraded",
        "exit_code": 0,
        "path": str(path),
        "from_version": 22,
        "version": 28,
        "already_current": False,
        "backup": str(tmp_path / "copy"),
        "now": 5,
    }
    assert done.stderr == ""
    assert [step["step"][:2] for step in document["steps"]] == ["23", "24", "25", "26", "27", "28"]
    assert _json(_run("upgrade", path, "--to", "24", "--format", "json"))["status"] == "already-upgraded"


def test_the_source_version_and_no_backup_reach_the_upgrade(make: Make) -> None:
    path = make(example=True)
    done = _run("upgrade", path, "--source-schema-version", 17, "--no-backup")
    assert done.stdout.endswith("No backup was made.\n")
    connection = sqlite3.connect(path)
    keys = [key for (key,) in connection.execute("select source_key from action_entries")]
    connection.close()
    assert {key.partition(":")[0] for key in keys} == {"17"}
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--backup", "x", "--no-backup"),
        ("--now", "-1"),
        ("--now", str(2**53)),
        ("--now", "soon"),
        ("--source-schema-version", "0"),
        ("--source-schema-version", "-22"),
        ("--source-schema-version", "22.5"),
        ("--backup", ""),
        ("--lock-timeout", "5"),
        ("--format", "junit"),
    ],
)
def test_wrong_usage_exits_2(make: Make, arguments: tuple[str, ...]) -> None:
    assert _run("upgrade", make(), *arguments).exit_code == 2


@pytest.mark.parametrize("command", ["upgrade", "status", "verify"])
def test_an_empty_path_is_none(command: str) -> None:
    done = _run(command, "")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith("Error: Invalid value for 'PATH': an empty text is no path.\n")


def test_downgrade_is_no_misspelt_upgrade() -> None:
    done = _run("downgrade", "store.db")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "Error: No such command 'downgrade'. There is no way back but the backup that upgrade makes:"
        " pgflow-migrate docs work-center.\n"
    )


def test_a_step_before_the_stores_own_is_nothing_to_do(make_at: Make) -> None:
    path = make_at("28", example=True)
    before = state(path)
    done = _run("upgrade", path, "--to", "25")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"Already upgraded: {path} is at version 28; nothing was changed.\n"
    for unknown in ("22", "36", "", "conversation-stream"):
        done = _run("upgrade", path, "--to", unknown)
        assert done.exit_code == 1
        assert done.stderr.startswith(f'error: There is no step "{unknown}".\n')
    assert state(path) == before


def test_refusals_have_their_exit_codes_and_documents(make: Make, make_at: Make) -> None:
    bad = make("""insert into work_items (id, messages) values ('w', '[{"role":{}}]')""", name="bad.db")
    done = _run("upgrade", bad, "--no-backup", "--format", "json")
    assert done.exit_code == 3
    document = _json(done)
    assert (document["status"], document["exit_code"]) == ("blocked", 3)
    assert document["error"]["message"] == (
        'Step 30-backfill-projections cannot be done: work item "w": message 1:'
        " an object cannot be stored as role."
    )
    assert document["error"]["details"][0].startswith("Done before, and kept: 23-conversation-stream, ")
    changed = make_at("24", "update schema_migrations set checksum = 'x'", name="changed.db")
    assert _run("upgrade", changed).exit_code == 3
    missing = _run("upgrade", "nowhere", "--format", "json")
    assert (missing.exit_code, _json(missing)["error"]["message"]) == (1, "There is no file nowhere.")
    locked = make(name="locked.db")
    other = sqlite3.connect(locked, isolation_level=None)
    other.execute("begin exclusive")
    done = _run("upgrade", locked, "--lock-timeout", "20ms", "--format", "json")
    other.close()
    assert (done.exit_code, _json(done)["status"]) == (4, "fence")


def test_status_as_a_table_and_as_json(make_at: Make) -> None:
    path = make_at("28", example=True)
    done = _run("status", path)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"store     {path} ({path.stat().st_size:,} bytes, journal mode delete)"
    assert lines[1] == "version   28"
    column = len("32-engine-turn-status-contract")
    assert lines[2:4] == [
        f"steps     {'23-conversation-stream':<{column}}  1970-01-01 00:00:01 UTC",
        f"          {'24-action-stream':<{column}}  1970-01-01 00:00:01 UTC",
    ]
    assert f"          {'29-runtime-indexes':<{column}}  missing" in lines
    assert "rows              2  work_items" in lines
    assert lines[-1].startswith("pending   29-runtime-indexes, 30-backfill-projections, ")
    document = _json(_run("status", path, "--format", "json"))
    assert (document["version"], document["contract"], document["rows"]["runs"]) == (28, True, 2)
    assert document["steps"][0] == {
        "step": "23-conversation-stream",
        "state": "recorded",
        "applied_at": 1000,
        "checksum": True,
    }
    assert document["pending"][0] == "29-runtime-indexes"


def test_verify_as_a_table_and_as_json(make_at: Make) -> None:
    clean = make_at("35", name="clean.db", example=True)
    done = _run("verify", clean)
    assert (done.exit_code, done.stdout) == (0, f"All 12 checks hold in {clean}, at version 35.\n")
    broken = make_at("35", "delete from conversations where work_item_id = 'w1'", example=True)
    done = _run("verify", broken)
    assert done.exit_code == 3
    found, hint, blank = done.stdout.splitlines()[1:4]
    assert done.stdout.splitlines()[0] == "broken  conversations"
    assert (found, hint[:2], blank) == ("  rows: w1", "  ", "")
    assert done.stdout.splitlines()[-1] == f"1 of 12 checks fails in {broken}, at version 35."
    document = _json(_run("verify", broken, "--format", "json"))
    assert (document["status"], document["checks"]["conversations"]) == ("violated", "violated")
    assert document["violations"][0]["samples"] == ["w1"]
    assert document["checks"]["ledger"] == "holds"


def test_on_a_terminal_steps_rows_and_checks_are_counted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, no_color=True, width=100)
    monkeypatch.setattr(output, "console", lambda *, stderr: console)
    path = make(example=True)
    for command in ("upgrade", "status", "verify"):
        assert _run(command, path).exit_code == 0
    shown = written.getvalue()
    assert re.search(r"24-action-stream .* 1 of 13, \d+ s", shown)
    assert re.search(r"30-backfill-projections: rows of events .* 0 of 2, \d+ s", shown)
    assert "Looking at the store" in shown
    assert re.search(r"Checking structure .* 1 of 12, \d+ s", shown)
    for command in ("upgrade", "status", "verify"):
        assert _run(command, path, "--format", "json").exit_code == 0
    assert written.getvalue() == shown


def test_an_interrupt_takes_the_step_back_and_says_what_is_done(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(example=True)
    upgrade = upgrades.upgrade

    def interrupted(*arguments: Any, **options: Any) -> object:
        def listen(event: object) -> None:
            if isinstance(event, StepStarted) and event.number == 3:
                raise KeyboardInterrupt

        return upgrade(*arguments, **{**options, "on_progress": listen})

    monkeypatch.setattr(upgrades, "upgrade", interrupted)
    done = _run("upgrade", path, "--no-backup")
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        "error: Ctrl-C ended the upgrade; what was running was rolled back.",
        "Done before, and kept: 23-conversation-stream, 24-action-stream. It is safe to repeat.",
    ]
    assert status(path).version == 24


def test_the_alembic_command_goes_the_same_way(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = make(example=True), make(name="other.db", example=True)
    arguments = [
        "-c",
        str(resources.alembic_ini()),
        "-n",
        "work_center",
        "-x",
        f"path={path}",
        "-x",
        "now=1000",
    ]
    both = (
        "import sys; from alembic.config import main; given = sys.argv[1:]\n"
        "main([*given, 'upgrade', 'wc_30_backfill_projections']); main([*given, 'current'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", both, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, ["wc_30_backfill_projections"]), done.stderr
    assert "Running upgrade wc_29_runtime_indexes -> wc_30_backfill_projections" in done.stderr
    assert len(list(path.parent.glob("store.db.before-23-*.bak"))) == 1
    _quietly(monkeypatch)
    alembic([*arguments, "-x", "backup=no", "upgrade", "head"])
    assert len(list(path.parent.glob("store.db.before-*"))) == 1
    upgrades.upgrade(other, now=1000, backup=False)
    assert everything(path) == everything(other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("downgrade", "base"),
            "There is no downgrade of a store: the Work Center program knows none either.",
        ),
        (("stamp", "head"), "A store is not stamped: its ledger is the Work Center program's, too."),
        (
            ("upgrade", "head", "--sql"),
            "The Work Center's steps look at the store's rows, which --sql does not.",
        ),
        (("-x", "dsn=x", "upgrade", "head"), 'There is no -x argument "dsn" for a store.'),
        (("-x", "now=soon", "upgrade", "head"), "-x now: 'soon' is no whole number."),
        (
            ("-x", "lock_timeout=5", "upgrade", "head"),
            "-x lock_timeout: '5' is no duration: write a number and",
        ),
        (("-x", "path=", "upgrade", "head"), "No store is given."),
    ],
)
def test_what_alembic_cannot_do_with_a_store_is_one_sentence(
    make_at: Make,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    path = make_at("25")
    before = everything(path)
    _quietly(monkeypatch)
    common = ["-c", str(resources.alembic_ini()), "-n", "work_center", "-x", f"path={path}"]
    with pytest.raises(SystemExit) as caught:
        alembic([*common, *arguments])
    assert caught.value.code == 1
    assert f"error: {message}" in capsys.readouterr().err
    assert everything(path) == before


def _quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ini file's logging would be that of all other tests, too."""
    monkeypatch.setattr("pgflow_migrate.alembic_command.fileConfig", lambda *_, **__: None)
