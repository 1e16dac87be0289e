"""On a terminal, what the commands say breaks between words."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Database = psycopg.Connection[dict[str, Any]]


def on_a_terminal(width: int, *arguments: str) -> list[str]:
    """The lines that the command prints on a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "pgflow_migrate", *arguments],
        environment | {"NO_COLOR": "1", "TERM": "dumb"},
        file_actions=[(os.POSIX_SPAWN_DUP2, theirs, number) for number in (0, 1, 2)]
        + [(os.POSIX_SPAWN_CLOSE, ours)],
    )
    os.close(theirs)
    printed = b""
    try:
        while block := os.read(ours, 65536):
            printed += block
    except OSError:
        pass  # Linux's way to say that nobody has the other end open any more
    finally:
        os.close(ours)
        os.waitpid(child, 0)
    return printed.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_an_error_is_wrapped(width: int) -> None:
    lines = on_a_terminal(width, "replay", "--scenario", "nope")
    assert lines[0] == "error: No scenario is called 'nope'."
    assert len(lines) > 3
    assert max(map(len, lines)) <= width
    assert "camel_case_extension_members," in " ".join(lines).split()


@pytest.mark.parametrize("width", [80, 120])
def test_status_is_wrapped_behind_its_column(
    width: int, database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    dsn = database_at("core_0_16_0")
    default = '{"' + "words and " * 30 + '": 1}'
    connect(dsn).execute(f"alter table pgflow.runs alter column input set default '{default}'".encode())
    lines = on_a_terminal(width, "status", "--dsn", dsn)
    start = next(number for number, line in enumerate(lines) if line.startswith("drift "))
    (column,) = {line.index(line.split()[1]) for line in lines[:1]}
    assert lines[start][column:].startswith("1 difference from 0.16.0:")
    assert max(map(len, lines)) <= width
    assert all(line[column - 2 : column] == "  " and line[column] != " " for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_an_audit_is_wrapped(
    width: int, database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    dsn = database_at("core_0_16_0")
    database = connect(dsn)
    database.execute("select pgflow.create_flow('orders'); select pgflow.add_step('orders', 'pack')")
    database.execute("select pgmq.send('orders', '{}'::jsonb)")
    lines = on_a_terminal(width, "audit", "--dsn", dsn)
    assert max(map(len, lines)) <= width
    statement = "select pgmq.archive('orders', array[1]::bigint[]);"
    assert sum(statement in line for line in lines) == 1
