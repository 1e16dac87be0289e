"""What is installed with the package has licences that allow it, and docs/packaging.md names all of it."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| ([a-z0-9-]+) \| ([^|]+) \| (?:`(\w+)`|itself)", re.MULTILINE)
# Allowed beside Apache-2.0: permissive, or with a copyleft that ends at the package's own files.
ALLOWED = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "LGPL-3.0-only", "MIT", "MPL-2.0", "PSF-2.0"}
# Free text and classifiers of older metadata.
SPDX = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "Apache 2.0": "Apache-2.0",
}
EXTRAS = ("", "embedded", "testcontainers")


def _table() -> dict[str, tuple[str, str]]:
    """Package → its licence and the extra that it comes with, as documented."""
    text = (ROOT / "docs" / "packaging.md").read_text(encoding="utf-8").split("## Licences", 1)[1]
    return {name: (licence.strip(), extra) for name, licence, extra in ROW.findall(text)}


@cache
def _needed(extra: str) -> set[str]:
    """The packages that are installed with the package and an extra, itself excluded."""
    found: set[str] = set()
    waiting = [("pgflow-migrate", frozenset({extra}))]
    done = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in done:
            continue
        done.add((name, extras))
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:  # a marker of pypy or of another system that extras made true
            continue
        found.add(canonicalize_name(name))
        for need in map(Requirement, needs):
            if need.marker is None or any(need.marker.evaluate({"extra": asked}) for asked in extras | {""}):
                waiting.append((need.name, frozenset(need.extras)))
    return found - {"pgflow-migrate"}


def _licence(package: str) -> str:
    """The SPDX expression of an installed package, from whichever of the three places has it."""
    metadata = distribution(package).metadata
    classifiers = [
        line.rsplit(" :: ", 1)[1] for line in metadata.get_all("Classifier", []) if "License ::" in line
    ]
    (text,) = metadata.get_all("License", [""])
    (expression,) = metadata.get_all("License-Expression", [""])
    named = expression or (text if text in ALLOWED else SPDX.get(text, ""))
    return named or " AND ".join(SPDX.get(line, line) for line in classifiers)


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_is_installed_with_an_extra_is_documented_with_its_licence(extra: str) -> None:
    table = _table()
    installed = _needed(extra)
    assert installed >= {"alembic", "psycopg", "rich"}
    assert {package: _licence(package) for package in installed} == {
        package: table.get(package, ("undocumented", ""))[0] for package in installed
    }
    assert {table[package][1] for package in installed} <= {"", extra}


def test_nothing_is_documented_that_is_not_installed() -> None:
    everywhere = {"greenlet", "tomli"}  # with SQLAlchemy 2.0 and on Python 3.10
    optional = {"python-dotenv"}  # no dependency of the oldest testcontainers
    needed = set().union(*map(_needed, EXTRAS))
    assert needed - everywhere - optional == set(_table()) - everywhere - optional


def test_every_documented_licence_goes_with_ours() -> None:
    licences = {
        word for licence, _ in _table().values() for word in re.split(r" AND | OR |[()]", licence)
    } - {""}
    assert licences <= ALLOWED


def test_the_package_does_not_import_what_is_for_its_tests_alone() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert not [text for text in sources if re.search(r"^\s*(import|from) pglast", text, re.MULTILINE)]
