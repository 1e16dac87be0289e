"""The contract is data: the page is made from it, its tests exist, and SQL has its numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.dirty_runs.protocol import Session

from pgflow_migrate.dirty_runs import contract, render
from pgflow_migrate.dirty_runs.acceptance import PROMISES
from pgflow_migrate.dirty_runs.inventory import INVENTORY

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

NAMED = sorted(
    {transition.test for transition in contract.TRANSITIONS}
    | {entry.test for entry in INVENTORY}
    | {test for promise in PROMISES for test in promise.tests}
)


def test_the_page_is_made_from_the_data() -> None:
    page = (ROOT / "docs" / "dirty-runs.md").read_text(encoding="utf-8")
    assert page == render.markdown(), "make contract"


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_the_contract_names_exists(name: str) -> None:
    file, _, function = name.partition("::")
    text = (HERE / file).read_text(encoding="utf-8")
    wanted = r"^def test_\w+\(" if function == "*" else rf"^\s*def {re.escape(function)}\("
    assert re.search(wanted, text, re.MULTILINE), f"{name} is not there"


def test_every_transition_is_proved_by_a_test_of_its_own() -> None:
    tests = [transition.test for transition in contract.TRANSITIONS]
    assert len(set(tests)) == len(tests) == 13


def test_every_function_that_a_transition_names_exists_with_these_arguments(session: Session) -> None:
    calls = {transition.call for transition in contract.TRANSITIONS}
    found = {
        row["call"]
        for row in session.rows(
            "select format('%s(%s)', p.proname, array_to_string(p.proargnames, ', ')) as call from pg_proc p"
            " where p.pronamespace = 'pgflow'::regnamespace"
        )
    }
    assert calls <= found


def test_every_outcome_that_a_function_can_have_is_in_the_contract_and_the_other_way_round(
    session: Session,
) -> None:
    """Read off the functions' own texts: what they build as 'outcome', themselves and in what they call."""
    helpers = {
        "complete_claim_v2": ["_v2_settle"],
        "fail_claim_v2": ["_v2_settle"],
        "claim_task_v2": ["_v2_claim_record"],
        "reconcile_one_run": ["_v2_chunk"],
    }
    promised: dict[str, set[str]] = {}
    for transition in contract.TRANSITIONS:
        promised.setdefault(transition.call.partition("(")[0], set()).update(transition.response)
    for function, outcomes in promised.items():
        built: set[str] = set()
        for name in [function, *helpers.get(function, [])]:
            body = session.value(
                "select prosrc from pg_proc where pronamespace = 'pgflow'::regnamespace and proname = %s",
                name,
            )
            built |= set(re.findall(r"'outcome',\s*'(\w+)'", body))
            built |= {w for pair in re.findall(r"then '(\w+)' else '(\w+)' end, 'busy'", body) for w in pair}
        assert built == outcomes, function


def test_situations_and_calls_of_the_contentions_are_known() -> None:
    assert {row.situation for row in contract.CONTENTIONS} == set(contract.SITUATIONS)
    rows = [(row.situation, row.first, row.second) for row in contract.CONTENTIONS]
    assert len(set(rows)) == len(rows)


def test_the_contract_says_what_it_is_not() -> None:
    assert len(contract.DEFERRED) >= 5
    assert any("production" in text for text in contract.NO_GO)
