"""What libpq says of a connection that failed, and what we make of it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgflow_migrate.connection_errors import explain

AT = 'connection failed: connection to server at "10.0.0.1", port 6000 failed: '
PARAMETERS = {"host": "db.example", "port": 6000, "user": "ann", "dbname": "app"}

TEXTS = {
    AT + 'FATAL:  password authentication failed for user "ann"': (
        'The server at db.example:6000 refuses the password of user "ann".'
    ),
    AT + "fe_sendauth: no password supplied": (
        'The server at db.example:6000 wants a password for user "ann" and none was given.'
    ),
    AT + "SSL error: certificate verify failed": (
        "SSL with the server at db.example:6000 fails: SSL error: certificate verify failed."
    ),
    AT + 'FATAL:  no pg_hba.conf entry for host "10.0.0.2", user "ann", database "app", no encryption': (
        'The server at db.example:6000 does not let user "ann" in from here: '
        'no pg_hba.conf entry for host "10.0.0.2", user "ann", database "app", no encryption.'
    ),
    AT + 'FATAL:  database "app" does not exist': 'There is no database "app" at db.example:6000.',
    AT + 'FATAL:  role "ann" does not exist': (
        'The server at db.example:6000 knows no user "ann" that may connect in this way.'
    ),
    AT + 'FATAL:  permission denied for database "app"\nDETAIL:  User does not have CONNECT privilege.': (
        'User "ann" may not connect to database "app" at db.example:6000.'
    ),
    AT
    + "FATAL:  the database system is starting up": "The server at db.example:6000 is starting or stopping.",
    AT + "server closed the connection unexpectedly": "The connection to db.example:6000 is cut off.",
    # Not known: all of it, in one line, once.
    AT + "ERROR:  first \n  second.": "The server at db.example:6000 cannot be used: first second.",
    "connection is bad: no such luck": "The server at db.example:6000 cannot be used: no such luck.",
    'connection failed: connection to server at "db.example" (10.0.0.1), port 6000 failed: FATAL:  no': (
        "The server at db.example:6000 cannot be used: no."
    ),
    'connection failed: connection to server on socket "/tmp/.s.PGSQL.6000" failed: FATAL:  no': (
        "The server at db.example:6000 cannot be used: no."
    ),
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGUSER", "PGDATABASE", "PGSERVICE", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("text", "sentence"), TEXTS.items())
def test_what_libpq_says_becomes_a_sentence(text: str, sentence: str) -> None:
    assert explain(psycopg.OperationalError(text), PARAMETERS).message == sentence


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"host": "a,b,c", "port": "1,2,3"}, "a:1, b:2, c:3"),
        ({"host": "a,b", "port": "7"}, "a:7, b:7"),
        ({"host": "a,b", "port": ",7"}, "a:5432, b:7"),
        ({"host": "a"}, "a:5432"),
        ({"hostaddr": "10.0.0.1"}, "10.0.0.1:5432"),
        ({"host": "a", "hostaddr": "10.0.0.1"}, "a:5432"),
        ({"host": "::1"}, "[::1]:5432"),
        ({"host": "/tmp"}, "socket /tmp (port 5432)"),  # noqa: S108
        ({"host": "@abstract"}, "socket @abstract (port 5432)"),
        ({}, "socket of the default folder (port 5432)"),
        ({"service": "shop"}, 'service "shop"'),
        ({"service": "shop", "host": "a"}, "a:5432"),
    ],
)
def test_the_place_is_named_as_the_connection_string_has_it(parameters: dict[str, Any], where: str) -> None:
    error = explain(psycopg.OperationalError("Connection refused"), {"user": "ann", **parameters})
    assert error.message == f"No server listens at {where}."


def test_the_environment_has_what_the_connection_string_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "from.environment")
    monkeypatch.setenv("PGPORT", "6001")
    error = explain(psycopg.OperationalError("Connection refused"), {"port": 6002})
    assert error.message == "No server listens at from.environment:6002."


@pytest.mark.parametrize(("parameters", "name"), [({"dbname": "app"}, "app"), ({}, "ann")])
def test_a_database_that_is_not_named_has_the_users_name(parameters: dict[str, Any], name: str) -> None:
    text = f'database "{name}" does not exist'
    error = explain(psycopg.OperationalError(text), {"host": "a", "user": "ann", **parameters})
    assert error.message == f'There is no database "{name}" at a:5432.'


@pytest.mark.parametrize("secret", ["password", "sslpassword", "oauth_client_secret"])
def test_no_secret_is_told(secret: str) -> None:
    error = explain(psycopg.OperationalError("odd: s3cr3t and s3cr3t"), {"host": "a", secret: "s3cr3t"})
    assert error.message == "The server at a:5432 cannot be used: odd: *** and ***."


def test_an_empty_password_hides_nothing() -> None:
    error = explain(psycopg.OperationalError("odd"), {"host": "a", "password": ""})
    assert error.message == "The server at a:5432 cannot be used: odd."
