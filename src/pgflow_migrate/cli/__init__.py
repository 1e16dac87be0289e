"""The command line."""

from __future__ import annotations

import click


@click.group()
def main() -> None:
    """Audit and upgrade databases of pgflow."""
