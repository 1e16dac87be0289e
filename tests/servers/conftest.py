"""What the tests of the servers share."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable
from pathlib import Path

import pytest

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "container: needs a Docker engine")


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait until something is true; fail when it is not within twenty seconds."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "it did not happen within twenty seconds"
            time.sleep(0.02)

    return wait


@pytest.fixture(scope="session")
def nobody() -> pwd.struct_passwd:
    """An unprivileged account, for tests that only root can do."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    return pwd.getpwnam("nobody")
