"""For people who are sent the report: an HTML page that needs nothing else.

Nothing in it is loaded from anywhere, and a content security policy names style and script by their hashes:
should a name ever get past the escaping, it still could not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pgflow_migrate import layout
from pgflow_migrate.audit.codes import CODES
from pgflow_migrate.audit.findings import AuditReport, Finding
from pgflow_migrate.audit.outlook import Outlook
from pgflow_migrate.audit.render import chart, words
from pgflow_migrate.layout import plural


def html(report: AuditReport, outlook: Outlook | None = None) -> str:
    """The page; every name in it is escaped.

    Args:
        report: the findings.
        outlook: queues, and what the upgrade would do; without it those parts are left out.
    """
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            outlook=outlook,
            totals=words.totals(report.findings),
            verdict=words.verdict(report),
            to_do=words.to_do(report.findings),
            groups=words.groups(words.shown(report)),
            bars=chart.bars(outlook.queues) if outlook else None,
            queues=chart.ordered(outlook.queues) if outlook else (),
            lost_told=words.lost(report),
            lost={(lost.flow_slug, lost.queue_name): lost.tasks for lost in report.lost or ()},
            problems=_problems(report.findings),
            codes=CODES,
        )
    )


@cache
def environment() -> Environment:
    """Jinja2 with the folder of templates; base.html.j2 has style, script and the frame of a page."""
    environment = Environment(
        loader=PackageLoader("pgflow_migrate.audit.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        printable=layout.printable,
        parts=parts,
        age=age,
        size=size,
        duration=duration,
        plural=plural,
        number="{:,}".format,
    )
    style, script = _asset("page.css"), _asset("page.js")
    environment.globals.update(
        style=Markup(style),  # noqa: S704 - our own files
        script=Markup(script),  # noqa: S704
        policy=(
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}';"
            " base-uri 'none'; form-action 'none'"
        ),
    )
    return environment


def parts(hint: str, code: str) -> list[tuple[bool, str]]:
    """A hint in prose and in statements to copy.

    The hint of ``queue-referenced-by-other-flow`` quotes what messages say, which may read like a statement:
    only what follows it is looked through. In all others foreign text stands inside the statements' quotes.

    A statement with characters that cannot be shown is left as prose: what one reads would not be what one
    copies.
    """
    if code == "queue-referenced-by-other-flow":
        said, own, rest = hint.rpartition("Move them where they belong, or archive them:")
        return [(False, said + own), *_parts(rest.strip())] if own else [(False, hint)]
    return _parts(hint)


def _parts(hint: str) -> list[tuple[bool, str]]:
    return [
        (statements and layout.printable(text.replace("\n", " ")) == text.replace("\n", " "), text)
        for statements, text in layout.parts(hint)
    ]


def age(seconds: float | None) -> str:
    """``90`` as ``1 min``: in the largest unit that it has one of."""
    if seconds is None:
        return "none"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"


def duration(seconds: float) -> str:
    """An estimate, no more exact than it is: ``less than a second``, ``12 s``, ``3 min``."""
    if seconds < 1:
        return "less than a second"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def size(number: int) -> str:
    """Bytes for people: ``1.5 MB``."""
    if number < 1000:
        return f"{number} B"
    value = float(number)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:,.1f} TB"


def _problems(findings: Sequence[Finding]) -> dict[str, tuple[str, ...]]:
    """The codes that are found of each queue, and of each flow without one; infos are none."""
    found: dict[str, dict[str, None]] = {}
    for finding in findings:
        if finding.severity == "info":
            continue
        flows = () if finding.flow_slug is None else (finding.flow_slug.lower(),)
        for name in {*flows, *(() if finding.queue_name is None else (finding.queue_name,))}:
            found.setdefault(name, {})[finding.code] = None
    return {name: tuple(codes) for name, codes in found.items()}


def _asset(name: str) -> str:
    folder = resources.files("pgflow_migrate.audit.render") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
