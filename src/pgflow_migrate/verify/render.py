"""A verification in every form that people and programs read. Names are arbitrary text: none goes out raw."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from pgflow_migrate import layout
from pgflow_migrate.audit.render.annotations import annotation
from pgflow_migrate.layout import printable
from pgflow_migrate.verify.violations import Verification, Violation

if TYPE_CHECKING:
    from rich.console import Console


def verdict(found: Verification) -> str:
    """The verification in a sentence."""
    looked = found.looked_at
    things = ", ".join(
        (
            layout.plural(looked.flows, "flow"),
            layout.plural(looked.steps, "step"),
            layout.plural(looked.tasks, "task"),
        )
    )
    broken = len({violation.check for violation in found.violations})
    stand = (
        f"All {len(found.checks)} invariants hold"
        if not broken
        else f"{broken} of {len(found.checks)} invariants {'does' if broken == 1 else 'do'} not hold"
    )
    at = f"{found.taken_at:%Y-%m-%d %H:%M:%S %Z}"
    return f"{stand} in database {printable(found.database)}, {found.revision}, at {at} ({things})."


def table(found: Verification, console: Console) -> None:
    """For people at a terminal; in a pipe or a file lines are left whole, for grep."""
    for violation in found.violations:
        layout.show_broken(console, violation.check, printable(violation.found), printable(violation.hint))
    layout.show(console, verdict(found))


def document(found: Verification) -> dict[str, Any]:
    """For programs, in JSON's own types. Message ids stand in samples, as text: no precision is lost."""
    return {
        "schema": "urn:pgflow-migrate:verify:1",
        "status": "violated" if found.violations else "clean",
        "database": found.database,
        "server": found.server,
        "revision": found.revision,
        "taken_at": found.taken_at.isoformat(),
        "note": verdict(found),
        "looked_at": dataclasses.asdict(found.looked_at),
        "checks": {name: "violated" if found.of(name) else "holds" for name in found.checks},
        "violations": [
            {**dataclasses.asdict(violation), "samples": list(violation.samples)}
            for violation in found.violations
        ],
    }


def junit(found: Verification) -> str:
    """For CI servers: a test case for every invariant."""
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        name="pgflow-migrate verify",
        tests=str(len(found.checks)),
        failures=str(len({violation.check for violation in found.violations})),
        errors="0",
        skipped="0",
        timestamp=found.taken_at.isoformat(),
    )
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="database", value=printable(found.database))
    for check in found.checks.values():
        case = ET.SubElement(suite, "testcase", classname="verify", name=check.name)
        if broken := found.of(check.name):
            failure = ET.SubElement(
                case, "failure", type=check.name, message=f"It does not hold that {check.title}."
            )
            failure.text = "\n".join(_line(violation) for violation in broken)
    ET.SubElement(suite, "system-out").text = verdict(found)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def github(found: Verification) -> str:
    """For GitHub Actions: an annotation for each violation, and the verdict last."""
    lines = [annotation("error", violation.check, _line(violation)) for violation in found.violations]
    lines.append(annotation("notice", "pgflow-migrate verify", verdict(found)))
    return "\n".join(lines) + "\n"


def _line(violation: Violation) -> str:
    return printable(f"{violation.found}. {violation.hint}")
