"""Functions of a stranger's in public that fit the upgrade's calls better than pg_catalog's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.run import upgrade

Connection = psycopg.Connection[dict[str, Any]]

# Exact argument types beat an implicit cast and VARIADIC "any", wherever pg_catalog stands in the path.
TRAPS = """
  create table public.trapped (caller text);
  create function public.hashtextextended(text, integer) returns bigint language plpgsql as
    $$ begin insert into public.trapped values ('hashtextextended'); return 1; end $$;
  create function public.format(text, name) returns text language plpgsql as
    $$ begin insert into public.trapped values ('format'); return pg_catalog.format($1, $2); end $$;
  create function public.format(text, text) returns text language plpgsql as
    $$ begin insert into public.trapped values ('format'); return pg_catalog.format($1, $2); end $$;
  create function public.to_char(text, text) returns text language sql return 'trapped';
"""


def test_the_upgrade_calls_no_function_that_shadows_one_of_the_systems(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at("core_0_16_0")
    session = connect(dsn)
    session.execute("select pgflow.create_flow('orders'); select pgflow.add_step('orders', 'pack')")
    session.execute(TRAPS.encode())
    assert upgrade(dsn).revision == HEAD
    assert session.execute("select caller from public.trapped").fetchall() == []


def test_the_search_path_is_pinned_for_the_upgrade_only(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at("core_0_16_0")
    session = connect(dsn)
    # Seen by an event trigger: what the upgrade's own statements run with.
    session.execute(
        """
        create table public.seen (path text);
        create function public.look() returns event_trigger language plpgsql as
          $$ begin insert into public.seen values (pg_catalog.current_setting('search_path')); end $$;
        create event trigger look on table_rewrite execute function public.look();
        """
    )
    upgrade(dsn)
    assert session.execute("select distinct path from public.seen").fetchall() == [
        {"path": "pg_catalog, pg_temp"}
    ]
