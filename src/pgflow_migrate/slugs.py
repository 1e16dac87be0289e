"""The slug rules of queue identity, the same as ``pgflow.is_valid_slug`` in SQL."""

from __future__ import annotations

import re

MAX_LENGTH = 128
MAX_QUEUE_NAME_LENGTH = 47  # what PGMQ's table names leave room for
RESERVED = frozenset({"run"})

_CHARACTERS = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*\Z")


def fault(slug: str) -> str | None:
    """What is wrong with the slug of a flow or step, as the end of a sentence; None when it is allowed."""
    if not slug:
        return "is empty"
    if len(slug) > MAX_LENGTH:
        return f"is longer than {MAX_LENGTH} characters"
    if slug.startswith("_"):
        return 'begins with "_"'
    if slug.endswith("_"):
        return 'ends with "_"'
    if "__" in slug:
        return 'contains "__", which belongs to generated queue names'
    if not _CHARACTERS.match(slug):
        return 'is not made of ASCII letters, digits and "_", with a letter first'
    if slug in RESERVED:
        return "is a reserved word"
    return None


def is_valid(slug: str) -> bool:
    """Whether a flow or step may be called ``slug``."""
    return fault(slug) is None


def canonical_queue_name(flow_slug: str) -> str:
    """The physical name of the default queue of a flow.

    Raises:
        ValueError: the slug is not allowed, or too long for a queue.
    """
    wrong = fault(flow_slug)
    if wrong is None and len(flow_slug) > MAX_QUEUE_NAME_LENGTH:
        wrong = f"is longer than the {MAX_QUEUE_NAME_LENGTH} characters of a queue name"
    if wrong is not None:
        raise ValueError(f'The slug "{flow_slug}" {wrong}.')
    return flow_slug.lower()
