"""``docs``: the pages, and that nothing else is referred to by those who have no checkout."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import Result
from rich.console import Console

from pgflow_migrate.cli import cmd_docs, main, output
from pgflow_migrate.errors import EXIT_OK, EXIT_USAGE

Invoke = Callable[..., Result]

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md"))}


def test_without_a_page_all_are_listed_with_what_they_are_about(invoke: Invoke) -> None:
    result = invoke("docs")
    assert (result.exit_code, result.stderr) == (EXIT_OK, "")
    listed = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert list(listed) == list(PAGES)
    assert listed["upgrade"] == "Upgrading a database to queue identity"


@pytest.mark.parametrize("page", ["upgrade", "upgrade.md", "docs/upgrade.md", "docs/upgrade.md#after"])
def test_where_nobody_looks_a_page_is_printed_as_it_is_written(invoke: Invoke, page: str) -> None:
    result = invoke("docs", page)
    assert (result.exit_code, result.stdout) == (EXIT_OK, PAGES["upgrade"].read_text(encoding="utf-8"))


def test_an_unknown_page_is_a_usage_error_with_the_names(invoke: Invoke) -> None:
    result = invoke("docs", "upgrde")
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert result.stderr == (
        f'error: There is no page "upgrde".\nDid you mean upgrade? The pages are {", ".join(PAGES)}.\n'
    )
    assert invoke("docs", "../README").exit_code == EXIT_USAGE


def test_the_shell_completes_pages() -> None:
    completer = ShellComplete(main, {}, "pgflow-migrate", "_PGFLOW_MIGRATE_COMPLETE")
    completions = [item.value for item in completer.get_completions(["docs"], "wor")]
    assert completions == ["work-center", "worker"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written to stdout, as if that were a terminal."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, no_color=True, width=80)
    monkeypatch.setattr(output, "console", lambda: console)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    return written


def test_on_a_terminal_a_page_is_laid_out_and_its_links_are_commands(
    invoke: Invoke, terminal: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.md").write_text(
        "<!-- made -->\n# A `title`\n\n[two.md](two.md) has it; see [*the end*](two.md#end), [here](#below),"
        " [the code](../src/x.py), [a site](https://example.org/two.md).\n\n"
        "| a | b |\n| --- | --- |\n| 1 | 2 |\n",
        encoding="utf-8",
    )
    (tmp_path / "two.md").write_text("# Two\n", encoding="utf-8")
    monkeypatch.setattr("pgflow_migrate.resources.docs", lambda: tmp_path)
    assert invoke("docs", "one").exit_code == EXIT_OK
    text = re.sub(r"\x1b\]8;[^\x1b]*\x1b\\|\x1b\[[0-9;]*m", "", terminal.getvalue())
    # Older releases of rich have a frame around titles.
    words = [word for word in text.split() if word.strip("\u250f\u2501\u2513\u2503\u2517\u251b")]
    assert " ".join(words).startswith(
        "A title pgflow-migrate docs two has it; see the end (docs two), here, the code, a site."
    )
    assert "made" not in text
    assert "| --- |" not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_a_title(page: str) -> None:
    assert cmd_docs._title(PAGES[page])


def _spoken() -> Iterator[str]:
    """Every text of the sources but docstrings; those of commands are their help."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        helps = {
            node.body[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
            if {"command", "group"} & set(map(_called, node.decorator_list))
        }
        silent = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)} - helps
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in silent:
                yield node.value
    for name in ("*.sql", "*.j2"):
        for path in sorted((ROOT / "src").rglob(name)):
            yield path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "alembic" / "sql").rglob("*.sql")):
        yield re.sub(r"^\s*--.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for path in sorted((ROOT / "schemas").glob("*.json")):
        yield path.read_text(encoding="utf-8")


def _called(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.attr if isinstance(function, ast.Attribute) else ""


def test_messages_and_help_name_the_command_and_pages_that_there_are() -> None:
    # Where the text is pasted into another client the file's name helps, too.
    texts = [
        re.sub(r"docs/([\w-]+)\.md(?=[^.;]* \(pgflow-migrate docs \1\))", "", text) for text in _spoken()
    ]
    assert [text for text in texts if re.search(r"docs/[\w-]+\.md", text)] == []
    named = {name for text in texts for name in re.findall(r"pgflow-migrate docs ([a-z][\w-]*)", text)}
    assert {"upgrade", "worker", "configuration", "work-center", "dirty-runs"} <= named <= set(PAGES)
