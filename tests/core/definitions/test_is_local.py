"""``pgflow.is_local()``: is this Supabase's local stack?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import Connection

LOCAL = "super-secret-jwt-token-with-at-least-32-characters-long"


def test_is_true_with_the_signing_key_of_the_local_stack(
    make_local: Callable[[], None], value: Callable[..., Any]
) -> None:
    make_local()
    assert value("select pgflow.is_local()") is True


@pytest.mark.parametrize("key", ["", LOCAL[:-1], f"{LOCAL} ", LOCAL.upper()])
def test_is_false_with_any_other_key(
    db: Connection[dict[str, Any]], value: Callable[..., Any], key: str
) -> None:
    db.execute("select set_config('app.settings.jwt_secret', %s, true)", (key,))
    assert value("select pgflow.is_local()") is False


def test_is_false_when_the_session_never_made_the_setting(
    release: str, database_at: Callable[[str], str], connect: Callable[[str], Connection[dict[str, Any]]]
) -> None:
    fresh = connect(database_at(release)).execute(
        "select current_setting('app.settings.jwt_secret', true) as setting, pgflow.is_local()"
    )
    assert fresh.fetchall() == [{"setting": None, "is_local": False}]
