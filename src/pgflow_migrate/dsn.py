"""Reading connection strings. libpq is the one parser; what it would misread is first spelled its way.

In a URL the user and the password may be percent-encoded, or raw where only one reading is possible: they end
at the one ``@`` that a ``host[:port][/database][?parameters]`` follows. No error repeats a password.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflow_migrate.errors import PgflowMigrateError

ENVIRONMENT_VARIABLES = ("PGFLOW_DSN", "DATABASE_URL")

# libpq's variables of which any says which database is meant; with none it would take a default of its own.
NAMING_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE")
_NAMING = frozenset({"host", "hostaddr", "port", "dbname", "user", "service"})

_KEYWORDS = frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_HOST = r"(?:\[[0-9A-Za-z:.%]+\]|[^\s@:/?#\[\],=&]*)(?::[0-9]*)?"
_TAIL = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^/?:]*)?(?:\?(?P<query>.*))?", re.DOTALL)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_SPECIAL = "%@:/?# "


def resolve_dsn(option: str | None, environ: Mapping[str, str]) -> str:
    """The connection string to use, as libpq's key=value.

    Args:
        option: what ``--dsn`` gave, or None.
        environ: looked at for PGFLOW_DSN, then DATABASE_URL. With neither, the result is empty, which leaves
            everything to libpq's own variables (PGHOST, PGSERVICE, …).

    Raises:
        PgflowMigrateError: it cannot be read, ``--dsn`` was given and empty, or nothing names a database:
            neither the string nor one of :data:`NAMING_VARIABLES`.
    """
    dsn = _choose(option, environ)
    if not _NAMING & conninfo_to_dict(dsn).keys() and not any(environ.get(name) for name in NAMING_VARIABLES):
        raise PgflowMigrateError(
            "No database was named.",
            "Give --dsn (alembic: -x dsn=…), or set PGFLOW_DSN, DATABASE_URL or libpq's PGHOST, PGDATABASE or"
            " PGSERVICE.",
        )
    return dsn


def _choose(option: str | None, environ: Mapping[str, str]) -> str:
    if option is not None:
        if not option.strip():
            # An unset shell variable must not turn into "whatever database the environment names".
            raise PgflowMigrateError(
                "The connection string that was given is empty.",
                "Give one, or leave --dsn out to use PGFLOW_DSN, DATABASE_URL or libpq's own variables.",
            )
        return normalise_dsn(option)
    for name in ENVIRONMENT_VARIABLES:
        if environ.get(name):
            try:
                return normalise_dsn(environ[name])
            except PgflowMigrateError as error:
                message = error.message.replace("connection string", f"connection string in {name}", 1)
                raise PgflowMigrateError(message, error.remedy) from None
    return ""


def normalise_dsn(dsn: str) -> str:
    """Any spelling (postgres://, postgresql://, postgresql+psycopg://, key=value, service=) as key=value.

    Raises:
        PgflowMigrateError: it cannot be read; the message names the part and never repeats a value of it.
    """
    return make_conninfo("", **parse(dsn))


def parse(dsn: str) -> dict[str, Any]:
    """The parameters that a connection string in any spelling names; defaults are not filled in.

    Raises:
        PgflowMigrateError: as :func:`normalise_dsn`.
    """
    dsn = dsn.strip()
    if "\0" in dsn or not _is_utf8(dsn):
        raise _unreadable("it holds a null character or is not UTF-8", "Write such bytes as %XX.")
    url = _SCHEME.fullmatch(dsn)
    parameters = _parse_url(url[1], url[2]) if url else _parse_keywords(dsn)
    for port in str(parameters.get("port", "")).split(","):
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise _unreadable("the port is not a number from 1 to 65535", "Write host:port, such as db:5432.")
    return parameters


def _parse_url(scheme: str, rest: str) -> dict[str, Any]:
    if scheme.lower().partition("+")[0] not in ("postgres", "postgresql"):
        raise _unreadable(f'its scheme "{scheme}" is not PostgreSQL\'s', "Begin it with postgresql://.")
    userinfo, tail = _split(rest)
    user, separator, password = userinfo.partition(":")
    credentials = quote(_decode("user name", user), safe="")
    if separator:
        credentials += ":" + quote(_decode("password", password), safe="")
    _check_parameters(tail)
    with contextlib.suppress(psycopg.Error, UnicodeError):
        return conninfo_to_dict(f"postgresql://{credentials}@{tail.replace('@', '%40')}")
    raise _unreadable(
        "the part after the host has a '%' that two hexadecimal digits do not follow", "Write '%' as %25."
    )


def _split(rest: str) -> tuple[str, str]:
    """What is before the ``@`` that ends the credentials, and what is after it."""
    readings = list(_readings(rest))
    if len(readings) == 1:
        return readings[0]
    if readings:
        problem = "its '@' can be read in more than one way"
    elif "@" in rest:
        problem = "no host[:port][/database] follows its last '@'"
    else:
        problem = "it does not begin with host[:port][/database]"
    raise _unreadable(
        problem,
        "In user name, password, database and parameters write '@' as %40, ':' as %3A, '/' as %2F, "
        "'%' as %25, '?' as %3F, '#' as %23.",
    )


def _readings(rest: str) -> Iterator[tuple[str, str]]:
    if _is_tail(rest):
        yield "", rest
    for at in (index for index, character in enumerate(rest) if character == "@"):
        userinfo, tail = rest[:at], rest[at + 1 :]
        # Only a password may hold these raw: no one calls a role 'host/db?user=me'.
        if not re.search("[/?]", userinfo.partition(":")[0]) and _is_tail(tail):
            yield userinfo, tail


def _is_tail(text: str) -> bool:
    """Whether it reads as host[:port][/database][?parameters], an '@' in known parameters only."""
    match = _TAIL.fullmatch(text)
    if not match:
        return False
    query = match["query"] or ""
    return "@" not in query or all(pair.partition("=")[0] in _KEYWORDS for pair in query.split("&"))


def _decode(part: str, text: str) -> str:
    """A user name or password as it is sent, from its percent-encoded or raw spelling."""
    escapes = len(_ESCAPE.findall(text))
    if not escapes:
        return text
    # libpq takes neither raw: with them, nobody can tell whether %41 stands for 'A' or for itself.
    raw = [character for character in "@/" if character in text]
    if escapes != text.count("%"):
        raw.append("%")
    if raw:
        found = " and ".join(f"'{character}'" for character in raw)
        spelling = ", ".join(f"'{c}' as %{ord(c):02X}" for c in _SPECIAL if c in text)
        raise _unreadable(f"the {part} mixes a raw {found} with percent-encoding", f"Write in it {spelling}.")
    if "%00" in text:
        raise _unreadable(f"the {part} holds %00, which no PostgreSQL password can", "Write '%' as %25.")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def _check_parameters(tail: str) -> None:
    query = tail.partition("?")[2]
    for pair in query.split("&") if query else ():
        name, separator, _ = pair.partition("=")
        if not separator or not re.fullmatch(r"\w+", name):
            raise _unreadable("after its '?' stand no name=value pairs joined by '&'", "Write '?' as %3F.")
        if name not in _KEYWORDS and name != "ssl":
            raise _unreadable(f'it has a parameter "{name}" that libpq does not know', _suggestion(name))


def _parse_keywords(dsn: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError) as error:
        text = str(error)
    option = re.search(r'invalid connection option "(.*)"', text, re.DOTALL)
    if option:
        # What stands where a name should may be a piece of an unquoted password: name it only without one.
        name = f' "{option[1]}"' if "pass" not in dsn.lower() else ""
        raise _unreadable(f"it has a parameter{name} that libpq does not know", _suggestion(option[1]))
    if "unterminated" in text:
        raise _unreadable("a quote in it is not closed", r"Within quotes write ' as \' and \ as \\.")
    raise _unreadable(
        "it is neither a URL (postgresql://…) nor key=value",
        "Put values with spaces in single quotes; write ' as \\' and \\ as \\\\.",
    )


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, sorted(_KEYWORDS), 1, 0.75)
    return f'Did you mean "{close[0]}"?' if close else "Leave it out if it is another driver's."


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unreadable(problem: str, remedy: str) -> PgflowMigrateError:
    return PgflowMigrateError(f"The connection string cannot be read: {problem}.", remedy)
