"""Words that several renderings share. Slugs are arbitrary text, so none reaches a terminal or a file raw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgflow_migrate.audit.codes import CODES, Code
from pgflow_migrate.audit.findings import AuditReport, Finding, Severity
from pgflow_migrate.layout import plural, printable

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

# Until these are mended, the audit does not see the rest, or not all of it.
_BLINDING = ("release-unexpected", "pgmq-absent", "missing-privilege")

LOST_SECTION = "Live tasks without a message"
"""The section of docs/findings.md."""

_FLOWS_NAMED = 5


@dataclass(frozen=True)
class Group:
    """The findings of one code, in the report's order."""

    code: Code
    findings: tuple[Finding, ...]

    @property
    def hint(self) -> str | None:
        """What to do, where that is the same for all of them."""
        hints = {finding.hint for finding in self.findings}
        return self.findings[0].hint if len(hints) == 1 else None


def shown(report: AuditReport) -> tuple[Finding, ...]:
    """The findings for a form that ends with :func:`verdict`: what that says, no hint says once more."""
    if report.already_upgraded:
        return report.findings
    return tuple(
        replace(finding, hint="") if finding.code == "point-in-time" else finding
        for finding in report.findings
    )


def groups(findings: Sequence[Finding]) -> tuple[Group, ...]:
    """Findings by code, the worst first: by severity, then what hides the rest, then by number."""
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    order = list(CODES)

    def badness(group: Group) -> tuple[int, bool, int, int]:
        code = group.code
        return (
            SEVERITIES.index(code.severity),
            code.name not in _BLINDING,
            -len(group.findings) if code.severity != "info" else 0,
            order.index(code.name),
        )

    return tuple(sorted((Group(CODES[name], tuple(found)) for name, found in by_code.items()), key=badness))


def to_do(findings: Sequence[Finding]) -> tuple[tuple[str, tuple[Group, ...]], ...]:
    """What to do, the worst first, and what for; codes with the same remedy are done in one go."""
    remedies: dict[str, list[Group]] = {}
    for group in groups(findings):
        if group.code.severity != "info":
            remedies.setdefault(group.code.remedy, []).append(group)
    return tuple((remedy, tuple(found)) for remedy, found in remedies.items())


def subject(finding: Finding) -> str:
    """What the finding is about, in a line: flow, step, queue; empty for the database as a whole."""
    names = [("flow", finding.flow_slug), ("step", finding.step_slug)]
    if finding.queue_name != finding.flow_slug:
        names.append(("queue", finding.queue_name))
    return printable(", ".join(f"{kind} {name}" for kind, name in names if name is not None))


def samples(finding: Finding) -> str:
    """The samples in a line, with a sign that there are more."""
    more = "; …" if finding.samples and len(finding.samples) < finding.count else ""
    return printable("; ".join(finding.samples) + more)


def found(finding: Finding) -> str:
    """Subject, count and samples in a line, each where it says something."""
    # Samples that are all there count themselves; an error without any is about its one subject.
    alone = finding.count == 1 and finding.severity != "info"
    counted = str(finding.count) if finding.count > len(finding.samples) and not alone else ""
    return ": ".join(part for part in (subject(finding), counted, samples(finding)) if part)


def sentence(finding: Finding) -> str:
    """The finding in a line: subject, count, samples, hint."""
    return ". ".join(part for part in (found(finding), printable(finding.hint)) if part)


def counts(findings: Sequence[Finding]) -> dict[Severity, int]:
    """How many findings there are of each severity."""
    return {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES}


def totals(findings: Sequence[Finding]) -> str:
    """The counts as text: ``1 error, 2 warnings, 0 notes``."""
    by_severity = counts(findings)
    names = {"error": "error", "warning": "warning", "info": "note"}
    return ", ".join(plural(by_severity[severity], names[severity]) for severity in SEVERITIES)


def lost(report: AuditReport) -> str:
    """The live tasks without a message, in a sentence or two; empty where there are none.

    That they could not be counted is said where no finding says what is lacking.
    """
    told = report.already_upgraded or {finding.code for finding in report.findings} & {*_BLINDING}
    if report.lost is None and not told:
        return (
            "Whether live tasks have lost their messages was not looked at: this role may not read"
            " pgflow.step_states."
        )
    if not report.lost:
        return ""
    one = report.lost_tasks == 1
    where = ", ".join(f"{printable(found.flow_slug)} {found.tasks:,}" for found in report.lost[:_FLOWS_NAMED])
    more = f" and {len(report.lost) - _FLOWS_NAMED:,} more" if len(report.lost) > _FLOWS_NAMED else ""
    return (
        f"{plural(report.lost_tasks, 'live task has', 'live tasks have')} no message in the queue:"
        f" {'it' if one else 'they'} will never run, upgraded or not (flow {where}{more})."
        f' What to do: "{LOST_SECTION}" in docs/findings.md (pgflow-migrate docs findings).'
    )


def verdict(report: AuditReport) -> str:
    """The report in a sentence; a clean one, too, says that it is of one point in time."""
    database, at = printable(report.database), f"{report.taken_at:%Y-%m-%d %H:%M:%S %Z}"
    if report.already_upgraded:
        return (
            f"Database {database} had queue identity or a later revision already at {at}: this audit has"
            " nothing to look for; pgflow-migrate status says what is pending."
        )
    blocking = len(report.blocking)
    stand = "Nothing stands" if not blocking else plural(blocking, "finding stands", "findings stand")
    return (
        f"{stand} in the way of the upgrade of database {database} at {at}. This is a point-in-time report, "
        "not an authorisation: the upgrade checks again under its locks."
    )
