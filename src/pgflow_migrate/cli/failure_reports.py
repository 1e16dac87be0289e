"""A command that could not run, in the formats of CI: a report that is valid, and says so."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree as ET

from pgflow_migrate.audit.render.annotations import annotation
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.layout import printable


def junit(command: str, error: PgflowMigrateError) -> str:
    """One test case, with an error."""
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        name=f"pgflow-migrate {command}",
        tests="1",
        failures="0",
        errors="1",
        skipped="0",
    )
    case = ET.SubElement(suite, "testcase", classname=command, name="could run")
    told = ET.SubElement(case, "error", type="could not run", message=printable(error.message))
    told.text = "\n".join(printable(line) for line in (error.message, *error.details, error.remedy) if line)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


def github(command: str, error: PgflowMigrateError) -> str:
    """One annotation."""
    text = " ".join(part for part in (error.message, *error.details, error.remedy) if part)
    return annotation("error", f"pgflow-migrate {command}", printable(text))


REPORTS: dict[str, Callable[[str, PgflowMigrateError], str]] = {"junit": junit, "github": github}
"""By ``--format``; the text has no newline at its end."""
