"""Random sequences of calls against a model of the contract: part 1 of 2."""

from __future__ import annotations

from tests.dirty_runs.model.agreement import SEQUENCES, assert_agreement


def test_the_database_does_what_the_model_does_in_a_thousand_sequences(dsn: str) -> None:
    assert_agreement(dsn, range(0 * SEQUENCES, 1 * SEQUENCES))
