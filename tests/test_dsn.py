"""Connection strings: every spelling, every password, and no password in any error."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pgflow_migrate.dsn import normalise_dsn, parse, resolve_dsn
from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, PgflowMigrateError

# Anything that PostgreSQL takes as a password, with the characters that matter to URLs in front.
CHARACTERS = st.one_of(
    st.sampled_from("%@:/?#&=[]'\\ ,+"),
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
)
PASSWORDS = st.text(CHARACTERS, min_size=1, max_size=12)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgres://ann:secret@db.example:6000/app",
        "postgresql://ann:secret@db.example:6000/app",
        "postgresql+psycopg://ann:secret@db.example:6000/app",
        "postgresql+asyncpg://ann:secret@db.example:6000/app",
        "POSTGRESQL://ann:secret@db.example:6000/app",
        "  postgresql://ann:secret@db.example:6000/app\n",
        "host=db.example port=6000 user=ann password=secret dbname=app",
        "host = 'db.example' port=6000 user=ann password='secret' dbname=app",
        "postgresql://db.example:6000/app?user=ann&password=secret",
    ],
)
def test_every_spelling_means_the_same(dsn: str) -> None:
    assert parse(dsn) == {
        "host": "db.example",
        "port": "6000",
        "user": "ann",
        "password": "secret",
        "dbname": "app",
    }
    assert parse(normalise_dsn(dsn)) == parse(dsn)


def test_a_service_is_left_to_libpq() -> None:
    assert parse("service=production") == {"service": "production"}
    assert parse("postgresql://?service=production") == {"service": "production"}


def test_parameters_are_passed_through() -> None:
    dsn = "postgresql://ann@h/app?sslmode=verify-full&sslrootcert=/etc/ca.pem&channel_binding=require"
    assert parse(dsn) == {
        "user": "ann",
        "host": "h",
        "dbname": "app",
        "sslmode": "verify-full",
        "sslrootcert": "/etc/ca.pem",
        "channel_binding": "require",
    }


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("h1:1,h2:2/app", {"host": "h1,h2", "port": "1,2", "dbname": "app"}),
        ("[::1]:5432/app", {"host": "::1", "port": "5432", "dbname": "app"}),
        ("%2Ftmp%2Fpg/app", {"host": "/tmp/pg", "dbname": "app"}),  # noqa: S108
        ("/app?host=/tmp/pg", {"host": "/tmp/pg", "dbname": "app"}),  # noqa: S108
        ("h/my%40db", {"host": "h", "dbname": "my@db"}),
        ("", {}),
    ],
)
def test_hosts_of_every_kind_are_read(tail: str, expected: dict[str, str]) -> None:
    assert parse(f"postgresql://{tail}") == expected
    assert parse(f"postgresql://u:p@{tail}") == {"user": "u", "password": "p", **expected}


@pytest.mark.parametrize(
    ("userinfo", "user", "password"),
    [
        ("u:p%@:/#?w", "u", "p%@:/#?w"),
        ("u:p@ss", "u", "p@ss"),
        ("u:p@ss/w", "u", "p@ss/w"),
        ("u:@", "u", "@"),
        ("u:a?b/c", "u", "a?b/c"),
        ("u:100%", "u", "100%"),
        ("u:100%zz", "u", "100%zz"),
        ("u:100%abc", "u", "100%abc"),  # %ab is a byte that is no UTF-8: so it was meant as it stands
        ("u:a%41", "u", "aA"),
        ("u:", "u", ""),
        ("u%40corp:p", "u@corp", "p"),
        ("u@server:p", "u@server", "p"),
        ("postgres.project:p", "postgres.project", "p"),
    ],
)
def test_passwords_are_read_raw_where_only_one_reading_is_possible(
    userinfo: str, user: str, password: str
) -> None:
    found = parse(f"postgresql://{userinfo}@127.0.0.1:5432/app")
    assert found == {
        "user": user,
        "host": "127.0.0.1",
        "port": "5432",
        "dbname": "app",
        **({"password": password} if password else {}),
    }


@given(PASSWORDS)
def test_a_percent_encoded_password_survives(password: str) -> None:
    dsn = f"postgresql://ann:{quote(password, safe='')}@127.0.0.1:5432/app"
    assert parse(dsn)["password"] == password
    assert parse(normalise_dsn(dsn))["password"] == password


@given(PASSWORDS)
def test_a_raw_password_survives_or_is_refused_without_being_repeated(password: str) -> None:
    # What looks percent-encoded is, by the standard; and a line end at the end of a URL is not part of it.
    assume("%" not in password or not any(c in "0123456789abcdefABCDEF" for c in password))
    refusal = ""
    found = {"user": "ann", "password": password, "host": "127.0.0.1", "port": "5432", "dbname": "app"}
    try:
        assert parse(f"postgresql://ann:{password}@127.0.0.1:5432/app") == found
    except PgflowMigrateError as error:
        refusal = f"{error!r} {error} {error.__cause__} {error.__context__}"
    assert len(password) < 4 or password not in refusal


@pytest.mark.parametrize(
    ("dsn", "message", "remedy"),
    [
        (
            "postgresql://u:s3cr3t@x%41@h/app",
            "the password mixes a raw '@' with percent-encoding",
            "Write in it '%' as %25, '@' as %40.",
        ),
        (
            "postgresql://u:s3cr3t%zz%41@h/app",
            "the password mixes a raw '%' with percent-encoding",
            "Write in it '%' as %25.",
        ),
        ("postgresql://u:s3cr3t@h/my@db", "its '@' can be read in more than one way", "'@' as %40"),
        ("postgresql://u:s3cr3t@h o/app", "no host[:port][/database] follows its last '@'", "'@' as %40"),
        ("postgresql://u:s3cr3t", "it does not begin with host[:port][/database]", "':' as %3A"),
        ("postgresql://u:s3cr3t%00@h", "the password holds %00", "'%' as %25"),
        ("postgresql://u:s3cr3t@h:99999/app", "the port is not a number from 1 to 65535", "host:port"),
        ("postgresql://u:s3cr3t@h/app%zz", "the part after the host has a '%'", "'%' as %25"),
        ("postgresql://u:s3cr3t@h/app?sslmod=require", 'a parameter "sslmod"', 'Did you mean "sslmode"?'),
        ("postgresql://u:s3cr3t@h/app?pgbouncer=true", 'a parameter "pgbouncer"', "another driver's"),
        ("postgresql://u:s3cr3t@h/app?require", "after its '?' stand no name=value pairs", "'?' as %3F"),
        ("mysql://u:s3cr3t@h/app", 'its scheme "mysql" is not PostgreSQL\'s', "postgresql://"),
        ("host=h password=s3cr3t s3cr3t2", "it is neither a URL (postgresql://…) nor key=value", "quotes"),
        ("host=h password='s3cr3t", "a quote in it is not closed", "quotes"),
        ("host=h password=s3cr3t s3cr3t=1", "a parameter that libpq does not know", "another driver's"),
        ("host=h passwrd=s3cr3t", "a parameter that libpq does not know", 'Did you mean "password"?'),
        ("host=h sslmod=x", 'a parameter "sslmod" that libpq does not know', 'Did you mean "sslmode"?'),
        ("host=h port=s3cr3t", "the port is not a number", "host:port"),
        ("s3cr3t", "it is neither a URL (postgresql://…) nor key=value", "quotes"),
        ("postgresql://u:s3cr3t\udcff@h/app", "is not UTF-8", "%XX"),
    ],
)
def test_what_cannot_be_read_is_named_and_no_password_is_repeated(
    dsn: str, message: str, remedy: str
) -> None:
    with pytest.raises(PgflowMigrateError) as caught:
        normalise_dsn(dsn)
    error = caught.value
    assert error.exit_code == EXIT_COULD_NOT_RUN
    assert error.message.startswith("The connection string cannot be read: ")
    assert message in error.message
    assert remedy in error.remedy
    assert "\n" not in str(error)
    assert "s3cr3t" not in f"{error!r} {error}"
    assert error.__cause__ is error.__context__ is None


def test_the_option_wins_over_the_environment_and_pgflow_dsn_over_database_url() -> None:
    environ = {"PGFLOW_DSN": "dbname=pgflow", "DATABASE_URL": "postgresql:///database"}
    assert resolve_dsn("dbname=option", environ) == "dbname=option"
    assert resolve_dsn(None, environ) == "dbname=pgflow"
    assert resolve_dsn(None, {**environ, "PGFLOW_DSN": ""}) == "dbname=database"
    assert resolve_dsn(None, {"DATABASE_URL": "postgres://h/database"}) == "dbname=database host=h"


def test_a_string_from_the_environment_is_named_when_it_cannot_be_read() -> None:
    with pytest.raises(PgflowMigrateError) as caught:
        resolve_dsn(None, {"DATABASE_URL": "postgresql://u:s3cr3t@h/app?pgbouncer=true"})
    assert caught.value.message == (
        "The connection string in DATABASE_URL cannot be read:"
        ' it has a parameter "pgbouncer" that libpq does not know.'
    )


@pytest.mark.parametrize("variable", ["PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE"])
def test_without_any_it_is_left_to_libpqs_own_variables(variable: str) -> None:
    assert resolve_dsn(None, {variable: "x"}) == ""
    assert resolve_dsn("postgresql://", {variable: "x"}) == ""


@pytest.mark.parametrize("option", [None, "postgresql://", "sslmode=require password=s3cr3t"])
def test_without_libpqs_variables_either_no_database_is_named(option: str | None) -> None:
    with pytest.raises(PgflowMigrateError) as caught:
        resolve_dsn(option, {"PGPASSWORD": "s3cr3t", "PGSSLMODE": "require", "PGHOST": ""})
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN
    assert caught.value.message == "No database was named."
    assert caught.value.remedy == (
        "Give --dsn (alembic: -x dsn=…), or set PGFLOW_DSN, DATABASE_URL or libpq's PGHOST, PGDATABASE or"
        " PGSERVICE."
    )


@pytest.mark.parametrize("named", ["host=h", "hostaddr=::1", "port=1", "dbname=d", "user=u", "service=s"])
def test_a_string_that_names_a_part_is_enough(named: str) -> None:
    assert resolve_dsn(named, {}) == named


def test_an_option_that_is_empty_does_not_fall_back_on_the_environment() -> None:
    with pytest.raises(PgflowMigrateError, match=r"^The connection string that was given is empty\. "):
        resolve_dsn(" ", {"DATABASE_URL": "dbname=production"})
