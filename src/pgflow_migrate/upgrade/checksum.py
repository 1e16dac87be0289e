"""What a revision is, in 64 characters: a released revision never changes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from pgflow_migrate import resources
from pgflow_migrate.errors import PgflowMigrateError


def checksum(revision: str, renamed: Mapping[str, str]) -> str:
    """SHA-256, in hexadecimal, over a revision's script and its SQL files.

    Line ends and the files' order on disk make no difference; a file's name and every other character do.

    Args:
        revision: the revision's id.
        renamed: old ids by which revisions were released, to their present ones. They are read as the old
            ones, because giving a revision another id leaves what it does as it was.

    Raises:
        PgflowMigrateError: the script is in no file of the revision's name.
    """
    digest = hashlib.sha256()
    for name, path in _files(revision):
        content = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        for part in (name, content):
            encoded = _released_spelling(part, renamed).encode()
            # The length in front keeps "ab" + "c" and "a" + "bc" apart.
            digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def _files(revision: str) -> list[tuple[str, Path]]:
    script = resources.revision_script(revision)
    if not script.is_file():
        raise PgflowMigrateError(
            f'Revision "{revision}" is not in a file of its own name, {script.name}.',
            f"Rename its file in {script.parent}, or remove it.",
        )
    folder = resources.revision_sql(revision)
    files = [(path.relative_to(folder.parent).as_posix(), path) for path in folder.rglob("*.sql")]
    return [(script.name, script), *sorted(files)]


def _released_spelling(text: str, renamed: Mapping[str, str]) -> str:
    for old, new in renamed.items():
        text = re.sub(rf"\b{re.escape(new)}\b", old, text)
    return text
