"""One connection that is opened when it is needed, and again after it was lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

import psycopg

from pgflow_migrate import database
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.worker.retries import UnreachableError

_T = TypeVar("_T")


class Session:
    """A connection for short transactions; threads may share it and then wait for each other.

    Nothing is kept in the database's session, so a transaction pooler may stand in between.
    """

    def __init__(self, dsn: str) -> None:
        """Nothing is opened yet."""
        self._dsn = dsn
        self._lock = threading.Lock()
        self._connection: database.Connection | None = None

    def call(self, work: Callable[[database.Connection], _T]) -> _T:
        """Run ``work`` in a transaction of its own, READ COMMITTED whatever the server's default.

        Raises:
            UnreachableError: no connection could be had.
            psycopg.Error: what went wrong in it. Whether the transaction was committed is then known, unless
                the connection was lost.
        """
        with self._lock:
            connection = self._connected()
            try:
                with connection.transaction():
                    return work(connection)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self._discard()
                raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self._lock:
            self._discard()

    def _connected(self) -> database.Connection:
        if self._connection is None or self._connection.closed:
            self._discard()
            try:
                self._connection = database.connect(self._dsn, autocommit=True)
            except PgflowMigrateError as error:
                raise UnreachableError(error.message, error.remedy) from None
            self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return self._connection

    def _discard(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
