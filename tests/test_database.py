"""Connecting: what is set, what is known then, and one sentence without a password for every failure."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflow_migrate import database
from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, PgflowMigrateError
from pgflow_migrate.servers import Server, open_server

HARD_PASSWORD = "p%40@s:s/w#r?d 'x\\"  # noqa: S105


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that listens on 127.0.0.1 and wants a password with every character that is hard to write."""
    with open_server("embedded:18", password=HARD_PASSWORD) as running:
        yield running


def refused(dsn: str) -> PgflowMigrateError:
    with pytest.raises(PgflowMigrateError) as caught:
        database.connect(dsn).close()
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN
    assert "\n" not in str(caught.value)
    return caught.value


def port_of(server: Server) -> int:
    return int(str(conninfo_to_dict(server.admin_dsn)["port"]))


def at(server: Server) -> str:
    return f"127.0.0.1:{port_of(server)}"


@contextmanager
def listening(answer: bytes | None) -> Iterator[int]:
    """A port on which connections are accepted and answered with ``answer``, or with silence."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def serve() -> None:
            with listener.accept()[0] as client:
                client.recv(1024)
                if answer is not None:
                    client.sendall(answer)
                over.wait()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("spelling", ["encoded", "key=value", "sqlalchemy"])
def test_a_password_of_special_characters_opens_the_server(guarded: Server, spelling: str) -> None:
    encoded = quote(HARD_PASSWORD, safe="")
    dsn = {
        "encoded": f"postgres://postgres:{encoded}@{at(guarded)}/postgres",
        "sqlalchemy": f"postgresql+psycopg://postgres:{encoded}@{at(guarded)}/postgres",
        "key=value": guarded.admin_dsn,
    }[spelling]
    with database.connect(dsn) as connection:
        assert connection.execute("select current_user::text").fetchone() == ("postgres",)


def test_a_raw_password_opens_the_server(guarded: Server) -> None:
    with psycopg.connect(guarded.admin_dsn, autocommit=True) as connection:
        connection.execute("create role raw login password 'p%@:/#?w'")
    with database.connect(f"postgresql://raw:p%@:/#?w@{at(guarded)}/postgres") as connection:
        assert connection.execute("select current_user::text").fetchone() == ("raw",)


def test_a_wrong_password_is_said_in_one_sentence(guarded: Server) -> None:
    error = refused(make_conninfo(guarded.admin_dsn, password="s3cr3t"))  # noqa: S106
    assert error.message == f'The server at {at(guarded)} refuses the password of user "postgres".'
    assert "%XX" in error.remedy


def test_a_missing_password_is_said(guarded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSFILE", "/nonexistent")
    error = refused(f"postgresql://postgres@{at(guarded)}/postgres")
    assert (
        error.message
        == f'The server at {at(guarded)} wants a password for user "postgres" and none was given.'
    )


def test_a_missing_database_is_said(guarded: Server) -> None:
    error = refused(make_conninfo(guarded.admin_dsn, dbname="nowhere"))
    assert error.message == f'There is no database "nowhere" at {at(guarded)}.'


def test_an_unknown_host_is_said() -> None:
    error = refused("postgresql://ann:s3cr3t@host.invalid/app")
    assert error.message == "The host of host.invalid:5432 cannot be found."


def test_a_port_where_nothing_listens_is_said() -> None:
    error = refused("postgresql://ann:s3cr3t@127.0.0.1:1/app")
    assert error.message == "No server listens at 127.0.0.1:1."


def test_a_socket_folder_without_a_server_is_said() -> None:
    error = refused("host=/nonexistent dbname=app user=ann")
    assert error.message == "No server listens at socket /nonexistent (port 5432)."


def test_several_hosts_are_all_named() -> None:
    error = refused("postgresql://ann:s3cr3t@127.0.0.1:1,127.0.0.1:2/app")
    assert error.message == "No server listens at 127.0.0.1:1, 127.0.0.1:2."


def test_a_server_that_never_answers_runs_into_the_timeout() -> None:
    with listening(None) as port:
        error = refused(f"host=127.0.0.1 port={port} user=ann dbname=app connect_timeout=2 sslmode=disable")
    assert error.message == f"No answer from 127.0.0.1:{port} in time."
    assert "connect_timeout" in error.remedy


def test_a_server_without_ssl_is_said_when_ssl_is_required() -> None:
    with listening(b"N") as port:
        error = refused(f"host=127.0.0.1 port={port} user=ann dbname=app sslmode=require")
    assert (
        error.message == f"The server at 127.0.0.1:{port} has no SSL, which the connection string requires."
    )


def test_an_ssl_problem_is_said_with_its_reason() -> None:
    error = refused("host=127.0.0.1 port=1 user=ann dbname=app sslmode=sometimes")
    assert error.message == 'SSL with the server at 127.0.0.1:1 fails: invalid sslmode value: "sometimes".'


def test_an_undefined_service_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSERVICEFILE", "/nonexistent")
    error = refused("service=production")
    assert error.message == "The service that the connection string names is not defined."


def test_a_server_without_a_connection_left_is_said() -> None:
    settings_ = {"max_connections": "4", "superuser_reserved_connections": "0", "max_wal_senders": "0"}
    with open_server("embedded:18", settings=settings_) as server:
        opened: list[psycopg.Connection[tuple[object, ...]]] = []
        try:
            for _ in range(4):
                opened.append(database.connect(server.admin_dsn))
            error = refused(server.admin_dsn)
        finally:
            for connection in opened:
                connection.close()
    assert error.message.endswith(" has no connection left to give.")


def test_a_text_that_is_not_known_is_folded_and_freed_of_the_password() -> None:
    answer = b"E\x00\x00\x00\x2dSFATAL\x00MFirst line\n  with s3cr3t-word\x00\x00"
    with listening(answer[:4] + bytes([len(answer) - 1]) + answer[5:]) as port:
        error = refused(
            f"host=127.0.0.1 port={port} user=ann password=s3cr3t-word dbname=app sslmode=disable"
        )
    assert error.message == f"The server at 127.0.0.1:{port} cannot be used: First line with ***."


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=6, max_size=20))
def test_no_password_is_in_any_error_or_representation(guarded: Server, password: str) -> None:
    word = f"#{password}#"  # so that it is no part of an ordinary sentence
    dsn = make_conninfo(guarded.admin_dsn, password=word)
    shown = [repr(refused(dsn)), str(refused(make_conninfo(dsn, port="1")))]
    engine = database.engine(dsn)
    shown += [repr(engine), repr(engine.url), str(engine.pool)]
    engine.dispose()
    assert not [text for text in shown if word in text]


def test_a_connection_shows_no_password(guarded: Server) -> None:
    with database.connect(guarded.admin_dsn) as connection:
        info = database.server_info(connection)
        assert HARD_PASSWORD not in f"{connection!r} {connection.info!r} {info!r}"


def test_a_connection_keeps_nothing_in_the_session(server: Server, database_at: Callable[[str], str]) -> None:
    with database.connect(database_at("")) as connection:
        assert connection.prepare_threshold is None
        names = "application_name", "client_encoding", "statement_timeout", "lock_timeout"
        found = [connection.execute("select current_setting(%s)", (name,)).fetchone() for name in names]
        assert found == [("pgflow-migrate",), ("UTF8",), ("0",), ("0",)]
        for _ in range(10):
            connection.execute("select 1")
        assert connection.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
        assert "options" not in connection.info.get_parameters()
        assert connection.info.get_parameters()["connect_timeout"] == "10"


def test_ones_own_application_name_and_timeout_win(server: Server) -> None:
    dsn = make_conninfo(server.admin_dsn, application_name="deploy", connect_timeout="3")
    with database.connect(dsn) as connection:
        assert connection.execute("select current_setting('application_name')").fetchone() == ("deploy",)
        assert connection.info.get_parameters()["connect_timeout"] == "3"


def test_the_engines_transactions_are_read_committed_whatever_the_default(
    database_at: Callable[[str], str],
) -> None:
    dsn = database_at("")
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set default_transaction_isolation = 'serializable'")
    engine = database.engine(dsn)
    with engine.begin() as connection_:
        assert connection_.exec_driver_sql("show transaction_isolation").scalar() == "read committed"
    engine.dispose()


def test_the_server_says_who_owns_pgflow(database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_16_0")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop role if exists info_reader")
        connection.execute("create role info_reader login")
    try:
        with database.connect(dsn, read_only=True) as connection:
            info = database.server_info(connection)
            version = connection.info.server_version
        assert info.version.startswith(str(version // 10000))
        assert (info.role, info.superuser, info.standby) == ("postgres", True, False)
        assert (info.pgflow_owner, info.owns_pgflow, info.pooler) == ("postgres", True, None)
        with database.connect(make_conninfo(dsn, user="info_reader")) as connection:
            info = database.server_info(connection)
        assert (info.role, info.superuser) == ("info_reader", False)
        assert (info.pgflow_owner, info.owns_pgflow) == ("postgres", False)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("drop role info_reader")


def test_the_server_says_when_there_is_no_pgflow(database_at: Callable[[str], str]) -> None:
    with database.connect(database_at("")) as connection:
        info = database.server_info(connection)
    assert (info.pgflow_owner, info.owns_pgflow) == (None, False)


def test_a_transaction_poolers_port_is_suspected(guarded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    port = port_of(guarded)
    with database.connect(guarded.admin_dsn) as connection:
        assert database.server_info(connection).pooler is None
        monkeypatch.setattr(database, "POOLER_PORT", port)
        assert database.server_info(connection).pooler == f"port {port}"


def test_a_pooler_is_suspected_when_another_process_answers(guarded: Server) -> None:
    with forwarding(port_of(guarded)) as port:
        dsn = make_conninfo(guarded.admin_dsn, port=port, sslmode="disable", gssencmode="disable")
        with database.connect(dsn) as connection:
            found = database.server_info(connection).pooler
    assert found == "the server process is not the one that the connection was opened to"


@contextmanager
def forwarding(to: int) -> Iterator[int]:
    """A port that leads to port ``to``, and names another server process to its client, as poolers do."""

    def renamed(block: bytes) -> bytes:
        # BackendKeyData: the letter K, the length 12, the process, the key.
        head, key, tail = block.partition(b"K\x00\x00\x00\x0c")
        return head + key + (b"\x00\x00\x00\x01" + tail[4:] if key else tail)

    def pump(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
        while block := source.recv(65536):
            target.sendall(change(block))
        target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with listener.accept()[0] as client, socket.create_connection(("127.0.0.1", to)) as server:
            back = threading.Thread(target=pump, args=(server, client, renamed))
            back.start()
            pump(client, server, bytes)
            back.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()
