"""For people at a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgflow_migrate import layout
from pgflow_migrate.audit.findings import AuditReport, Finding
from pgflow_migrate.audit.render import words

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
_INFOS_SHOWN = 10


def table(report: AuditReport, console: Console) -> None:
    """Print a report: its findings and, in a sentence, what they come to."""
    findings_table(report.findings, console)
    layout.show(console, words.verdict(report))


def findings_table(findings: Sequence[Finding], console: Console) -> None:
    """Print findings by code, those with the same hint under one heading.

    On a terminal lines are wrapped between words; in a pipe or a file they are left whole, for grep.
    """
    from rich.text import Text

    def line(text: str) -> None:
        if text:
            layout.show(console, text, indent="  ")

    for (severity, code, hint), group in itertools.groupby(
        findings, key=lambda finding: (finding.severity, finding.code, finding.hint)
    ):
        members = list(group)
        heading = Text.assemble((f"{severity:<8}", _STYLES[severity]), (code, "bold"))
        console.print(heading, soft_wrap=True)
        shown = members[:_INFOS_SHOWN] if severity == "info" else members
        for finding in shown:
            line(words.found(finding))
        if rest := members[len(shown) :]:
            line(f"and {len(rest):,} more like these, together {sum(finding.count for finding in rest):,}")
        line(words.printable(hint))
        console.print()
