"""A server of the tests' own, because it is killed, and on it what upgrades are broken on."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from tests.faults.ground import Ground, grounds


@pytest.fixture(scope="session")
def both() -> Iterator[tuple[Ground, ...]]:
    """Grounds at 0.16.0 and at 0.15.0."""
    if sys.platform != "linux":
        pytest.skip("NOT CHECKED: faults are made with Linux's /proc and prlimit")
    with grounds("core_0_16_0", "core_0_15_0") as there:
        yield there


@pytest.fixture
def from_0_16(both: tuple[Ground, ...]) -> Ground:
    """A populated 0.16.0 database."""
    return both[0]


@pytest.fixture
def from_0_15(both: tuple[Ground, ...]) -> Ground:
    """A populated 0.15.0 database."""
    return both[1]
