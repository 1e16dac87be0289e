"""Writes the catalogue snapshot of the newest revision, which has to follow changes of that revision.

python -m pgflow_migrate.replay.snapshot
"""

from __future__ import annotations

import psycopg

from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.chain import HEAD, release_of
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import open_server


def main() -> None:
    """Make an empty database of it on an embedded server, and write down what that has."""
    with open_server("embedded:18") as server:
        dsn = Templates(server).clone(HEAD, "snapshot")
        with psycopg.connect(dsn) as connection:
            text = catalogue.read(connection).to_json()
    catalogue.path(release_of(HEAD)).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
