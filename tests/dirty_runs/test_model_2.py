"""Random sequences of calls against a model of the contract: from seeds, far into runs; planted faults."""

from __future__ import annotations

import pytest
from tests.dirty_runs.model.agreement import SEQUENCES, assert_agreement
from tests.dirty_runs.model.driver import Driver

SEEDS = range(1_000, 1_000 + SEQUENCES)
SEEDS_OF_FAULTS = range(100)


def test_the_database_does_what_the_model_does_in_hundreds_of_sequences(dsn: str) -> None:
    assert_agreement(dsn, SEEDS)


FAULTS = {
    "a request ends a back-off": (
        "_v2_request",
        "case work.state when 'clean' then 'pending' else work.state end",
        "'pending'",
    ),
    "the kind of a settlement is no part of its identity": (
        "_v2_settle",
        "(p_kind, size, identity)",
        "(claim.settlement_kind, size, identity)",
    ),
    "a third claim is allowed": ("recover_task_v2", "(limits ->> 'claims_per_task')::integer", "3"),
    "the start delay is forgotten": ("_v2_dispatch_step", "coalesce(step.opt_start_delay, 0)", "0"),
    "progress does not end a row of failures": ("reconcile_one_run", "failure_count = 0,", ""),
    "processors do not begin with what is due longest": (
        "reconcile_one_run",
        "order by coalesce(due.next_attempt_at, due.requested_at)",
        "order by due.run_id",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_database_that_does_something_else_is_found_out(dsn: str, fault: str) -> None:
    function, right, wrong = FAULTS[fault]
    driver = Driver(dsn)
    try:
        text = driver.session.value(
            "select pg_get_functiondef(oid) from pg_proc"
            " where pronamespace = 'pgflow'::regnamespace and proname = %s",
            function,
        )
        assert text.count(right) == 1
        driver.session.execute(text.replace(right, wrong))
        assert any(driver.check(seed) for seed in SEEDS_OF_FAULTS)
    finally:
        driver.close()
