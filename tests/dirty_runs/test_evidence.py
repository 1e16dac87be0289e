"""The evidence gate: what a check comes to, its seed, and that both forms say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.dirty_runs import evidence
from tests.dirty_runs.evidence import Case, Check

CHECK = Check("reconciliation", "It holds.", ("test_model_1.py::*", "crashes/test_chunks.py::test_a"))


def case(file: str, name: str, *, passed: bool = True, seconds: float = 0.5) -> Case:
    return Case(f"{file}::{name}", f"{file}::{name}[x]", passed, seconds)


MODEL, CRASH = case("test_model_1.py", "test_m"), case("crashes/test_chunks.py", "test_a")
BROKEN = case("crashes/test_chunks.py", "test_a", passed=False)


@pytest.mark.parametrize(
    ("cases", "result", "tests", "failures"),
    [
        ([MODEL, CRASH, case("test_other.py", "test_a")], "passed", 2, ()),
        ([MODEL], "missing", 1, ()),
        ([CRASH], "missing", 1, ()),
        ([MODEL, BROKEN], "failed", 2, ("crashes/test_chunks.py::test_a[x]",)),
        ([BROKEN], "failed", 1, ("crashes/test_chunks.py::test_a[x]",)),
        ([], "missing", 0, ()),
    ],
)
def test_a_check_has_passed_when_all_of_its_tests_have_run_and_passed(
    cases: list[Case], result: str, tests: int, failures: tuple[str, ...]
) -> None:
    found = evidence.shown(CHECK, cases)
    assert (found.result, found.tests, found.seconds, found.failures) == (result, tests, tests / 2, failures)


def test_table_and_json_have_check_seed_result_and_duration() -> None:
    found = [evidence.shown(CHECK, [MODEL, BROKEN]), evidence.shown(Check("writer", "f()", ("x::y",)), [])]
    assert evidence.table(found).splitlines() == [
        "failed   reconciliation     2 tests    1.00 s  It holds. [seed: hypothesis, derandomized]",
        "         crashes/test_chunks.py::test_a[x]",
        "missing  writer             0 tests    0.00 s  f()",
    ]
    assert json.loads(evidence.document(found, "0 of 2.")) == {
        "passed": False,
        "summary": "0 of 2.",
        "checks": [
            {
                "topic": "reconciliation",
                "check": "It holds.",
                "seed": "hypothesis, derandomized",
                "result": "failed",
                "tests": 2,
                "seconds": 1.0,
                "failures": ["crashes/test_chunks.py::test_a[x]"],
            },
            {
                "topic": "writer",
                "check": "f()",
                "seed": None,
                "result": "missing",
                "tests": 0,
                "seconds": 0.0,
                "failures": [],
            },
        ],
    }


def test_every_file_with_random_choices_has_its_seed() -> None:
    folder = Path(evidence.__file__).parent
    random = re.compile(
        r"^(from|import) (hypothesis|random|tests\.dirty_runs\.model\.driver)\b", re.MULTILINE
    )
    found = {
        file.relative_to(folder).as_posix()
        for file in folder.rglob("test_*.py")
        if random.search(file.read_text(encoding="utf-8"))
    }
    assert found == set(evidence.SEEDS)
