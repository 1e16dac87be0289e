"""A TCP line between a client and a server that stops at a statement, for something to be broken there.

It speaks PostgreSQL's protocol, so the client is the unchanged command. What the client sends in one message,
such as a whole SQL file, goes on statement by statement, and the answers come back as one: so there is a
boundary between any two statements of a file, too. The first connection is the upgrade's own; all others are
passed on as they are.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import pglast

When = Literal["before", "sent", "answered"]
"""Where a line stops: before the statement has left, when it has, or when the server has answered it."""

_CANCEL = 80877102
_NO_LINGER = struct.pack("ii", 1, 0)
_HEAD = 5  # a message's type and length


class Verdict(enum.Enum):
    """What becomes of the line after a stop."""

    GO_ON = "the statement, or its answer, is passed on"
    HANG_UP = "both ends are closed; an answer that was held is lost"
    RESET = "as HANG_UP, but by RST, as a firewall or a crashed router does it"


@dataclass(frozen=True)
class Stop:
    """Where to stop: the statement's place among all that the upgrade's connection sends, from 0."""

    number: int
    when: When = "before"


class _Stream:
    """Whole messages from a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()

    def take(self, size: int) -> bytes:
        """Exactly ``size`` bytes.

        Raises:
            EOFError: the other end has closed.
        """
        while len(self._buffer) < size:
            received = self.sock.recv(65536)
            if not received:
                raise EOFError
            self._buffer += received
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def message(self) -> bytes:
        """One message, its head included."""
        head = self.take(_HEAD)
        return head + self.take(struct.unpack("!i", head[1:])[0] - 4)

    def start_up(self) -> bytes:
        """A connection's first message, which has no type."""
        head = self.take(4)
        return head + self.take(struct.unpack("!i", head)[0] - 4)


class Line:
    """The line; it listens until it is closed.

    Attributes:
        port: where, on 127.0.0.1.
        messages: what the upgrade's connection has sent, each message as its statements.
        backend: the process id at the server's end of the upgrade's connection.
        cancelled: set when a cancel request has been delivered.
        stopped: set when the stop was reached.
        failure: what went wrong in here.
    """

    def __init__(
        self, server: str, stop: Stop | None = None, act: Callable[[], Verdict] | None = None
    ) -> None:
        """A line to the Unix socket ``server``; at ``stop`` it calls ``act``."""
        self._server = server
        self._stop = stop
        self._act = act
        self._main = True
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.messages: list[tuple[str, ...]] = []
        self._count = 0
        self.backend = 0
        self.cancelled = threading.Event()
        self.stopped = threading.Event()
        self.failure: BaseException | None = None
        self._start(self._accept)

    def close(self) -> None:
        """Listen no longer, and wait until the connections have ended: the client's end has to be closed."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            serve = self._upgrade if self._main else self._other
            self._main = False
            self._start(self._connection, client, serve)

    def _connection(self, client: socket.socket, serve: Callable[[_Stream, _Stream], Verdict]) -> None:
        server = socket.socket(socket.AF_UNIX)
        verdict = Verdict.HANG_UP
        try:
            server.connect(self._server)
            verdict = serve(_Stream(client), _Stream(server))
        except (OSError, EOFError):
            pass  # either end has gone, and the other one is told by closing
        except BaseException as error:  # shown by whoever waits for this thread
            self.failure = error
        finally:
            for end in (client, server):
                if verdict is Verdict.RESET:
                    with contextlib.suppress(OSError):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                end.close()

    def _other(self, client: _Stream, server: _Stream) -> Verdict:
        first = client.start_up()
        server.sock.sendall(first)
        if struct.unpack("!i", first[4:8])[0] == _CANCEL:
            with contextlib.suppress(OSError):
                server.sock.recv(1)  # it closes when it has passed the request on
            self.cancelled.set()
            return Verdict.HANG_UP
        self._start(_copy, server.sock, client.sock)
        _copy(client.sock, server.sock)
        return Verdict.HANG_UP

    def _upgrade(self, client: _Stream, server: _Stream) -> Verdict:
        server.sock.sendall(client.start_up())
        for message in _until_ready(server):
            if message[:1] == b"K":
                self.backend = struct.unpack("!i", message[5:9])[0]
            client.sock.sendall(message)
        while True:
            request = [client.message()]
            while request[-1][:1] not in (b"Q", b"S", b"X"):
                request.append(client.message())
            if request[0][:1] == b"X":
                server.sock.sendall(request[0])
                return Verdict.HANG_UP
            verdict = self._request(request, client, server)
            if verdict is not Verdict.GO_ON:
                return verdict

    def _request(self, request: list[bytes], client: _Stream, server: _Stream) -> Verdict:
        text = _text(request)
        pieces = split(text) if request[0][:1] == b"Q" else (text,)
        self.messages.append(pieces)
        for piece in pieces:
            sent = _query(piece) if request[0][:1] == b"Q" else b"".join(request)
            when = self._stop.when if self._stop and self._stop.number == self._count else None
            self._count += 1
            if when == "before" and (verdict := self._halt()) is not Verdict.GO_ON:
                return verdict
            with contextlib.suppress(
                ConnectionError
            ):  # what the server said before it went is still to be read
                server.sock.sendall(sent)
            if when == "sent" and (verdict := self._halt()) is not Verdict.GO_ON:
                return verdict
            failed = False
            answer: list[bytes] = []
            try:
                for message in _until_ready(server):
                    failed = failed or message[:1] == b"E"
                    answer.append(message)
            except (EOFError, ConnectionError):
                client.sock.sendall(b"".join(answer))
                raise
            if when == "answered" and (verdict := self._halt()) is not Verdict.GO_ON:
                return verdict
            last = failed or piece is pieces[-1]
            client.sock.sendall(b"".join(answer if last else answer[:-1]))
            if failed:
                break
        return Verdict.GO_ON

    def _halt(self) -> Verdict:
        assert self._act is not None
        self.stopped.set()
        return self._act()


@functools.cache
def split(text: str) -> tuple[str, ...]:
    """The statements of a message; put together again they are exactly ``text``."""
    ends = [place.stop for place in pglast.split(text, only_slices=True)]
    starts = [0, *(text.index(";", end) + 1 for end in ends[:-1])]
    return tuple(text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True))


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while received := source.recv(65536):
            target.sendall(received)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _until_ready(server: _Stream) -> Iterator[bytes]:
    while True:
        message = server.message()
        yield message
        if message[:1] == b"Z":
            return


def _text(request: list[bytes]) -> str:
    kind, body = request[0][:1], request[0][_HEAD:]
    return (body[:-1] if kind == b"Q" else body.split(b"\0")[1]).decode()


def _query(text: str) -> bytes:
    body = text.encode() + b"\0"
    return b"Q" + struct.pack("!i", len(body) + 4) + body
