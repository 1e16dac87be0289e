"""The contract for people (docs/dirty-runs.md) and for programs (JSON), from the same data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pgflow_migrate.dirty_runs import contract
from pgflow_migrate.dirty_runs.acceptance import PROMISES
from pgflow_migrate.dirty_runs.contract import Transition
from pgflow_migrate.dirty_runs.inventory import INVENTORY
from pgflow_migrate.dirty_runs.limits import retained_bytes

_TESTS = "dirty_runs/"

_HEAD = Path(__file__).with_name("introduction.md").read_text(encoding="utf-8")


def document() -> dict[str, Any]:
    """The contract in JSON's own types."""
    return {
        "version": contract.CONTRACT_VERSION,
        "protocol": contract.PROTOCOL_VERSION,
        "limits": [dataclasses.asdict(limit) for limit in contract.LIMITS],
        "retained_bytes": retained_bytes(),
        "transitions": [dataclasses.asdict(transition) for transition in contract.TRANSITIONS],
        "situations": dict(contract.SITUATIONS),
        "contentions": [dataclasses.asdict(contention) for contention in contract.CONTENTIONS],
        "decisions": [{"on": on, "decision": decision} for on, decision in contract.DECISIONS],
        "inventory": [dataclasses.asdict(entry) for entry in INVENTORY],
        "promises": [dataclasses.asdict(promise) for promise in PROMISES],
        "deferred": list(contract.DEFERRED),
        "no_go": list(contract.NO_GO),
    }


def markdown() -> str:
    """The text of docs/dirty-runs.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD.replace("VERSION", str(contract.CONTRACT_VERSION))
    yield "## Limits\n"
    yield (
        "Bounds of an internal proof, not defaults for production. Bytes are those of canonical JSON, or of "
        "UTF-8 text."
    )
    yield (
        f"A run keeps at most {retained_bytes():,} bytes of inputs, results, errors and settlements by them, "
        "queues not counted.\n"
    )
    yield from _table(
        ("limit", "value", "unit", "why"),
        ((f"`{limit.name}`", f"{limit.value:,}", limit.unit, limit.why) for limit in contract.LIMITS),
    )
    yield "\n## Transitions\n"
    yield "Locks are taken in the order given, and by every path in the same order: the run first.\n"
    for transition in contract.TRANSITIONS:
        yield from _transition(transition)
    yield "## Calls that meet\n"
    yield (
        "Two calls on one run: the first has its locks, the second comes meanwhile and waits "
        "(`reconcile_one_run` never waits). Each row is driven on separate connections, once with the first "
        f"committing and once with it rolling back; `{_TESTS}races/test_contention.py`.\n"
    )
    yield from _table(("before", "is"), ((f"`{name}`", text) for name, text in contract.SITUATIONS.items()))
    yield ""
    yield from _table(
        ("before", "first", "gets", "second", "gets", "afterwards"),
        (
            (f"`{row.situation}`", row.first, row.first_outcome, row.second, row.second_outcome, row.end)
            for row in contract.CONTENTIONS
        ),
    )
    yield "\n## Decisions\n"
    for on, decision in contract.DECISIONS:
        yield f"- **{on}.** {decision}"
    yield "\n## Who could write\n"
    yield (
        "Everything in schema pgflow, and what ships beside it, that can change tasks, steps, runs, work, "
        "claims or queues; how it is kept off runs of protocol 2, or protocol 2 off others; the test that "
        f"shows it. `{_TESTS}isolation/` also finds writers in the catalogue by itself, and fails on one "
        "that is not here.\n"
    )
    yield from _table(
        ("what", "kind", "writes", "guard", "test"),
        (
            (f"`{entry.name}`", entry.kind, entry.writes, entry.guard, _test(entry.test))
            for entry in INVENTORY
        ),
    )
    yield "\n## What is promised"
    topic = ""
    for promise in PROMISES:
        if promise.topic != topic:
            topic = promise.topic
            yield f"\n**{topic.capitalize()}**\n"
        yield f"- {promise.text} {', '.join(_test(test) for test in promise.tests)}"
    yield "\n## Deferred\n"
    yield from (f"- {text}" for text in contract.DEFERRED)
    yield "\n## No go\n"
    yield from (f"- {text}" for text in contract.NO_GO)
    yield ""


def _transition(transition: Transition) -> Iterator[str]:
    yield f"### {transition.name[0].upper()}{transition.name[1:]}\n"
    yield f"`{transition.call}`\n"
    yield from _table(
        ("", ""),
        (
            ("preconditions", "<br>".join(transition.preconditions)),
            ("locks", ", ".join(transition.locks)),
            ("changes", "<br>".join(transition.changes)),
            ("outcomes", ", ".join(transition.response)),
            ("replay", transition.replay),
            ("test", _test(transition.test)),
        ),
    )
    yield ""


def _test(name: str) -> str:
    return f"`{_TESTS}{name}`"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(head)
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
