"""A server in a container, by testcontainers, where a Docker engine answers."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.servers.ports import LOCALHOST, free_port
from pgflow_migrate.servers.server import Server

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

DEFAULT_IMAGE = "ghcr.io/pgmq/pg17-pgmq:v1.5.1"

START_TIMEOUT = 120.0
"""Seconds within which the server in a new container must answer."""

_PORT = 5432
_DEFAULT_HOST = "unix:///var/run/docker.sock"


@contextlib.contextmanager
def run(image: str = DEFAULT_IMAGE) -> Iterator[Server]:
    """Run an image; the container is removed at the end, whatever happened.

    Args:
        image: one that takes POSTGRES_PASSWORD and PGPORT as the official images of PostgreSQL do.

    Raises:
        PgflowMigrateError: testcontainers is not installed, no engine answers, or the image does not run.
    """
    host_network = not _has_bridge()
    from docker.errors import DockerException  # type: ignore[import-untyped]
    from testcontainers.core.container import DockerContainer

    password = secrets.token_hex(16)
    container = DockerContainer(image).with_env("POSTGRES_PASSWORD", password)
    if host_network:
        # An engine that may not touch the firewall has no bridge, so it cannot publish ports.
        port = free_port()
        container.with_env("PGPORT", str(port)).with_kwargs(network_mode="host")
    else:
        container.with_exposed_ports(_PORT)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(container)
            host = LOCALHOST if host_network else container.get_container_host_ip()
            port = port if host_network else int(container.get_exposed_port(_PORT))
        except DockerException as error:
            raise PgflowMigrateError(
                f"testcontainers cannot run {image}: {getattr(error, 'explanation', None) or error}",
                "Where images cannot be pulled, also set TESTCONTAINERS_RYUK_DISABLED=true.",
            ) from error
        except TimeoutError as error:
            raise PgflowMigrateError(
                f"The server in {image} did not start: {_last_words(container)}"
            ) from error
        dsn = make_conninfo(
            host=host, port=port, user="postgres", password=password, dbname="postgres", sslmode="disable"
        )
        version = _wait_until_it_answers(container, image, dsn)
        yield Server(f"container-{version}", dsn)


def _has_bridge() -> bool:
    """Whether the engine has its usual network.

    Raises:
        PgflowMigrateError: testcontainers is not installed, or no engine answers.
    """
    try:
        from docker.errors import DockerException
        from testcontainers.core.docker_client import DockerClient, get_docker_host
    except ImportError as error:
        raise PgflowMigrateError(
            "testcontainers is not installed.", "Install it: pip install 'pgflow-migrate[testcontainers]'"
        ) from error
    try:
        _knock(get_docker_host() or _DEFAULT_HOST)
        with contextlib.closing(DockerClient().client) as engine:
            return any(network.name == "bridge" for network in engine.networks.list())
    except (DockerException, OSError) as error:
        raise PgflowMigrateError(
            "No Docker engine answers.", "Start one, or use an embedded server."
        ) from error


def _knock(host: str) -> None:
    """Connect to an engine's socket; docker's own client leaves its socket open when that fails.

    Raises:
        OSError: nobody listens.
    """
    scheme, _, path = host.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.connect(path)


def _wait_until_it_answers(container: DockerContainer, image: str, dsn: str) -> int:
    """The major version of the server in the container."""
    deadline = time.monotonic() + START_TIMEOUT
    reason = ""
    while time.monotonic() < deadline:
        try:
            with psycopg.connect(dsn, connect_timeout=5) as connection:
                return connection.info.server_version // 10000
        except psycopg.OperationalError as error:
            reason = str(error).strip()
        container.reload()
        if container.status == "exited":
            reason = _last_words(container)
            break
        time.sleep(0.1)
    raise PgflowMigrateError(f"The server in {image} did not start: {reason}")


def _last_words(container: DockerContainer) -> str:
    """The last line that the container printed, errors first."""
    output, errors = container.get_logs()
    lines = (errors or output).decode(errors="replace").splitlines()
    return lines[-1] if lines else "it printed nothing"
