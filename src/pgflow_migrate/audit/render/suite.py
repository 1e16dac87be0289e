"""For CI servers: JUnit's XML."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from pgflow_migrate import layout
from pgflow_migrate.audit.codes import CODES
from pgflow_migrate.audit.findings import AuditReport
from pgflow_migrate.audit.render import words


def junit(report: AuditReport) -> str:
    """A test case for every code there is; those with findings of severity error have failed."""
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        name="pgflow-migrate audit",
        tests=str(len(CODES)),
        failures=str(len({finding.code for finding in report.blocking})),
        errors="0",
        skipped="0",
        timestamp=report.taken_at.isoformat(),
    )
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="database", value=layout.printable(report.database))
    for code in CODES.values():
        case = ET.SubElement(suite, "testcase", classname=f"audit.{code.severity}", name=code.name)
        found = [finding for finding in words.shown(report) if finding.code == code.name]
        text = "\n".join(words.sentence(finding) for finding in found)
        if found and code.severity == "error":
            ET.SubElement(case, "failure", type=code.name, message=code.title).text = text
        elif found:
            ET.SubElement(case, "system-out").text = text
    ET.SubElement(suite, "system-out").text = "\n".join(
        text for text in (words.lost(report), words.verdict(report)) if text
    )
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
