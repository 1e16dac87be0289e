"""What ``status`` says to do next, for each state of a database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server
from pgflow_migrate.upgrade import Status, read_status
from pgflow_migrate.upgrade.advice import advice

BACKUP = "Take a backup, then: pgflow-migrate upgrade"


@pytest.fixture(scope="module")
def ready(server: Server, templates: Templates) -> Status:
    """An empty database at 0.16.0, which nothing keeps from the upgrade."""
    dsn = templates.clone("core_0_16_0", "advice")
    try:
        return read_status(dsn)
    finally:
        server.drop_database("advice")


def on(**server: Any) -> Callable[[Status], Status]:
    return lambda status: replace(status, server=replace(status.server, **server))


def with_(**changes: Any) -> Callable[[Status], Status]:
    return lambda status: replace(status, **changes)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (with_(), (BACKUP,)),
        (
            with_(upgrades=(7,), closest=None),
            ("Wait until the upgrade that runs has ended, then look again.",),
        ),
        (
            with_(missing_grants=("grant …",), closest=None),
            ("Run the GRANT statements above as the owner, then look again.",),
        ),
        (
            with_(closest=None, release=None),
            ("Install pgflow, or check the connection string: there is no schema pgflow here.",),
        ),
        (
            with_(unknown=("later",), release=None),
            ("Install the newest pgflow-migrate: a newer one has upgraded this database.",),
        ),
        (
            with_(changed=("core_0_16_0",), release=None),
            ("Install the release of pgflow-migrate that applied what is marked CHANGED.",),
        ),
        (
            with_(disagreement="…", release=None),
            ("Find out who changed schema pgflow, or its record, past pgflow-migrate.",),
        ),
        (
            with_(release=None),
            ("Undo the drift, or upgrade pgflow itself to a release that is known.",),
        ),
        (
            with_(paused=("a function",), pending=()),
            ("Mend what the paused functions met, then resume them as shown above.",),
        ),
        (with_(paused_grants=("grant …",)), ("Run the GRANT statements above to see the rest.", BACKUP)),
        (with_(activity_grants=("grant …",)), ("Run the GRANT statements above to see the rest.", BACKUP)),
        (
            with_(pending=(), audit=None),
            ("Nothing. To check every invariant, any time: pgflow-migrate verify",),
        ),
        (with_(audit=None), ("pgflow-migrate audit: it could not be made here.",)),
        (with_(audit=None, audit_applies=False), (BACKUP,)),
        (
            on(standby=True, owns_pgflow=False),
            ("Connect to the primary for the upgrade: this server is a standby.", BACKUP),
        ),
        (
            on(owns_pgflow=False, pgflow_owner="flows"),
            ("Connect as flows, or as a member of it, for the upgrade.", BACKUP),
        ),
        (
            with_(workers=("one", "two")),
            ("Stop 2 workers and the producers: pgflow-migrate docs upgrade.", BACKUP),
        ),
    ],
)
def test_the_first_thing_to_do_comes_first(
    ready: Status, state: Callable[[Status], Status], said: tuple[str, ...]
) -> None:
    assert advice(state(ready)) == said


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (1, "pgflow-migrate audit: 1 finding stands in the way, each with what mends it."),
        (2, "pgflow-migrate audit: 2 findings stand in the way, each with what mends it."),
    ],
)
def test_findings_come_before_backup_and_upgrade(ready: Status, errors: int, said: str) -> None:
    assert ready.audit is not None
    audited = replace(ready, audit=replace(ready.audit, errors=errors))
    assert advice(audited) == (said,)
