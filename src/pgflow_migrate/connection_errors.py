"""Why a connection could not be had: one sentence, one remedy, no password.

When connecting fails libpq gives text, no SQLSTATE, so the text is what is recognised. What is not recognised
is passed on, folded into one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import pq

from pgflow_migrate.errors import PgflowMigrateError


@dataclass(frozen=True)
class _Target:
    where: str
    user: str
    database: str
    reason: str


_Sentence = Callable[[_Target], str]

# Order matters: a server that refuses after "connection failed" says why later in the text.
_KNOWN: tuple[tuple[str, _Sentence, str], ...] = (
    (
        r"password authentication failed|SCRAM|Wrong password",
        lambda t: f'The server at {t.where} refuses the password of user "{t.user}".',
        "Check it; in a URL write special characters as %XX, such as '@' as %40 and '%' as %25.",
    ),
    (
        r"no password supplied|password is required",
        lambda t: f'The server at {t.where} wants a password for user "{t.user}" and none was given.',
        "Give it in the connection string, in PGPASSWORD or in ~/.pgpass.",
    ),
    (
        r"server does not support SSL",
        lambda t: f"The server at {t.where} has no SSL, which the connection string requires.",
        "Set sslmode=prefer if the network may be trusted.",
    ),
    (
        r"SSL error|certificate|sslmode value|sslrootcert|channel binding",
        lambda t: f"SSL with the server at {t.where} fails: {t.reason}.",
        "Check sslmode, sslrootcert and channel_binding in the connection string.",
    ),
    (
        r"no pg_hba\.conf entry|pg_hba\.conf rejects",
        lambda t: f'The server at {t.where} does not let user "{t.user}" in from here: {t.reason}.',
        "Add a line to its pg_hba.conf, or try another sslmode.",
    ),
    (
        r'database ".*" does not exist',
        lambda t: f'There is no database "{t.database}" at {t.where}.',
        "Check the database's name in the connection string.",
    ),
    (
        r'role ".*" does not exist|(?:Peer|Ident) authentication failed',
        lambda t: f'The server at {t.where} knows no user "{t.user}" that may connect in this way.',
        "Check the user in the connection string.",
    ),
    (
        r"too many (?:clients|connections)|slots are reserved|no more connections|[Mm]ax client conn",
        lambda t: f"The server at {t.where} has no connection left to give.",
        "End some sessions, or try again later.",
    ),
    (
        r"permission denied for database|is not permitted to log in|not currently accepting connections",
        lambda t: f'User "{t.user}" may not connect to database "{t.database}" at {t.where}.',
        "Grant CONNECT on the database and LOGIN to the role, or connect as another user.",
    ),
    (
        r"the database system is|starting up|shutting down",
        lambda t: f"The server at {t.where} is starting or stopping.",
        "Try again in a moment.",
    ),
    (
        r"could not translate host name|failed to resolve host|Name or service not known",
        lambda t: f"The host of {t.where} cannot be found.",
        "Check the host's name in the connection string.",
    ),
    (
        r"timeout expired|timed out",
        lambda t: f"No answer from {t.where} in time.",
        "Check host, port and firewall; connect_timeout=SECONDS in the connection string changes the limit.",
    ),
    (
        r"Connection refused|No such file or directory|could not connect to server",
        lambda t: f"No server listens at {t.where}.",
        "Check host and port, and that the server runs.",
    ),
    (
        r"No route to host|Network is unreachable|Connection reset|closed the connection unexpectedly",
        lambda t: f"The connection to {t.where} is cut off.",
        "Check host, port and what is between here and there.",
    ),
    (
        r'definition of service "|service file ',
        lambda t: "The service that the connection string names is not defined.",
        "Define it in ~/.pg_service.conf, or name the file in PGSERVICEFILE.",
    ),
)


def explain(error: psycopg.Error, parameters: Mapping[str, Any]) -> PgflowMigrateError:
    """The error to show for a connection that failed.

    Args:
        error: what psycopg raised.
        parameters: the connection's parameters as libpq names them; missing ones are libpq's defaults.
    """
    text = str(error)
    effective = _defaults() | {name: str(value) for name, value in parameters.items()}
    target = _target(effective, _fold(text, effective))
    for pattern, sentence, remedy in _KNOWN:
        if re.search(pattern, text):
            return PgflowMigrateError(sentence(target), remedy)
    return PgflowMigrateError(f"The server at {target.where} cannot be used: {target.reason}.")


def _defaults() -> dict[str, str]:
    """libpq's defaults, its environment variables and service included."""
    options = pq.Conninfo.get_defaults()
    return {o.keyword.decode(): o.val.decode(errors="replace") for o in options if o.val is not None}


def _target(effective: Mapping[str, str], reason: str) -> _Target:
    user = effective.get("user", "")
    hosts = (effective.get("host") or effective.get("hostaddr") or "").split(",")
    ports = effective.get("port", "5432").split(",")
    if effective.get("service") and hosts == [""]:
        where = f'service "{effective["service"]}"'
    else:
        where = ", ".join(
            _address(host, ports[index % len(ports)] or "5432") for index, host in enumerate(hosts)
        )
    return _Target(where, user, effective.get("dbname") or user, reason)


def _address(host: str, port: str) -> str:
    if not host or host.startswith(("/", "@")):
        return f"socket {host or 'of the default folder'} (port {port})"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _fold(text: str, effective: Mapping[str, str]) -> str:
    """libpq's text in one line, without its beginning that repeats the address, and without the password."""
    line = " ".join(text.split())
    line = re.sub(r"^connection (?:failed|is bad): ", "", line)
    address = r'"[^"]*"(?: \([^)]*\))?(?:, port \d+)?'
    line = re.sub(rf"^connection to server (?:at|on socket) {address} failed: ", "", line)
    line = re.sub(r"^(?:FATAL|ERROR): +", "", line).rstrip(".")
    for name in ("password", "sslpassword", "oauth_client_secret"):
        if effective.get(name):
            line = line.replace(effective[name], "***")
    return line
