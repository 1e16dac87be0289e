"""Placeholders: nothing of the value, all of its shape."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgflow_migrate.export import redact
from pgflow_migrate.releases import catalogue

RUN = "6f3e1f5e-3d4f-4f0e-8d66-7f1b7c9a0001"


@pytest.mark.parametrize(
    ("value", "placeholder"),
    [
        (None, None),
        ("null", "null"),
        ("true", "true"),
        ("false", "true"),
        ("-12.50", "-11.11"),
        ('""', '""'),
        ('"a"', '"x"'),
        ('"abcdefghijk"', '"xxxxxxxx"'),
        (r'"a\"b\\"', '"xxxx"'),
        ('[1, "b", [], {}]', '[1, "x", [], {}]'),
        ('{"b": true, "mail@example.org": {"b": 12}}', '{"a": true, "b---------------": {"a": 11}}'),
        ('{"flow_slug": "orders"}', '{"a-------": "xxxx"}'),
        ('{"": 1, "name": 2}', '{"": 1, "b---": 1}'),
    ],
)
def test_json(value: str | None, placeholder: str | None) -> None:
    assert redact.json(value) == placeholder


@pytest.mark.parametrize(
    ("body", "placeholder"),
    [
        (
            f'{{"run_id": "{RUN}", "flow_slug": "orders", "step_slug": "load", "task_index": 7}}',
            f'{{"run_id": "{RUN}", "flow_slug": "orders", "step_slug": "load", "task_index": 7}}',
        ),
        # Only where it can say which task is meant.
        ('{"task_index": "7", "flow_slug": ["orders"]}', '{"task_index": "x", "flow_slug": ["xxxx"]}'),
        ('{"run_id": "my secret"}', '{"run_id": "xxxxxxxx"}'),
        ('{"task_index": 1234567890123}', '{"task_index": 1111111111111}'),
        ('{"input": {"flow_slug": "orders"}}', '{"a---": {"a-------": "xxxx"}}'),
        ('[{"flow_slug": "orders"}]', '[{"a-------": "xxxx"}]'),
        ('{"flow_slug": "two words"}', '{"flow_slug": "xxxxxxxx"}'),
    ],
)
def test_message_bodies_keep_what_says_which_task_they_belong_to(body: str, placeholder: str) -> None:
    assert redact.message(body) == placeholder


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [shape(item) for item in value.values()]
    if isinstance(value, list):
        return ("list", [shape(item) for item in value])
    return type(value)


@settings(max_examples=60, deadline=None)
@given(_JSON)
def test_the_shape_stays_and_no_text_does(value: Any) -> None:
    document = json.dumps(value, ensure_ascii=False)
    redacted = redact.json(document)
    assert redacted is not None
    assert shape(json.loads(redacted)) == shape(value)
    assert not set(redacted) - set('abcdefghijklmnopqrstuvwxyz-1."[]{}:, ')
    assert redact.json(redacted.replace("x", "y")) is not None
    assert len(redacted.encode()) <= len(document.encode())


def test_no_document_gets_longer_and_so_exceeds_a_limit_that_it_kept() -> None:
    documents = (
        [True] * 9,
        {"": True},
        {chr(number): None for number in (*range(ord("0"), ord("9") + 1), *range(ord("A"), ord("Z") + 1))},
        {f"{number:02}": 0 for number in range(100)},
    )
    for document in map(json.dumps, documents):
        redacted = redact.json(document)
        assert redacted is not None
        assert len(redacted) <= len(document)
        assert len(json.loads(redacted)) == len(json.loads(document))


def test_a_document_may_be_nested_deeper_than_pythons_stack() -> None:
    deep = "[" * 50_000 + '"secret"' + "]" * 50_000
    assert redact.json(deep) == deep.replace("secret", "xxxx")


@pytest.mark.parametrize(
    ("reason", "placeholder"),
    [
        (None, None),
        ("condition_unmet", "condition_unmet"),
        ("dependency_skipped", "dependency_skipped"),
        ("handler_failed", "handler_failed"),
        ("Jane Doe asked to cancel", "x" * 16),
        ("condition_unmet by Jane", "x" * 16),
    ],
)
def test_only_the_reasons_of_the_runtime_say_why_a_step_was_skipped(
    reason: str | None, placeholder: str | None
) -> None:
    assert redact.skip_reason(reason) == placeholder


def test_the_runtime_has_no_other_reasons() -> None:
    sql = Path(__file__).resolve().parents[2] / "alembic" / "sql"
    texts = [path.read_text(encoding="utf-8") for path in sql.rglob("*.sql")]
    given = {
        reason
        for text in texts
        if "skip_reason" in text
        for reason in re.findall(r"skip_reason = '(\w+)'|else '(\w+)'\s+end\s+from", text)
    }
    assert {one or other for one, other in given} == {
        "condition_unmet",
        "dependency_skipped",
        "handler_failed",
    }


# Names and states; everything else of these types must be redacted. A new column has to be put here or there.
KEPT_TEXT = {
    *(
        "flow_slug",
        "step_slug",
        "dep_slug",
        "queue_name",
        "function_name",
        "start_mode",
        "status",
        "step_type",
    ),
    *("when_unmet", "when_exhausted", "state", "attention_reason", "last_error_sqlstate"),
    *("disposition", "revoked_reason", "settlement_kind"),
}


def test_every_column_that_can_hold_a_payload_is_redacted_or_known_to_hold_none() -> None:
    columns = {
        name.removeprefix("column ")
        for release in catalogue.releases()
        for name, attributes in catalogue.snapshot(release).objects.items()
        if name.startswith("column ") and attributes["type"] in ("text", "jsonb", "json", "bytea")
    }
    kept = {name for name in columns if name.partition(".")[2] in KEPT_TEXT} | {"run_work.definition_sha256"}
    assert columns - kept == set(redact.PGFLOW)


def test_every_column_of_every_release_stays_or_is_replaced_and_no_other_one_stays() -> None:
    columns = {
        name.removeprefix("column ")
        for release in catalogue.releases()
        for name in catalogue.snapshot(release).objects
        if name.startswith("column ")
    }
    kept = {
        f"{table.removeprefix('pgflow.')}.{name}"
        for table, names in redact.KEPT.items()
        if table != "pgmq.meta"
        for name in names
    }
    assert kept | set(redact.PGFLOW) == columns
    assert kept & set(redact.PGFLOW) == set()
    assert redact.of_table("pgflow", "runs", "status") is None
    assert redact.of_table("pgflow", "runs", "input") is redact.json
    assert redact.of_table("pgmq", "meta", "queue_name") is None
    for stranger in (("pgflow", "runs", "note"), ("pgflow", "notes", "status"), ("pgmq", "meta", "note")):
        assert redact.of_table(*stranger) is redact.nothing
