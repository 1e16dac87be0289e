"""What the contract promises, sentence by sentence, and the tests that show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """A sentence that a reviewer can check.

    Attributes:
        topic: contract, isolation or reconciliation.
        text: the sentence.
        tests: file::function, below tests/dirty_runs/.
    """

    topic: str
    text: str
    tests: tuple[str, ...]


PROMISES: tuple[Promise, ...] = ()
