"""For GitHub Actions: workflow commands, an annotation for each finding."""

from __future__ import annotations

from pgflow_migrate.audit.findings import AuditReport
from pgflow_migrate.audit.render import words

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def github(report: AuditReport) -> str:
    """A line for each finding, and the verdict last."""
    lines = [
        annotation(_COMMANDS[finding.severity], finding.code, words.sentence(finding))
        for finding in words.shown(report)
    ]
    if lost := words.lost(report):
        lines.append(annotation("warning", "live tasks without a message", lost))
    lines.append(annotation("notice", "pgflow-migrate audit", words.verdict(report)))
    return "\n".join(lines) + "\n"


def annotation(command: str, title: str, text: str) -> str:
    """One workflow command, such as ``error`` or ``notice``, escaped."""
    return f"::{command} title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
