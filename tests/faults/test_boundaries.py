"""The boundaries are those of the command as it is: nothing is left out, nothing is sent otherwise."""

from __future__ import annotations

import pytest
from tests.faults.boundaries import PHASES
from tests.faults.ground import Ground
from tests.faults.line import split

from pgflow_migrate import resources
from pgflow_migrate.upgrade.progress import Event, FileStarted
from pgflow_migrate.upgrade.run import upgrade

# Those of Work Center are SQLite's.
FILES = sorted(p for p in resources.revision_sql("").rglob("*.sql") if not p.parent.name.startswith("wc_"))


def test_statements_of_every_file_put_together_are_its_text() -> None:
    split_up = {path: split(path.read_text(encoding="utf-8")) for path in FILES}
    assert all("".join(pieces) == path.read_text(encoding="utf-8") for path, pieces in split_up.items())
    assert sum(map(len, split_up.values())) > len(FILES) > 60


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("COMMIT", ("COMMIT",)),
        ("select 'é;' ;\nselect 2; -- ;", ("select 'é;' ;", "\nselect 2; -- ;")),
        ("do $$ begin; end $$;select 1", ("do $$ begin; end $$;", "select 1")),
    ],
)
def test_a_message_is_split_where_a_statement_ends(text: str, statements: tuple[str, ...]) -> None:
    assert split(text) == statements


def test_the_files_are_sent_as_they_are_and_in_the_order_of_the_revisions(
    from_0_15: Ground,
) -> None:
    started: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, FileStarted):
            started.append(f"{event.revision}/{event.file}")

    with from_0_15.database() as dsn:
        upgrade(dsn, on_progress=listen)
    contents = [resources.revision_sql("").joinpath(file).read_text(encoding="utf-8") for file in started]
    sent = ["".join(message) for message in from_0_15.messages]
    assert [message for message in sent if message in contents] == contents
    assert [
        boundary.file for boundary in from_0_15.boundaries if boundary.place == 1 and boundary.file
    ] == started


def test_there_is_a_boundary_before_every_statement_and_around_the_commit(from_0_16: Ground) -> None:
    statements = [statement for message in from_0_16.messages for statement in message]
    before = [boundary.stop.number for boundary in from_0_16.boundaries if boundary.stop.when == "before"]
    assert before == list(range(len(statements)))
    assert [boundary.stop.when for boundary in from_0_16.boundaries if boundary.statement == "COMMIT"] == [
        "before",
        "sent",
        "answered",
    ]
    assert statements[-1] == "COMMIT"
    assert tuple(dict.fromkeys(boundary.phase for boundary in from_0_16.boundaries)) == PHASES
