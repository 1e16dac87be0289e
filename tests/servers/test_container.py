"""A server in a container, for real.

The image is the one that ``.ci/docker-engine`` builds, or the default one where that can be pulled. In CI, as
root, the script is run when there is no engine or no image: it needs no image registry.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server, container, open_server, pgmq_as_extension

SCRIPT = Path(__file__).parents[2] / ".ci" / "docker-engine"
BUILT = "pgflow-migrate/postgres:15"

pytestmark = pytest.mark.container


def docker(*arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["docker", *arguments], input=data, capture_output=True, check=False)


def containers_of(image: str) -> list[str]:
    """The engine's containers of an image, running or not."""
    listed = docker("ps", "--all", "--quiet", "--filter", f"ancestor={image}")
    assert listed.returncode == 0, listed.stderr
    return listed.stdout.decode().split()


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """One process at a time: they count containers, and may start and stop the engine."""
    with (Path(tempfile.gettempdir()) / "pgflow-migrate-container-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def image(alone: None) -> Iterator[str]:
    """An image that the engine has; the tests are skipped, with the reason, where there is none."""
    with pytest.MonkeyPatch.context() as environment:
        # The helper container of testcontainers would have to be pulled.
        environment.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        has_docker = shutil.which("docker") is not None
        if has_docker and docker("image", "inspect", BUILT).returncode == 0:
            yield BUILT
        elif os.environ.get("CI") == "true" and os.geteuid() == 0:
            done = subprocess.run(
                ["bash", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            print(done.stdout)
            if done.returncode != 0:
                pytest.skip(f"no container can run here: {done.stdout.strip()}")
            yield BUILT
            # Only an engine that the script has started is stopped.
            subprocess.run(["bash", SCRIPT, "stop"], capture_output=True, check=True)
        elif not has_docker or docker("info").returncode != 0:
            pytest.skip(f"no Docker engine answers; as root, {SCRIPT} makes one")
        else:
            pulled = docker("pull", container.DEFAULT_IMAGE)
            if pulled.returncode != 0:
                pytest.skip(f"{container.DEFAULT_IMAGE} cannot be pulled: {pulled.stderr.decode().strip()}")
            yield container.DEFAULT_IMAGE


@pytest.fixture(scope="module")
def started(image: str) -> Iterator[Server]:
    """A server in a container."""
    before = containers_of(image)
    with open_server(f"container:{image}") as server:
        assert len(containers_of(image)) == len(before) + 1
        yield server
    assert containers_of(image) == before


def test_a_flow_runs_in_a_container(started: Server) -> None:
    dsn = Templates(started).clone("core_0_16_0", "own")
    with psycopg.connect(dsn, autocommit=True) as connection:
        version = connection.info.server_version // 10000
        assert started.label == f"container-{version}"
        # As an extension where the image has it, else as SQL.
        members = connection.execute("select count(*) from pg_extension where extname = 'pgmq'").fetchall()
        assert members == [(int(pgmq_as_extension(connection)),)]
        connection.execute("select pgflow.create_flow('Orders'), pgflow.add_step('Orders', 'load')")
        connection.execute("select pgflow.start_flow('Orders', '{}')")
        assert connection.execute("select message ->> 'step_slug' from pgmq.q_orders").fetchall() == [
            ("load",)
        ]
        assert connection.execute("select count(*) from realtime.messages").fetchall() == [(2,)]


def test_an_exception_removes_the_container(image: str) -> None:
    before = containers_of(image)

    def fail() -> None:
        with open_server(f"container:{image}"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert containers_of(image) == before


def test_an_image_without_a_server_is_refused_and_leaves_no_container(image: str) -> None:
    empty_archive = bytes(10240)
    made = docker(
        "import", "--change", 'CMD ["/no-such-program"]', "-", "pgflow-migrate/empty:1", data=empty_archive
    )
    assert made.returncode == 0, made.stderr
    try:
        with pytest.raises(PgflowMigrateError) as caught, open_server("container:pgflow-migrate/empty:1"):
            pass
        assert caught.value.message.startswith("testcontainers cannot run pgflow-migrate/empty:1: ")
        assert "/no-such-program" in caught.value.message
        assert containers_of("pgflow-migrate/empty:1") == []
    finally:
        docker("image", "rm", "--force", "pgflow-migrate/empty:1")
