"""For people who are sent the report: an HTML page that needs nothing else."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from pgflow_migrate.audit.codes import CODES
from pgflow_migrate.audit.findings import AuditReport
from pgflow_migrate.audit.render import words


def html(report: AuditReport) -> str:
    """The page; every name in it is escaped."""
    environment = Environment(
        loader=PackageLoader("pgflow_migrate.audit.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["printable"] = words.printable
    page = environment.get_template("report.html.j2")
    return page.render(
        report=report, totals=words.totals(report.findings), verdict=words.verdict(report), codes=CODES
    )
