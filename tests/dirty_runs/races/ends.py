"""What the contention table says is true afterwards, looked up in the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.dirty_runs.races.scenes import RESULT, Look
from tests.dirty_runs.state import State

OWN_ROUTES = {"a": "own", "b": "own"}


def _run(look: Look) -> State:
    assert look.run is not None, "there is no run"
    return look.run


def _claims(look: Look, **wanted: object) -> int:
    return sum(claim.items() >= wanted.items() for claim in _run(look)["claims"])


def _work(look: Look) -> Any:
    return _run(look)["work"]


def _generations(look: Look) -> tuple[int, int]:
    """What is processed, and what is requested."""
    return _work(look)["processed"], _work(look)["requested"]


def _step(look: Look, step: str) -> tuple[str, str | None, str]:
    """State, task and message of a step."""
    run = _run(look)
    task = run["tasks"].get(f"{step}/0")
    return (
        run["steps"][step]["status"],
        task and task["status"],
        (run["messages"] or {}).get(step, ""),
    )


def _failed(look: Look) -> bool:
    run = _run(look)
    tasks = {task["status"] for task in run["tasks"].values()}
    return (
        run["status"] == "failed"
        and tasks <= {"failed", "completed"}
        and _claims(look, state="active") == 0
        and set(run["messages"].values()) == {"archived"}
    )


def _evidence(look: Look) -> int:
    return _claims(look, state="settled")


ENDS: dict[str, Callable[[Look], bool]] = {
    "no run": lambda look: look.run is None,
    "no flow": lambda look: not look.flow and look.routes is None,
    "one run": lambda look: _run(look)["status"] == "started",
    "one message": lambda look: look.sent[0] == list(_run(look)["messages"].values()).count("visible") == 1,
    "the run lives": lambda look: look.flow and _run(look)["status"] == "started",
    "the run completed": lambda look: (
        (_run(look)["status"], _run(look)["output"]) == ("completed", {"b": RESULT})
    ),
    "the run failed": _failed,
    "the run failed once": lambda look: _failed(look) and _evidence(look) == 1,
    "the definition is that of the start": lambda look: look.routes == OWN_ROUTES,
    "the route is that of the start": lambda look: look.routes == OWN_ROUTES,
    "one claim": lambda look: _claims(look) == 1,
    "a claim": lambda look: _claims(look) == _claims(look, state="active") == 1,
    "the claim stands": lambda look: look.flow and _claims(look, state="active") == 1,
    "no claim while the work is pending": lambda look: (
        _claims(look) == 0 and _work(look)["state"] == "pending"
    ),
    "a second claim": lambda look: (
        _claims(look, number=1, state="revoked", reason="lease_lost") == 1
        and _claims(look, number=2, state="active") == 1
        and _claims(look) == 2
    ),
    "one revocation": lambda look: _claims(look) == _claims(look, state="revoked", reason="lease_lost") == 1,
    "one settlement": lambda look: _evidence(look) == 1 and _work(look)["requested"] == 1,
    "the settlement stands": lambda look: look.flow and _claims(look, disposition="completed") == 1,
    "the evidence stands": lambda look: look.flow and _failed(look) and _evidence(look) == 1,
    "the first result": lambda look: _run(look)["tasks"]["a/0"]["output"] == RESULT,
    "A queued": lambda look: (
        _step(look, "a") == ("started", "queued", "visible") and _claims(look, state="active") == 0
    ),
    "A completed": lambda look: _step(look, "a") == ("completed", "completed", "archived"),
    "B completed": lambda look: _step(look, "b") == ("completed", "completed", "archived"),
    "B not dispatched": lambda look: _step(look, "b") == ("created", None, ""),
    "one B task": lambda look: [key for key in _run(look)["tasks"] if key[0] == "b"] == ["b/0"],
    "B queued": lambda look: _step(look, "b") == ("started", "queued", "visible"),
    "not claimed": lambda look: _claims(look, step="b") == 0,
    "B held": lambda look: _step(look, "b") == ("started", "started", "hidden"),
    "two requests": lambda look: _work(look)["requested"] == 2,
    "processed is behind both requests": lambda look: _generations(look) == (0, 2),
    "work pending": lambda look: _work(look)["state"] == "pending" and len(set(_generations(look))) == 2,
    "and pending work": lambda look: _work(look)["state"] == "pending",
    "work clean": lambda look: _work(look)["state"] == "clean" and len(set(_generations(look))) == 1,
    "retry_wait": lambda look: _work(look)["state"] == "retry_wait" and _work(look)["retry"],
    "attention": lambda look: (
        (_work(look)["state"], _work(look)["attention"]) == ("attention", "claims_exhausted")
    ),
    "one failure": lambda look: (_work(look)["failures"], _work(look)["sqlstate"]) == (1, "PF007"),
    "no failure": lambda look: (_work(look)["failures"], _work(look)["sqlstate"]) == (0, None),
}
"""The phrases of ``Contention.end``."""


def phrases(end: str) -> list[str]:
    """The phrases of an end; what follows a colon is the reason."""
    return end.split(": ")[0].split(", ")
