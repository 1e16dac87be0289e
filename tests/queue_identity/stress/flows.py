"""The flows under stress, and what their handlers do."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

DOOMED = "doomed"
CURSED = "cursed"
"""An input with this key is never handled: its tasks stall until recovery gives them up."""

NO_PATTERN = {"defined": False}


def pattern(value: Any) -> dict[str, Any]:
    return {"defined": True, "value": value}


def step(slug: str, *parents: str, kind: str = "single", attempts: int = 3, **more: Any) -> dict[str, Any]:
    return {
        "slug": slug,
        "stepType": kind,
        "dependencies": list(parents),
        "whenUnmet": "skip",
        "whenExhausted": "fail",
        "requiredInputPattern": NO_PATTERN,
        "forbiddenInputPattern": NO_PATTERN,
        "options": {"maxAttempts": attempts},
    } | more


@dataclass(frozen=True)
class Flow:
    """A flow, how many of its runs there are, and how often the handlers of its steps fail."""

    slug: str
    runs: int
    steps: list[dict[str, Any]]
    failing: dict[str, float]

    @property
    def shape(self) -> Jsonb:
        """What its workers compile."""
        return Jsonb({"steps": self.steps, "options": {"timeout": 1, "baseDelay": 0}})

    def run_input(self, rng: random.Random) -> Any:
        """The input of a run."""
        if self.slug == "Mapped":
            return [rng.random() for _ in range(rng.randint(0, 4))]
        return {CURSED: True} if rng.random() < 0.01 else {"number": rng.random()}

    def fails(self, step_slug: str, rng: random.Random) -> bool:
        """Whether a handler fails this time."""
        return rng.random() < self.failing.get(step_slug, 0.03)


FLOWS = [
    Flow("single", 500, [step("do")], {"do": 0.1}),
    Flow("Mapped", 400, [step("each", kind="map")], {"each": 0.1}),
    Flow("chain", 300, [step("begin"), step("items", "begin", kind="map"), step("total", "items")], {}),
    Flow(
        "skipping",
        300,
        [
            step("fragile", attempts=1, whenExhausted="skip"),
            step("after", "fragile"),
            step("brittle", attempts=1, whenExhausted="skip-cascade"),
            step("gone", "brittle"),
        ],
        {"fragile": 0.3, "brittle": 0.3},
    ),
    Flow(
        "strict",
        250,
        [
            step("base", attempts=1),
            step("beside"),
            step("other"),
            step("end", "base", "beside"),
        ],
        {"base": 0.3},
    ),
    Flow(
        "choosy",
        250,
        [
            step("look"),
            step("yes", "look", requiredInputPattern=pattern({"look": {"ok": True}})),
            step(
                "no",
                "look",
                whenUnmet="skip-cascade",
                forbiddenInputPattern=pattern({"look": {"ok": True}}),
            ),
            step("tail", "no"),
            step(
                "must",
                "look",
                whenUnmet="fail",
                forbiddenInputPattern=pattern({"look": {"bad": True}}),
            ),
        ],
        {},
    ),
]

SIDE = Flow(DOOMED, 0, [step("first"), step("second", "first", kind="map")], {})

BY_SLUG = {flow.slug: flow for flow in [*FLOWS, SIDE]}


def output(step_slug: str, rng: random.Random) -> Any:
    """What a handler returns: no two times the same."""
    token = str(uuid.UUID(int=rng.getrandbits(128)))
    if step_slug in ("begin", "first"):
        return [token] * rng.randint(0, 3)
    if step_slug == "look":
        return {"ok": rng.random() < 0.5, "bad": rng.random() < 0.2, "by": token}
    return {"by": token}
