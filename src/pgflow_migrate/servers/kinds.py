"""Making a server from a word."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgflow_migrate.dsn import normalise_dsn
from pgflow_migrate.errors import EXIT_USAGE, PgflowMigrateError
from pgflow_migrate.servers import cluster, container, external, installation
from pgflow_migrate.servers.server import Server

DEFAULT = "embedded:18"

KINDS = (
    "embedded[:16|:17|:18]",
    "binaries:/path/to/bin",
    "container[:image]",
    "a connection string of a role that may create databases",
)
"""The spellings that :func:`open_server` takes, for messages and help texts."""


class ServerKindError(PgflowMigrateError):
    """The word names no kind of server."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True)
class LocalServer(Server):
    """A server that this process runs.

    Attributes:
        cluster: its process and files.
    """

    cluster: cluster.Cluster = field(kw_only=True)

    def crash(self) -> None:
        """End it without a shutdown, and let it recover: what was not durable may be lost."""
        self.cluster.stop()
        self.cluster.start()


@contextlib.contextmanager
def open_server(
    kind: str = DEFAULT,
    *,
    durable: bool = False,
    password: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Start or reach a server; what was made for it is gone at the end, whatever happened.

    Args:
        kind: one of :data:`KINDS`.
        durable: keep protection against crashes; for servers of our own, by default off for speed.
        password: for servers of our own: listen on a free port of 127.0.0.1 as well, with this password.
        settings: for servers of our own: more server settings, by name.

    Raises:
        ServerKindError: ``kind`` is none of them.
        PgflowMigrateError: the server cannot be started or reached.
    """
    word, _, rest = kind.partition(":")
    if word in ("embedded", "binaries"):
        found = _installation(kind)
        label = f"{word}-{found.version}"
        with _started(found, label, durable=durable, password=password, settings=settings) as server:
            yield server
    elif word == "container":
        with container.run(rest or container.DEFAULT_IMAGE) as server:
            yield server
    elif "://" in kind or "=" in kind:
        with external.reach(normalise_dsn(kind)) as server:
            yield server
    else:
        raise _no_kind(kind)


@contextlib.contextmanager
def _started(
    found: installation.Installation,
    label: str,
    *,
    durable: bool,
    password: str | None,
    settings: Mapping[str, str] | None,
) -> Iterator[Server]:
    if os.name != "posix":
        raise PgflowMigrateError(
            "An embedded server runs on Linux and macOS only.", "Give a connection string."
        )
    with cluster.run(found, durable=durable, password=password, settings=settings) as running:
        yield LocalServer(label, running.admin_dsn, bin_dir=found.bin_dir, log=running.log, cluster=running)


def _installation(kind: str) -> installation.Installation:
    word, _, rest = kind.partition(":")
    if word == "embedded" and (not rest or rest.isdecimal()):
        return installation.embedded(int(rest or DEFAULT.partition(":")[2]))
    if word == "binaries" and rest:
        return installation.in_folder(Path(rest).absolute())
    raise _no_kind(kind)


def _no_kind(kind: str) -> ServerKindError:
    return ServerKindError(
        f"{kind!r} is no kind of server.", f"Give {', '.join(KINDS[:-1])}, or {KINDS[-1]}."
    )
