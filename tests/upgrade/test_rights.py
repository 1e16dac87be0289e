"""Which role may upgrade, and what the others are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, PgflowMigrateError
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.run import upgrade

Unchanged = Callable[[str], AbstractContextManager[None]]

GIVE_AWAY = """
do $$
declare statement text;
begin
  for statement in
    select format('alter table %s owner to rights_owner', c.oid::regclass) from pg_class c
    where c.relnamespace = 'pgflow'::regnamespace and c.relkind = 'r'
    union all
    select format('alter function %s owner to rights_owner', p.oid::regprocedure) from pg_proc p
    where p.pronamespace = 'pgflow'::regnamespace
    union all
    select format('alter type %s owner to rights_owner', t.oid::regtype) from pg_type t
    join pg_class c on c.oid = t.typrelid
    where t.typnamespace = 'pgflow'::regnamespace and c.relkind = 'c'
  loop
    execute statement;
  end loop;
end;
$$;
alter schema pgflow owner to rights_owner;
grant usage on schema pgmq to rights_owner;
grant all on all tables in schema pgmq to rights_owner;
grant all on all sequences in schema pgmq to rights_owner;
"""


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def owned(database_at: Callable[[str], str]) -> Iterator[str]:
    """A populated 0.16.0 database, not made by us, whose schema pgflow belongs to role rights_owner."""
    dsn = database_at("core_0_16_0")
    execute(
        dsn,
        """
        drop schema pgflow_migrate cascade;
        select pgflow.create_flow('order_flow');
        select pgflow.add_step('order_flow', 'first');
        select pgflow.start_flow('order_flow', '{}');
        """,
    )
    for role in ("rights_owner", "rights_member", "rights_stranger"):
        execute(dsn, f"drop role if exists {role}")
        execute(dsn, f"create role {role} login")
    execute(dsn, GIVE_AWAY)
    execute(dsn, f"grant create on database {conninfo_to_dict(dsn)['dbname']} to rights_owner")
    yield dsn
    for role in ("rights_owner", "rights_member", "rights_stranger"):
        execute(dsn, f"drop owned by {role} cascade")
        execute(dsn, f"drop role {role}")


def test_the_owner_need_not_be_a_superuser(owned: str) -> None:
    result = upgrade(make_conninfo(owned, user="rights_owner"))
    assert (result.from_release, result.revision) == ("0.16.0", HEAD)


def test_a_role_without_rights_is_told_which_role_has_them(owned: str, unchanged: Unchanged) -> None:
    with unchanged(owned), pytest.raises(PgflowMigrateError) as caught:
        upgrade(make_conninfo(owned, user="rights_stranger"))
    error = caught.value
    assert error.exit_code == EXIT_COULD_NOT_RUN
    assert error.message.startswith(
        'Role "rights_stranger" may not change schema pgflow, which is owned by "rights_owner" ('
    )
    assert error.remedy == (
        "The database is unchanged. To run it with the owner's rights,"
        ' connect as "rights_owner", or grant it: grant "rights_owner" to "rights_stranger".'
    )


def test_a_member_that_does_not_inherit_is_told_the_option_and_it_works(
    owned: str, unchanged: Unchanged
) -> None:
    execute(owned, "alter role rights_member noinherit; grant rights_owner to rights_member")
    member = make_conninfo(owned, user="rights_member")
    with unchanged(owned), pytest.raises(PgflowMigrateError) as caught:
        upgrade(member)
    assert "add options='-c role=rights_owner' to the connection string" in caught.value.remedy
    assert upgrade(f"{member} options='-c role=rights_owner'").revision == HEAD


def test_an_owner_without_create_on_the_database_is_told_what_is_missing(
    owned: str, unchanged: Unchanged
) -> None:
    database = conninfo_to_dict(owned)["dbname"]
    execute(owned, f"revoke create on database {database} from rights_owner")
    with unchanged(owned), pytest.raises(PgflowMigrateError) as caught:
        upgrade(make_conninfo(owned, user="rights_owner"))
    assert caught.value.message == (
        f"The role lacks a right (outside the revisions): permission denied for database {database}."
    )
    assert caught.value.remedy == (
        f"The database is unchanged. What is missing: grant create on database {database} to rights_owner;"
    )


@pytest.mark.parametrize(
    ("revoked", "grants"),
    [
        ("update, delete, truncate{maintain} on pgmq.meta", ["grant update on pgmq.meta to rights_owner;"]),
        ("all on pgmq.meta", ["grant select, update on pgmq.meta to rights_owner;"]),
        (
            "all on pgmq.meta, pgmq.q_order_flow",
            ["grant select, update on pgmq.meta, pgmq.q_order_flow to rights_owner;"],
        ),
        (
            "select on pgmq.meta; revoke all on pgmq.q_order_flow",
            [
                "grant select on pgmq.meta to rights_owner;",
                "grant select, update on pgmq.q_order_flow to rights_owner;",
            ],
        ),
        ("usage on schema pgmq", ["grant usage on schema pgmq to rights_owner;"]),
    ],
)
def test_an_owner_that_may_not_lock_pgmqs_tables_is_told_the_grants_and_they_are_enough(
    owned: str, unchanged: Unchanged, revoked: str, grants: list[str]
) -> None:
    with psycopg.connect(owned) as connection:
        maintain = ", maintain" if connection.info.server_version >= 170000 else ""
    for part in revoked.format(maintain=maintain).split("; revoke "):
        execute(owned, f"revoke {part} from rights_owner")
    owner = make_conninfo(owned, user="rights_owner")
    with unchanged(owned), pytest.raises(PgflowMigrateError) as caught:
        upgrade(owner)
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN
    assert caught.value.message.startswith(
        "The role lacks a right (queue_identity/fence.sql): permission denied"
    )
    assert caught.value.remedy == f"The database is unchanged. What is missing: {' '.join(grants)}"
    execute(owned, " ".join(grants))
    assert upgrade(owner).revision == HEAD


def test_a_ledger_of_somebody_elses_is_named_with_the_grants(owned: str, unchanged: Unchanged) -> None:
    upgrade(owned, "core_0_16_0")
    owner = make_conninfo(owned, user="rights_owner")
    with unchanged(owned), pytest.raises(PgflowMigrateError) as caught:
        upgrade(owner)
    said, grants = caught.value.remedy.split(" What is missing: ")
    assert said == "The database is unchanged."
    assert grants == (
        "grant usage on schema pgflow_migrate to rights_owner;"
        " grant select, insert, update, delete on pgflow_migrate.alembic_version to rights_owner;"
        " grant select, insert, update, delete on pgflow_migrate.schema_migrations to rights_owner;"
    )
    execute(owned, grants)
    assert upgrade(owner).revision == HEAD


def test_the_rights_that_are_named_are_all_that_is_needed(owned: str, unchanged: Unchanged) -> None:
    execute(
        owned,
        """
        revoke all on all tables in schema pgmq from rights_owner;
        revoke all on all sequences in schema pgmq from rights_owner;
        """,
    )
    with unchanged(owned), pytest.raises(PgflowMigrateError) as caught:
        upgrade(make_conninfo(owned, user="rights_owner"))
    said, grants = caught.value.remedy.split(" What is missing: ")
    assert said == "The database is unchanged."
    assert grants == (
        "grant select, update on pgmq.meta, pgmq.q_order_flow to rights_owner;"
        " grant select on sequence pgmq.q_order_flow_msg_id_seq to rights_owner;"
    )
    execute(owned, grants)
    assert upgrade(make_conninfo(owned, user="rights_owner")).revision == HEAD
