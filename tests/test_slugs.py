"""The slug rules in Python and in SQL are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from pgflow_migrate import slugs
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

CASES: dict[str, str | None] = {
    "a": None,
    "A": None,
    "order": None,
    "orderItems": None,
    "order_items": None,
    "a_b_c": None,
    "o1_2": None,
    "a" * 128: None,
    "Run": None,
    "runs": None,
    "": "is empty",
    "a" * 129: "is longer than 128 characters",
    "_order": 'begins with "_"',
    "_": 'begins with "_"',
    "order_": 'ends with "_"',
    "order__items": 'contains "__", which belongs to generated queue names',
    "a___b": 'contains "__", which belongs to generated queue names',
    "1order": 'is not made of ASCII letters, digits and "_", with a letter first',
    "order-items": 'is not made of ASCII letters, digits and "_", with a letter first',
    "order items": 'is not made of ASCII letters, digits and "_", with a letter first',
    "ordér": 'is not made of ASCII letters, digits and "_", with a letter first',
    "order\n": 'is not made of ASCII letters, digits and "_", with a letter first',
    "run": "is a reserved word",
}


@pytest.fixture(scope="module")
def session(server: Server, templates: Templates) -> Iterator[psycopg.Connection[Any]]:
    """A database at queue identity, only read."""
    with psycopg.connect(templates.clone("queue_identity", "slugs"), autocommit=True) as connection:
        yield connection
    server.drop_database("slugs")


def valid_in_sql(session: psycopg.Connection[Any], slug: str | None) -> bool:
    row = session.execute("select pgflow.is_valid_slug(%s)", (slug,)).fetchone()
    assert row is not None
    return bool(row[0])


@pytest.mark.parametrize(("slug", "fault"), CASES.items())
def test_both_judge_alike(session: psycopg.Connection[Any], slug: str, fault: str | None) -> None:
    assert slugs.fault(slug) == fault
    assert slugs.is_valid(slug) == valid_in_sql(session, slug) == (fault is None)


@pytest.mark.parametrize(("slug", "fault"), CASES.items())
def test_every_call_that_takes_a_slug_judges_alike(
    session: psycopg.Connection[Any], slug: str, fault: str | None
) -> None:
    """Building blocks and compiler, flows and steps; a flow must also be short enough for its queue."""
    shape = Jsonb({"steps": [{"slug": slug}]})
    capable = Jsonb({"queueIdentity": True})
    too_long = None if len(slug) <= slugs.MAX_QUEUE_NAME_LENGTH else "22023"
    of_flow = "23514" if fault else too_long
    of_step = "23514" if fault else None
    with session.transaction(force_rollback=True):
        assert error(session, "select pgflow.create_flow(%s)", slug) == of_flow
    with session.transaction(force_rollback=True):
        call = "select pgflow.ensure_flow_compiled(%s, '{}', %s)"
        assert error(session, call, slug, capable) == of_flow
    with session.transaction(force_rollback=True):
        session.execute("select pgflow.create_flow('known')")
        assert error(session, "select pgflow.add_step('known', %s)", slug) == of_step
    with session.transaction(force_rollback=True):
        call = "select pgflow.ensure_flow_compiled('new', %s, %s)"
        assert error(session, call, shape, capable) == of_step


def error(session: psycopg.Connection[Any], call: str, *values: object) -> str | None:
    """The SQLSTATE that a call fails with, if it fails."""
    try:
        with session.transaction():
            session.execute(call.encode(), values)
    except psycopg.Error as failure:
        return failure.sqlstate
    return None


def test_null_is_no_slug(session: psycopg.Connection[Any]) -> None:
    assert valid_in_sql(session, None) is False


# Mostly slug-like, so that both answers are common; no NUL, which PostgreSQL's text cannot hold.
LIKELY = st.text("abzABZ09_", max_size=12)
ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=140)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(slug=LIKELY | ANY)
@example(slug="a\u0130")
@example(slug="\u0661a")
@example(slug="a" * 128 + "\u00e9")
def test_both_judge_any_text_alike(session: psycopg.Connection[Any], slug: str) -> None:
    assert slugs.is_valid(slug) == valid_in_sql(session, slug)


@settings(max_examples=100, deadline=None)
@given(slug=LIKELY.filter(slugs.is_valid))
@example(slug="A" * 47)
def test_a_queue_name_is_the_slug_in_lower_case(slug: str) -> None:
    assert slugs.canonical_queue_name(slug) == slug.lower()


@pytest.mark.parametrize(
    ("slug", "message"),
    [
        ("a" * 48, f'The slug "{"a" * 48}" is longer than the 47 characters of a queue name.'),
        ("a__b", 'The slug "a__b" contains "__", which belongs to generated queue names.'),
    ],
)
def test_what_cannot_be_a_queue_name_is_refused(slug: str, message: str) -> None:
    with pytest.raises(ValueError, match="The slug") as caught:
        slugs.canonical_queue_name(slug)
    assert str(caught.value) == message
