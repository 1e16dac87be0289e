"""No password is repeated, wherever somebody has put a connection string."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from pgflow_migrate.cli.secrets import masked
from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, EXIT_USAGE

Invoke = Callable[..., Result]

SECRET = "S3cr3t"  # noqa: S105
URL = f"postgresql://user:{SECRET}@host:1/db"
WORDS = f"host=127.0.0.1 port=1 user=u password={SECRET} dbname=d"

MISPLACED = {
    "words that the shell has parted": (f"audit --dsn {WORDS}", EXIT_USAGE),
    "the option forgotten": (f"audit {URL}", EXIT_USAGE),
    "the option forgotten, in a group": (f"dirty-runs status {URL}", EXIT_USAGE),
    "the command forgotten": (URL, EXIT_USAGE),
    "the value of another option": (f"audit --format {URL}", EXIT_USAGE),
    "a duration": (f"upgrade --max-wait {URL}", EXIT_USAGE),
    "an option of its own": (f"audit --{URL}", EXIT_USAGE),
    "a file to replay": (f"replay --from {URL}", EXIT_USAGE),
    "a server": (f"replay --server embedded:{URL}", EXIT_USAGE),
    "a server in words": (f"replay --server 'embedded:{WORDS}'", EXIT_USAGE),
    "a store": (f"work-center status {URL}", EXIT_COULD_NOT_RUN),
    "a page": (f"docs {URL}", EXIT_USAGE),
    "a report": (f"audit --dsn {shlex.quote(WORDS)} --output {URL}", EXIT_COULD_NOT_RUN),
    "a scenario": (f"replay --scenario {URL}", EXIT_USAGE),
    "a flow": (f"worker --dsn {shlex.quote(WORDS)} --flow {URL}", EXIT_USAGE),
    "a configuration file": (f"--config {URL} audit", EXIT_COULD_NOT_RUN),
    "twice": (f"audit --dsn {URL} --dsn {URL}", EXIT_USAGE),
}


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("place", MISPLACED)
def test_a_misplaced_connection_string_shows_no_password(place: str, log_format: str, invoke: Invoke) -> None:
    command, code = MISPLACED[place]
    result = invoke("--log-format", log_format, "--debug", *shlex.split(command))
    assert result.exit_code == code
    said = result.stdout + result.stderr
    assert said
    assert SECRET not in said
    if log_format == "json":
        assert json.loads(result.stderr.splitlines()[-1])["exit_code"] == code


@pytest.mark.parametrize(
    "content",
    [f'"{URL}" = 1', f'[audit]\nformat = "{URL}"', f'[audit]\n"{URL}" = "json"', f"['{URL}']\na = 1"],
)
def test_nor_does_one_in_a_configuration_file(
    content: str, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pgflow-migrate.toml").write_text(content)
    monkeypatch.chdir(tmp_path)
    result = invoke("audit", "--dsn", "host=127.0.0.1 port=1")
    assert result.exit_code == EXIT_COULD_NOT_RUN
    assert "pgflow-migrate.toml" in result.stderr
    assert SECRET not in result.stdout + result.stderr


PASSWORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=6).map("x9".__add__)


@given(PASSWORDS, st.sampled_from(["postgresql", "postgres", "postgresql+psycopg"]))
def test_any_password_of_a_url_is_hidden(password: str, scheme: str) -> None:
    said = masked(f'There is no page "{scheme}://user:{password}@host/db".')
    assert said == f'There is no page "{scheme}://user:***@host/db".'


@given(PASSWORDS)
def test_any_password_in_words_is_hidden(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    assert masked(f"(user=u password='{quoted}' dbname=d)") == "(user=u password=*** dbname=d)"
    bare = "".join(char for char in password if char not in "'\"&),")
    assert masked(f"(user=u PASSWORD = {bare} dbname=d)") == "(user=u PASSWORD = *** dbname=d)"


def test_a_long_word_takes_no_longer_than_its_length() -> None:
    """Were it read once for each of its letters, this would take minutes."""
    word = "x" * 1_000_000
    assert masked(f"{word} postgresql://user:secret@host") == f"{word} postgresql://user:***@host"


@pytest.mark.parametrize(
    "text",
    [
        "The server wants a password, and none was given.",
        "grant select on pgflow.flows to auditor;",
        "https://example.org/a@b, 12:30, mail@example.org",
        "postgresql://user@host:5432/db",
    ],
)
def test_what_is_no_password_stays(text: str) -> None:
    assert masked(text) == text
