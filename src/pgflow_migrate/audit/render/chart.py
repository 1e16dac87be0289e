"""The bars that show what waits in each queue; the template draws them, each as an SVG of its own.

Lengths are shares of the room that there is, so that letters keep their size on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgflow_migrate.audit.outlook import QueueHealth
from pgflow_migrate.layout import printable

SHOWN = 20
"""The most bars that a chart has; the table below it has every queue."""

_LABEL = 26


@dataclass(frozen=True)
class Bar:
    """A queue's bar.

    Attributes:
        label: the flow's slug, cut where it is too long.
        ready, hidden: how long the two parts are, in percent of the longest bar.
        text: the numbers, or why there are none.
    """

    label: str
    ready: float
    hidden: float
    text: str


@dataclass(frozen=True)
class Bars:
    """A chart.

    Attributes:
        bars: the fullest queues, at most :data:`SHOWN`, those that could not be counted first.
        left_out: how many queues have no bar.
        text: what the chart says, for people who do not see it.
    """

    bars: tuple[Bar, ...]
    left_out: int
    text: str


def ordered(queues: Sequence[QueueHealth]) -> list[QueueHealth]:
    """In the order of chart and table: those that could not be counted, then the fullest first."""
    return sorted(queues, key=lambda queue: (queue.unread is None, -_total(queue), queue.flow_slug))


def bars(queues: Sequence[QueueHealth]) -> Bars:
    """The chart of ``queues``."""
    shown = ordered(queues)[:SHOWN]
    most = max(map(_total, shown), default=0) or 1
    drawn = []
    for queue in shown:
        ready, hidden = queue.ready or 0, queue.hidden or 0
        text = queue.unread or f"{ready:,} ready, {hidden:,} hidden"
        drawn.append(
            Bar(
                _cut(printable(queue.flow_slug)),
                round(100 * ready / most, 1),
                round(100 * hidden / most, 1),
                text,
            )
        )
    return Bars(
        tuple(drawn), len(queues) - len(drawn), "; ".join(f"{bar.label}: {bar.text}" for bar in drawn)
    )


def _total(queue: QueueHealth) -> int:
    return (queue.ready or 0) + (queue.hidden or 0)


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
