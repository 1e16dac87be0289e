"""``docs``: the documentation, for those who have no checkout."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgflow_migrate import resources
from pgflow_migrate.cli import output
from pgflow_migrate.errors import EXIT_USAGE, PgflowMigrateError

if TYPE_CHECKING:
    from rich.console import Console

_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?!\w+:)([^)\s]+)\)")  # to a file beside it, not to a site
_MARKUP = re.compile(r"[`*]")


class PageError(PgflowMigrateError):
    """There is no such page."""

    exit_code = EXIT_USAGE


def _pages() -> dict[str, Path]:
    return {path.stem: path for path in sorted(resources.docs().glob("*.md"))}


def _names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the pages."""
    return [name for name in _pages() if name.startswith(incomplete)]


@click.command()
@click.argument("page", required=False, shell_complete=_names)
def docs(page: str | None) -> None:
    """List the pages of the documentation, or print one of them.

    They are of this version, and nothing is connected to. On a terminal a page is laid out; elsewhere it is
    printed as it is written, in Markdown. Exits 0, or 2 when there is no such page.

    \b
    pgflow-migrate docs
    pgflow-migrate docs upgrade
    pgflow-migrate docs findings | less
    """
    pages = _pages()
    if page is None:
        output.print_rows((name, _title(path)) for name, path in pages.items())
        return
    text = _find(page, pages).read_text(encoding="utf-8")
    if output.is_terminal():
        _lay_out(text, set(pages), output.console())
    else:
        output.echo(text, nl=False)


def _find(page: str, pages: dict[str, Path]) -> Path:
    """The page of that name; ``docs/upgrade.md`` is one, too, as texts call it."""
    name = page.removeprefix("docs/").partition("#")[0].removesuffix(".md")
    if name in pages:
        return pages[name]
    close = difflib.get_close_matches(name, pages, 1, 0.6)
    meant = f"Did you mean {close[0]}? " if close else ""
    raise PageError(f'There is no page "{page}".', f"{meant}The pages are {', '.join(pages)}.")


def _title(path: Path) -> str:
    """Its first heading, without markup."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return _MARKUP.sub("", line.removeprefix("# "))
    return ""


def _lay_out(text: str, pages: set[str], console: Console) -> None:
    from rich.markdown import Markdown
    from rich.theme import Theme

    # Rich's own is on black, which a light terminal is not.
    theme = Theme({"markdown.code": "bold cyan", "markdown.code_block": "cyan"})

    def linked(found: re.Match[str]) -> str:
        """What a terminal can follow: the command that prints the page, if it is another."""
        name = found[2].partition("#")[0].removesuffix(".md")
        said = _MARKUP.sub("", found[1])
        if name not in pages:
            return found[1]
        return f"`pgflow-migrate docs {name}`" if said == f"{name}.md" else f"{found[1]} (`docs {name}`)"

    page = Markdown(_LINK.sub(linked, _COMMENT.sub("", text)), code_theme="ansi_dark")
    with console.use_theme(theme):
        console.print(page)
