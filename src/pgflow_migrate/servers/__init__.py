"""PostgreSQL servers to replay and test on: embedded, any by its connection string, or in a container.

Every kind gives the same small interface, :class:`Server`; :func:`open_server` makes one from a word.
"""

from __future__ import annotations

from pgflow_migrate.servers.kinds import KINDS, LocalServer, ServerKindError, open_server
from pgflow_migrate.servers.membership import attach_queues_to_extension, detach_queues_from_extension
from pgflow_migrate.servers.server import Server
from pgflow_migrate.servers.surroundings import (
    How,
    install_pgmq,
    install_surroundings,
    pgmq_as_extension,
)

__all__ = [
    "KINDS",
    "How",
    "LocalServer",
    "Server",
    "ServerKindError",
    "attach_queues_to_extension",
    "detach_queues_from_extension",
    "install_pgmq",
    "install_surroundings",
    "open_server",
    "pgmq_as_extension",
]
