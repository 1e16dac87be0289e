"""A free TCP port on this machine."""

from __future__ import annotations

import socket

LOCALHOST = "127.0.0.1"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now; another process may take it before you do."""
    with socket.socket() as listener:
        listener.bind((LOCALHOST, 0))
        port: int = listener.getsockname()[1]
        return port
