"""Runs every check that the contract of protocol 2 names, on databases of its own, and shows what came out.

``make evidence``, or ``python -m tests.dirty_runs.evidence [--format json] [--topic reporting]``. A table,
and the same as JSON, a line for each check: ``make --silent evidence > evidence.json`` leaves the table on
the terminal. Exits 1 when a check fails or a test that it names does not run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.dirty_runs import test_model_2

from pgflow_migrate.dirty_runs.acceptance import PROMISES
from pgflow_migrate.dirty_runs.contract import TRANSITIONS
from pgflow_migrate.dirty_runs.inventory import INVENTORY

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

DERANDOMIZED = "hypothesis, derandomized"
SEEDS = {
    "test_model_1.py": DERANDOMIZED,
    "test_model_2.py": " and ".join(
        f"{seeds[0]} to {seeds[-1]}" for seeds in (test_model_2.SEEDS, test_model_2.SEEDS_OF_FAULTS)
    ),
    "test_canonical_json.py": DERANDOMIZED,
    "isolation/test_envelope.py": DERANDOMIZED,
    "stress/test_thousand_runs.py": "workers 1 and 2, killer 7",
}
"""What the choices of tests with random choices come from, by file; those of all others are none."""


@dataclass(frozen=True)
class Check:
    """Something that the contract says, and the tests that show it."""

    topic: str
    text: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """A check that has been run.

    Attributes:
        topic: transition, writer, or the topic of a promise.
        check: what the contract says.
        seed: what random choices of its tests come from; None when there are none.
        result: passed, failed, or missing (no such test has run).
        tests: how many ran for it.
        seconds: what they took.
        failures: the names of those that failed.
    """

    topic: str
    check: str
    seed: str | None
    result: str
    tests: int
    seconds: float
    failures: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """A test that has run: ``transitions/test_start.py::test_x``, without its parameters."""

    name: str
    full_name: str
    passed: bool
    seconds: float


def checks(topic: str | None) -> list[Check]:
    """Everything that names a test: transitions, promises, the inventory."""
    found = [
        *(Check("transition", transition.name, (transition.test,)) for transition in TRANSITIONS),
        *(Check(promise.topic, promise.text, promise.tests) for promise in PROMISES),
        *(Check("writer", entry.name, (entry.test,)) for entry in INVENTORY),
    ]
    return [check for check in found if topic in (None, check.topic)]


def run(names: Iterable[str], workers: str) -> list[Case]:
    """Run tests with pytest; what they say goes to stderr."""
    nodes = sorted({f"{HERE / name.partition('::')[0]}" + _function(name) for name in names})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-n", workers, "--dist", "loadfile"),
                f"--junitxml={report}",
                *nodes,
            ],
            cwd=ROOT,
            env={"PGFLOW_MIGRATE_RUNS": "100000", **os.environ},
            stdout=sys.stderr,
            check=False,
        )
        return list(_cases(report)) if report.is_file() else []


def _function(name: str) -> str:
    function = name.partition("::")[2]
    return "" if function == "*" else f"::{function}"


def _cases(report: Path) -> Iterator[Case]:
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  written by pytest just now
        file = case.get("classname", "").removeprefix("tests.dirty_runs.").replace(".", "/") + ".py"
        full_name = f"{file}::{case.get('name')}"
        passed = all(case.find(what) is None for what in ("failure", "error", "skipped"))
        yield Case(full_name.partition("[")[0], full_name, passed, float(case.get("time", 0)))


def shown(check: Check, cases: list[Case]) -> Shown:
    """What the tests of a check have come to."""
    result, own = "passed", []
    for name in check.tests:
        file, _, function = name.partition("::")
        of_name = [c for c in cases if c.name == name or (function == "*" and c.name.startswith(f"{file}::"))]
        own += of_name
        if not of_name:
            result = "missing"
    failures = tuple(case.full_name for case in own if not case.passed)
    files = {name.partition("::")[0] for name in check.tests}
    return Shown(
        check.topic,
        check.text,
        "; ".join(seed for file, seed in SEEDS.items() if file in files) or None,
        "failed" if failures else result,
        len(own),
        round(sum(case.seconds for case in own), 2),
        failures,
    )


def table(results: list[Shown]) -> str:
    """A line for each check, and for each test that failed."""
    lines = []
    for one in results:
        lines.append(
            f"{one.result:<8} {one.topic:<15} {one.tests:>4} tests {one.seconds:>7.2f} s  {one.check}"
            + (f" [seed: {one.seed}]" if one.seed else "")
        )
        lines += [f"         {failure}" for failure in one.failures]
    return "\n".join(lines)


def document(results: list[Shown], summary: str) -> str:
    """The same as JSON, a line for each check."""
    passed = all(one.result == "passed" for one in results)
    checks = ",\n".join(f"  {json.dumps(asdict(one))}" for one in results)
    return f'{{"passed": {json.dumps(passed)}, "summary": {json.dumps(summary)}, "checks": [\n{checks}\n]}}'


def main() -> None:
    """Run the checks and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--format",
        choices=["both", "table", "json"],
        default="both",
        help="both: JSON on stdout, then the table on stderr",
    )
    parser.add_argument(
        "--topic", help="transition, contract, isolation, reconciliation, reporting, commands or writer"
    )
    parser.add_argument("--workers", default="2", help="processes of pytest")
    arguments = parser.parse_args()
    wanted = checks(arguments.topic)
    if not wanted:
        parser.error(f"there is no topic {arguments.topic!r}")
    began = time.monotonic()
    cases = run({test for check in wanted for test in check.tests}, arguments.workers)
    results = [shown(check, cases) for check in wanted]
    passed = sum(one.result == "passed" for one in results)
    summary = (
        f"{passed} of {len(results)} checks passed, {len(cases)} tests, {time.monotonic() - began:.0f} s."
    )
    if arguments.format != "table":
        print(document(results, summary), flush=True)
    if arguments.format != "json":
        print(
            f"{table(results)}\n{summary}",
            file=sys.stderr if arguments.format == "both" else sys.stdout,
        )
    sys.exit(0 if passed == len(results) else 1)


if __name__ == "__main__":
    main()
