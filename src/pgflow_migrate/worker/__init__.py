"""A small worker in Python: define a :class:`Flow`, run a :class:`Worker`."""

from __future__ import annotations

from pgflow_migrate.worker.claims import Fatal, RefusedMessage
from pgflow_migrate.worker.flow import Context, Flow, Handler, Json, Step
from pgflow_migrate.worker.handshake import HandshakeError, PausedError
from pgflow_migrate.worker.loop import Worker
from pgflow_migrate.worker.retries import RightMissingError
from pgflow_migrate.worker.settings import Settings
from pgflow_migrate.worker.summary import Ending, Summary

__all__ = [
    "Context",
    "Ending",
    "Fatal",
    "Flow",
    "Handler",
    "HandshakeError",
    "Json",
    "PausedError",
    "RefusedMessage",
    "RightMissingError",
    "Settings",
    "Step",
    "Summary",
    "Worker",
]
