"""What the contention table leaves out, and why: pairs that do not meet, or do as in another situation."""

from __future__ import annotations

from dataclasses import dataclass

SETTLEMENTS = ("succeed", "fail", "oversize")
ON_THE_RUN = ("claim", "reconcile", "request", "recover", *SETTLEMENTS)
DEFINE = ("add_step", "reroute", "delete")


@dataclass(frozen=True)
class Omission:
    """Pairs of calls, one of each group in either order, that the table does not have in some situations.

    Attributes:
        situations: where.
        ones: calls.
        others: calls that they would meet.
        reason: why there is no row.
        alike: the situation whose rows say what comes of them, if one does: with the same outcomes.
    """

    situations: tuple[str, ...]
    ones: tuple[str, ...]
    others: tuple[str, ...]
    reason: str
    alike: str | None = None

    def covers(self, situation: str, pair: frozenset[str]) -> bool:
        """Whether a pair (of one call, when it meets itself) is left out in a situation."""
        return situation in self.situations and any(
            pair == {one, other} for one in self.ones for other in self.others
        )


OMISSIONS: tuple[Omission, ...] = (
    Omission(
        ("defined",),
        ("start",),
        ON_THE_RUN,
        "a run that is not committed is unknown to everybody else: nobody waits for it",
    ),
    Omission(
        ("defined", "released"),
        DEFINE,
        DEFINE,
        "definitions without a run that holds them: protocol 2 has no part in it",
    ),
    Omission(
        ("held", "expired", "last"),
        ("request",),
        ("reconcile",),
        "to both the task is one that goes on",
        alike="queued",
    ),
    Omission(
        ("queued", "expired", "last", "settled", "dispatched", "redirtied", "broken", "done"),
        ("request",),
        ("request",),
        "a request counts one, whatever the work is like",
        alike="held",
    ),
    Omission(
        ("expired", "last", "redirtied", "broken"),
        SETTLEMENTS,
        SETTLEMENTS,
        "a settlement looks neither at the lease nor at the work",
        alike="held",
    ),
    Omission(
        ("expired", "last", "redirtied", "broken"),
        SETTLEMENTS,
        ("request",),
        "a settlement looks neither at the lease nor at the work",
        alike="held",
    ),
    Omission(
        ("redirtied", "broken"),
        SETTLEMENTS,
        ("recover",),
        "the lease goes on",
        alike="held",
    ),
    Omission(
        ("expired", "last"),
        SETTLEMENTS,
        ("claim",),
        "a claim does not look at the lease",
        alike="held",
    ),
    Omission(
        ("expired", "last"),
        SETTLEMENTS,
        ("reconcile",),
        "reconciliation does not look at the lease",
        alike="held",
    ),
    Omission(
        ("expired", "last"),
        ("claim",),
        ("request",),
        "a claim does not look at the lease",
        alike="held",
    ),
    Omission(
        ("redirtied", "broken"),
        ("claim",),
        SETTLEMENTS,
        "the claim gets nothing: it is blocked before the settlement, and the step is over after it",
    ),
    Omission(
        ("redirtied",),
        ("reconcile",),
        ("reconcile", "request"),
        "to both the task is one that goes on",
        alike="dispatched",
    ),
    Omission(
        ("released",),
        ("delete",),
        ("oversize",),
        "a conflict as with any other settlement of a claim that is settled",
    ),
    Omission(
        ("held", "expired", "last", "redirtied", "broken", "released"),
        ("succeed otherwise",),
        (*DEFINE, *ON_THE_RUN, "succeed otherwise"),
        "a success as any other; what is its own, to come after another one, has its row",
    ),
)
