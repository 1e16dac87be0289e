"""The ledger: what is recorded, what is refused, what a renamed revision keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from pgflow_migrate import resources
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, BlockedError, PgflowMigrateError
from pgflow_migrate.upgrade import checksum, ledger
from pgflow_migrate.upgrade.progress import Event, Found
from pgflow_migrate.upgrade.run import upgrade

CORES = ["core_0_15_0", "core_0_15_1", "core_0_16_0"]
Rows = list[dict[str, object]]
Query = Callable[[str, str], Rows]
Unchanged = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def query(connect: Callable[[str], psycopg.Connection[dict[str, object]]]) -> Query:
    """Rows of a statement; a new connection each time."""

    def run(dsn: str, statement: str) -> Rows:
        cursor = connect(dsn).execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    return run


def test_an_upgrade_from_nothing_records_every_revision_once(
    database_at: Callable[[str], str], query: Query
) -> None:
    dsn = database_at("")
    upgrade(dsn, "core_0_16_0")
    assert query(dsn, "table pgflow_migrate.alembic_version") == [{"version_num": "core_0_16_0"}]
    rows = query(dsn, "select name, checksum, applied_at from pgflow_migrate.schema_migrations order by name")
    assert {str(row["name"]): row["checksum"] for row in rows} == ledger.checksums(CORES)
    assert len({row["applied_at"] for row in rows}) == 1


def test_the_ledger_has_the_columns_promised(database_at: Callable[[str], str], query: Query) -> None:
    columns = query(
        database_at("core_0_15_0"),
        """
        select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type,
          a.attnotnull as required, pg_get_expr(d.adbin, d.adrelid) as preset
        from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = 'pgflow_migrate.schema_migrations'::regclass and a.attnum > 0
        order by a.attnum
        """,
    )
    assert columns == [
        {"name": "name", "type": "text", "required": True, "preset": None},
        {"name": "checksum", "type": "text", "required": True, "preset": None},
        {"name": "applied_at", "type": "timestamp with time zone", "required": True, "preset": "now()"},
    ]


def test_a_later_upgrade_leaves_the_older_entries_as_they_are(
    database_at: Callable[[str], str], query: Query
) -> None:
    dsn = database_at("core_0_15_0")
    before = query(dsn, "table pgflow_migrate.schema_migrations")
    upgrade(dsn, "core_0_16_0")
    after = query(dsn, "table pgflow_migrate.schema_migrations")
    assert after[0] == before[0]
    assert [row["name"] for row in after] == CORES
    assert {row["applied_at"] for row in after[1:]}.isdisjoint({before[0]["applied_at"]})


def test_an_upgraded_database_is_left_as_it_is(
    database_at: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_16_0")
    with unchanged(dsn):
        result = upgrade(dsn, "core_0_16_0")
    assert result.already_current
    assert result.applied == ()
    assert (result.from_release, result.revision) == ("0.16.0", "core_0_16_0")


def test_a_changed_checksum_is_refused_and_names_the_revision(
    database_at: Callable[[str], str], query: Query, unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_15_1")
    query(dsn, "update pgflow_migrate.schema_migrations set checksum = 'x' where name = 'core_0_15_0'")
    with unchanged(dsn), pytest.raises(BlockedError) as caught:
        upgrade(dsn, "core_0_16_0")
    assert caught.value.exit_code == EXIT_BLOCKED
    assert caught.value.message == (
        'The files of revision "core_0_15_0" are not those that were applied to this database:'
        " the recorded checksum differs."
    )


@pytest.mark.parametrize(
    "statement",
    [
        "update pgflow_migrate.alembic_version set version_num = 'from_the_future'",
        "insert into pgflow_migrate.schema_migrations (name, checksum) values ('from_the_future', 'x')",
    ],
)
def test_a_revision_from_a_newer_release_is_refused(
    database_at: Callable[[str], str], query: Query, unchanged: Unchanged, statement: str
) -> None:
    dsn = database_at("core_0_15_1")
    query(dsn, statement)
    with unchanged(dsn), pytest.raises(PgflowMigrateError) as caught:
        upgrade(dsn, "core_0_16_0")
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN
    assert caught.value.message == (
        'This database was upgraded by a newer pgflow-migrate: it is at revision "from_the_future".'
    )


def test_a_renamed_revision_is_adopted_with_its_time(
    database_at: Callable[[str], str], query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = database_at("core_0_15_1")
    for statement in (
        "update pgflow_migrate.schema_migrations set name = 'hardening', applied_at = '2026-01-02 03:04:05Z'"
        " where name = 'core_0_15_1'",
        "update pgflow_migrate.alembic_version set version_num = 'hardening'",
    ):
        query(dsn, statement)
    monkeypatch.setattr(ledger, "RENAMED", {"hardening": "core_0_15_1"})
    # Its files, and those of the revision that follows it, would have had the old id in them.
    query(
        dsn,
        "update pgflow_migrate.schema_migrations set checksum ="
        f" '{checksum.checksum('core_0_15_1', ledger.RENAMED)}' where name = 'hardening'",
    )
    heard: list[Event] = []
    upgrade(dsn, "core_0_16_0", on_progress=heard.append)
    assert Found("0.15.1", "core_0_15_1", recorded=True) in heard
    rows = query(
        dsn, "select name, applied_at at time zone 'UTC' as at from pgflow_migrate.schema_migrations"
    )
    assert {str(row["name"]): str(row["at"]) for row in rows}["core_0_15_1"] == "2026-01-02 03:04:05"
    assert sorted(str(row["name"]) for row in rows) == CORES


def test_without_the_right_to_create_a_schema_nothing_is_missing(
    database_at: Callable[[str], str], query: Query
) -> None:
    """Where the ledger exists, no right to create one is needed."""
    dsn = database_at("core_0_16_0")
    query(dsn, f"revoke create on database {psycopg.conninfo.conninfo_to_dict(dsn)['dbname']} from public")
    query(dsn, "drop role if exists ledger_writer")
    query(dsn, "create role ledger_writer login")
    try:
        for statement in (
            "alter schema pgflow_migrate owner to ledger_writer",
            "alter table pgflow_migrate.schema_migrations owner to ledger_writer",
            "alter table pgflow_migrate.alembic_version owner to ledger_writer",
        ):
            query(dsn, statement)
        assert upgrade(
            psycopg.conninfo.make_conninfo(dsn, user="ledger_writer"), "core_0_16_0"
        ).already_current
    finally:
        query(dsn, "drop owned by ledger_writer cascade")
        query(dsn, "drop role ledger_writer")


class TestChecksum:
    """Checksums see every character that matters, and nothing else."""

    @pytest.fixture
    def root(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        versions = tmp_path / "alembic" / "versions"
        folder = tmp_path / "alembic" / "sql" / "one" / "functions"
        versions.mkdir(parents=True)
        folder.mkdir(parents=True)
        (versions / "one.py").write_text('revision = "one"\ndown_revision = None\n', encoding="utf-8")
        (folder / "a.sql").write_text("select 1;\n", encoding="utf-8")
        (folder / "b.sql").write_text("select 2;\n", encoding="utf-8")
        monkeypatch.setattr(resources, "root", lambda: tmp_path)
        return tmp_path

    def test_it_is_the_same_again(self, root: Path) -> None:
        first = checksum.checksum("one", {})
        assert len(first) == 64
        assert checksum.checksum("one", {}) == first

    def test_line_ends_make_no_difference(self, root: Path) -> None:
        first = checksum.checksum("one", {})
        for path in [*root.rglob("*.sql"), *root.rglob("*.py")]:
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        assert checksum.checksum("one", {}) == first

    @pytest.mark.parametrize(
        ("file", "content"),
        [
            ("alembic/versions/one.py", 'revision = "one"\ndown_revision = "zero"\n'),
            ("alembic/sql/one/functions/a.sql", "select 1 ;\n"),
            ("alembic/sql/one/functions/c.sql", ""),
            ("alembic/sql/one/d.sql", "select 3;\n"),
        ],
    )
    def test_any_other_change_is_seen(self, root: Path, file: str, content: str) -> None:
        first = checksum.checksum("one", {})
        (root / file).write_text(content, encoding="utf-8")
        assert checksum.checksum("one", {}) != first

    def test_text_that_moves_from_a_file_to_its_neighbour_is_seen(self, root: Path) -> None:
        first = checksum.checksum("one", {})
        (root / "alembic/sql/one/functions/a.sql").write_text("select 1;\nselect 2;\n", encoding="utf-8")
        (root / "alembic/sql/one/functions/b.sql").write_text("", encoding="utf-8")
        assert checksum.checksum("one", {}) != first

    def test_a_file_that_got_another_name_is_seen(self, root: Path) -> None:
        first = checksum.checksum("one", {})
        (root / "alembic/sql/one/functions/a.sql").rename(root / "alembic/sql/one/functions/aa.sql")
        assert checksum.checksum("one", {}) != first

    def test_another_id_makes_no_difference_once_it_is_declared(self, root: Path) -> None:
        first = checksum.checksum("one", {})
        (root / "alembic/sql/one").rename(root / "alembic/sql/uno")
        (root / "alembic/versions/one.py").unlink()
        (root / "alembic/versions/uno.py").write_text(
            'revision = "uno"\ndown_revision = None\n', encoding="utf-8"
        )
        assert checksum.checksum("uno", {}) != first
        assert checksum.checksum("uno", {"one": "uno"}) == first


def test_the_default_lock_timeout_is_bounded() -> None:
    from pgflow_migrate.upgrade.session import Fence

    assert timedelta(0) < Fence().lock_timeout <= timedelta(seconds=10)
