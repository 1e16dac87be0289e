"""A server of the tests' own, because it is killed, and on it what upgrades are broken on."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from tests.faults.ground import Ground, grounds


@pytest.fixture(scope="session")
def all_of_them() -> Iterator[tuple[Ground, ...]]:
    """Grounds at 0.16.0, at 0.15.0 and at queue identity."""
    if sys.platform != "linux":
        pytest.skip("NOT CHECKED: faults are made with Linux's /proc and prlimit")
    with grounds("core_0_16_0", "core_0_15_0", "queue_identity") as there:
        yield there


@pytest.fixture
def from_0_16(all_of_them: tuple[Ground, ...]) -> Ground:
    """A populated 0.16.0 database."""
    return all_of_them[0]


@pytest.fixture
def from_0_15(all_of_them: tuple[Ground, ...]) -> Ground:
    """A populated 0.15.0 database."""
    return all_of_them[1]


@pytest.fixture
def from_queue_identity(all_of_them: tuple[Ground, ...]) -> Ground:
    """A populated database at queue identity."""
    return all_of_them[2]
