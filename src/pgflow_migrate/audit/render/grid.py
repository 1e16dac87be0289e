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
    """Print a report: its findings, what to do about them, and, in a sentence, what they come to."""
    findings_table(words.shown(report), console)
    to_do = words.to_do(report.findings)
    # What is one hint has just been printed.
    if len({finding.hint for finding in report.findings if finding.severity != "info"}) > 1:
        order = ", the worst first" if len(to_do) > 1 else ""
        layout.show(console, f"What to do{order}:", style="bold")
        for remedy, groups in to_do:
            reasons = ", ".join(f"{group.code.name} ({len(group.findings):,})" for group in groups)
            layout.show(console, f"{remedy} For {reasons}.", indent="  ")
        console.print()
    if lost := words.lost(report):
        layout.show(console, lost, style="yellow")
        console.print()
    layout.show(console, words.verdict(report))


def findings_table(findings: Sequence[Finding], console: Console) -> None:
    """Print findings by code, the worst first, those with the same hint together.

    On a terminal lines are wrapped between words; in a pipe or a file they are left whole, for grep.
    """

    def line(text: str) -> None:
        if text:
            layout.show(console, text, indent="  ")

    for group in words.groups(findings):
        _heading(group, console)
        for hint, found in itertools.groupby(group.findings, key=lambda finding: finding.hint):
            members = list(found)
            shown = members[:_INFOS_SHOWN] if group.code.severity == "info" else members
            for finding in shown:
                line(words.found(finding))
            if rest := members[len(shown) :]:
                together = sum(finding.count for finding in rest)
                line(f"and {len(rest):,} more like these, together {together:,}")
            line(layout.printable(hint))
        console.print()


def _heading(group: words.Group, console: Console) -> None:
    """Severity, code and title; the title below where the terminal is too narrow for one line."""
    from rich.text import Text

    code = group.code
    heading = Text.assemble((f"{code.severity:<8}", _STYLES[code.severity]), (code.name, "bold"))
    width = layout.width_of(console)
    if width is None or len(heading) + 2 + len(code.title) <= width:
        console.print(heading.append(f": {code.title}"), soft_wrap=True)
    else:
        console.print(heading, soft_wrap=True)
        layout.show(console, code.title, indent="        ")
