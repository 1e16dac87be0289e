"""The geometry of the bars that show what waits in each queue; the template draws them as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgflow_migrate.audit.outlook import QueueHealth
from pgflow_migrate.audit.render.words import printable

SHOWN = 20
"""The most bars that a chart has; the table below it has every queue."""

ROW = 24
LEFT = 210
WIDTH = 420
_LABEL = 26


@dataclass(frozen=True)
class Bar:
    """A queue's bar: lengths and places in the units of the drawing.

    Attributes:
        label: the flow's slug, cut where it is too long.
        y: the top of its row.
        ready, hidden: how long the two parts are.
        text: the numbers, or why there are none.
    """

    label: str
    y: int
    ready: float
    hidden: float
    text: str


@dataclass(frozen=True)
class Bars:
    """A chart.

    Attributes:
        bars: the fullest queues, at most :data:`SHOWN`, those that could not be counted first.
        left_out: how many queues have no bar.
        height: of the drawing.
        text: what the chart says, for people who do not see it.
    """

    bars: tuple[Bar, ...]
    left_out: int
    height: int
    text: str


def bars(queues: Sequence[QueueHealth]) -> Bars:
    """The chart of ``queues``."""
    ordered = sorted(queues, key=lambda queue: (queue.unread is None, -_total(queue), queue.flow_slug))[
        :SHOWN
    ]
    most = max(map(_total, ordered), default=0) or 1
    drawn = []
    for number, queue in enumerate(ordered):
        ready, hidden = queue.ready or 0, queue.hidden or 0
        text = queue.unread or f"{ready:,} ready, {hidden:,} hidden"
        drawn.append(
            Bar(
                _cut(printable(queue.flow_slug)),
                number * ROW,
                round(WIDTH * ready / most, 1),
                round(WIDTH * hidden / most, 1),
                text,
            )
        )
    return Bars(
        tuple(drawn),
        len(queues) - len(drawn),
        len(drawn) * ROW,
        "; ".join(f"{bar.label}: {bar.text}" for bar in drawn),
    )


def _total(queue: QueueHealth) -> int:
    return (queue.ready or 0) + (queue.hidden or 0)


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
