"""What differs between two catalogues, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pgflow_migrate.releases.catalogue import USUAL, Attributes, Catalogue, kind_of

_PARTS_OF_TABLE = ("column", "constraint", "index", "trigger", "policy")


@dataclass(frozen=True)
class Difference:
    """One thing that is not as expected; ``str()`` of it is a sentence.

    Attributes:
        kind: ``missing`` and ``extra`` objects or grants; ``different`` attributes.
        subject: the object, such as ``column runs.input``.
        attribute: what of it, such as ``type``; empty when it is the object as a whole.
        expected: the value expected, or None.
        actual: the value found, or None.
        matters: False for what an operator changes without making another release of it: objects of
            their own, grants, row security, cron jobs.
    """

    kind: Literal["missing", "different", "extra"]
    subject: str
    attribute: str = ""
    expected: Any = None
    actual: Any = None
    matters: bool = True

    def __str__(self) -> str:
        if self.kind == "different":
            return f"{self.subject}: {self.attribute} is {_show(self.actual)}, not {_show(self.expected)}"
        if self.attribute:
            done = "was granted" if self.kind == "extra" else "is not granted"
            return f"{self.subject}: {self.actual or self.expected} {done}"
        return f"{self.subject} is {'missing' if self.kind == 'missing' else 'not part of the release'}"


def compare(expected: Catalogue, actual: Catalogue) -> tuple[Difference, ...]:
    """Every difference of ``actual`` from ``expected``, those that matter first, else by name.

    A table that is missing or extra is told once, without its columns, constraints and indexes.
    """
    found = [*_missing(expected, actual), *_extra(expected, actual)]
    for subject in expected.objects.keys() & actual.objects.keys():
        found.extend(_attributes(subject, expected.objects[subject], actual.objects[subject]))
    return tuple(sorted(found, key=lambda d: (not d.matters, d.subject, d.attribute, str(d))))


def _missing(expected: Catalogue, actual: Catalogue) -> Iterator[Difference]:
    for subject in _tops(expected, actual):
        if kind_of(subject) != "cron job":
            yield Difference("missing", subject)
        elif actual.sees_cron:
            yield Difference("missing", subject, matters=False)


def _extra(expected: Catalogue, actual: Catalogue) -> Iterator[Difference]:
    functions = {_bare(subject) for subject in expected.objects if kind_of(subject) == "function"}
    for subject in _tops(actual, expected):
        kind = kind_of(subject)
        # Functions return whole rows, so a further column shows; an overload makes calls ambiguous.
        matters = kind == "column" or (kind == "function" and _bare(subject) in functions)
        yield Difference("extra", subject, matters=matters)


def _tops(present: Catalogue, absent: Catalogue) -> Iterator[str]:
    """What only ``present`` has, without the parts of something that only it has."""
    only = [subject for subject in present.objects if subject not in absent.objects]
    schema = [subject for subject in only if kind_of(subject) == "schema"]
    if schema:
        yield from schema
        return
    tables = tuple(f"{subject.removeprefix('table ')}." for subject in only if kind_of(subject) == "table")
    for subject in only:
        kind = kind_of(subject)
        if not (kind in _PARTS_OF_TABLE and subject.removeprefix(f"{kind} ").startswith(tables)):
            yield subject


def _bare(function: str) -> str:
    """The name of a function without its arguments."""
    return function.partition("(")[0]


def _attributes(subject: str, expected: Attributes, actual: Attributes) -> Iterator[Difference]:
    kind = kind_of(subject)
    usual = USUAL[kind]
    for attribute in sorted(expected.keys() | actual.keys()):
        want = expected.get(attribute, usual.get(attribute))
        have = actual.get(attribute, usual.get(attribute))
        if attribute in ("granted", "revoked"):
            yield from _grants(subject, attribute, want, have)
        elif attribute == "columns":
            yield from _order(subject, want, have)
        elif want != have:
            own_affair = kind == "cron job" or (attribute == "row security" and have != "forced")
            yield Difference("different", subject, attribute, want, have, matters=not own_affair)


def _order(subject: str, expected: list[str], actual: list[str]) -> Iterator[Difference]:
    """The order of the columns that both have; the others are told as missing and extra."""
    want = [column for column in expected if column in actual]
    have = [column for column in actual if column in expected]
    if want != have:
        yield Difference("different", subject, "order of columns", ", ".join(want), ", ".join(have))


def _grants(subject: str, attribute: str, expected: list[str], actual: list[str]) -> Iterator[Difference]:
    """Grants more or less than expected; only the owner's own rights matter to an upgrade."""
    more, fewer = (actual, expected) if attribute == "granted" else (expected, actual)
    for privilege in more:
        if privilege not in fewer:
            yield Difference("extra", subject, "grants", actual=privilege, matters=False)
    for privilege in fewer:
        if privilege not in more:
            owners = privilege.endswith(" to owner")
            yield Difference("missing", subject, "grants", expected=privilege, matters=owners)


def _show(value: Any) -> str:
    """A value as a person would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return str(value)
