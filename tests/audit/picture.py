"""Make docs/audit.png: the audit of the demonstration's database as a browser shows it.

python -m tests.audit.picture (make picture); needs Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psycopg
from tests.audit import chromium

from pgflow_migrate.audit import render
from pgflow_migrate.audit.run import survey
from pgflow_migrate.replay import demo
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import open_server

FILE = Path(__file__).resolve().parents[2] / "docs" / "audit.png"
WIDTH, HEIGHT = 1000, 1560


def main(file: Path = FILE) -> None:
    """Populate, audit, take the picture."""
    story = Path(demo.__file__).parent / "story" / "populate.sql"
    with open_server("embedded:18") as server, tempfile.TemporaryDirectory() as folder:
        dsn = Templates(server).clone("core_0_16_0", "shop")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(story.read_bytes())
        page = Path(folder) / "audit.html"
        page.write_text(render.html(*survey(dsn)), encoding="utf-8")
        chromium.picture(page, file, width=WIDTH, height=HEIGHT)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
