"""What is run as SQL reads the same whatever the server thinks of backslashes and encodings."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgflow_migrate import resources
from pgflow_migrate.upgrade.script import upgrade_script
from pgflow_migrate.upgrade.session import Fence

PACKAGE = Path(resources.__file__).parent
SQL = sorted(
    path
    for folder in ("alembic/sql", "audits", "helpers")
    for path in (resources.root() / folder).rglob("*.sql")
) + sorted(
    path
    for folder in ("upgrade", "verify", "releases", "audit")
    for path in (PACKAGE / folder).rglob("*.sql")
)


def test_no_file_has_a_backslash_or_anything_but_ascii() -> None:
    """With standard_conforming_strings = off a backslash escapes; LATIN1 has no ellipsis."""
    assert len(SQL) > 100
    assert [path.name for path in SQL if "\\" in path.read_text(encoding="utf-8")] == []
    assert [path.name for path in SQL if not path.read_bytes().isascii()] == []


@pytest.mark.parametrize("release", ["0.15.0", "0.15.1", "0.16.0"])
def test_neither_has_the_script(release: str) -> None:
    script = upgrade_script(release, Fence())
    assert "\\" not in script
    assert script.isascii()
