"""Calls that meet on one run: what each gets, in either order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contention:
    """Two calls on one run that meet, and what each gets when the first has the run's lock.

    Attributes:
        situation: what the run is like before; a name that the test knows.
        first: the call that holds the lock.
        second: the call that comes meanwhile.
        first_outcome: what the first gets.
        second_outcome: what the second gets, after the first has committed.
        end: what is true afterwards.
    """

    situation: str
    first: str
    second: str
    first_outcome: str
    second_outcome: str
    end: str


SITUATIONS: dict[str, str] = {
    "defined": "the flow, without runs",
    "queued": "A queued, work clean",
    "held": "A held by a claim whose lease goes on",
    "expired": "A held by a claim whose lease is over",
    "settled": "A completed, work pending",
    "dispatched": "B queued, work pending",
    "redirtied": "B held, work pending by a request",
}
"""What a run is like before two calls meet."""

CONTENTIONS: tuple[Contention, ...] = (
    Contention("defined", "start", "start", "started", "started, replayed", "one run, one message"),
    Contention("defined", "start", "add_step", "started", "55000", "the definition is that of the start"),
    Contention("defined", "add_step", "start", "done", "rejected", "no run"),
    Contention("defined", "start", "delete", "started", "55000", "the run lives"),
    Contention("defined", "delete", "start", "done", "rejected", "no flow, no run"),
    Contention("defined", "start", "reroute", "started", "55000", "the route is that of the start"),
    Contention("defined", "reroute", "start", "done", "rejected", "no run: the other queue does not exist"),
    Contention("queued", "claim", "claim", "claimed", "held", "one claim"),
    Contention("queued", "claim", "delete", "claimed", "55000", "the claim stands"),
    Contention("queued", "claim", "reconcile", "claimed", "busy", "the claim stands"),
    Contention("queued", "reconcile", "claim", "idle", "claimed", "the claim stands"),
    Contention("queued", "request", "claim", "requested", "blocked", "no claim while the work is pending"),
    Contention("queued", "claim", "request", "claimed", "requested", "a claim, and pending work"),
    Contention("held", "succeed", "succeed", "accepted", "accepted, replayed", "one settlement"),
    Contention("held", "succeed", "succeed otherwise", "accepted", "conflict", "the first result"),
    Contention("held", "succeed", "fail", "accepted", "conflict", "A completed"),
    Contention("held", "fail", "succeed", "accepted", "conflict", "the run failed"),
    Contention("held", "fail", "fail", "accepted", "accepted, replayed", "the run failed once"),
    Contention("held", "succeed", "oversize", "accepted", "conflict", "A completed"),
    Contention("held", "oversize", "succeed", "accepted", "conflict", "the run failed"),
    Contention("held", "oversize", "oversize", "accepted", "accepted, replayed", "the run failed once"),
    Contention("held", "fail", "oversize", "accepted", "conflict", "the run failed"),
    Contention("held", "oversize", "fail", "accepted", "conflict", "the run failed"),
    Contention("held", "succeed", "claim", "accepted", "terminal", "A completed, one claim"),
    Contention("held", "claim", "succeed", "held", "accepted", "A completed, one claim"),
    Contention("held", "fail", "claim", "accepted", "terminal", "the run failed"),
    Contention("held", "claim", "fail", "held", "accepted", "the run failed"),
    Contention("held", "oversize", "claim", "accepted", "terminal", "the run failed"),
    Contention("held", "claim", "oversize", "held", "accepted", "the run failed"),
    Contention("held", "succeed", "reconcile", "accepted", "busy", "work pending"),
    Contention("held", "fail", "reconcile", "accepted", "busy", "the run failed, work clean"),
    Contention("held", "oversize", "reconcile", "accepted", "busy", "the run failed, work clean"),
    Contention("held", "request", "succeed", "requested", "accepted", "two requests, work pending"),
    Contention("held", "succeed", "request", "accepted", "requested", "two requests, work pending"),
    Contention("held", "request", "fail", "requested", "accepted", "the run failed, work clean"),
    Contention("held", "fail", "request", "accepted", "terminal", "the run failed, work clean"),
    Contention("held", "request", "oversize", "requested", "accepted", "the run failed, work clean"),
    Contention("held", "oversize", "request", "accepted", "terminal", "the run failed, work clean"),
    Contention("held", "request", "request", "requested", "requested", "two requests"),
    Contention("held", "succeed", "delete", "accepted", "55000", "the settlement stands"),
    Contention("held", "fail", "delete", "accepted", "55000", "the evidence stands"),
    Contention("expired", "recover", "succeed", "recovered", "stale", "A queued: revocation came first"),
    Contention("expired", "succeed", "recover", "accepted", "settled", "A completed: settlement came first"),
    Contention("expired", "recover", "fail", "recovered", "stale", "A queued"),
    Contention("expired", "fail", "recover", "accepted", "settled", "the run failed"),
    Contention("expired", "recover", "oversize", "recovered", "stale", "A queued"),
    Contention("expired", "oversize", "recover", "accepted", "settled", "the run failed"),
    Contention("expired", "recover", "recover", "recovered", "recovered, replayed", "one revocation"),
    Contention("expired", "recover", "claim", "recovered", "claimed", "a second claim: the takeover"),
    Contention("expired", "claim", "recover", "held", "recovered", "A queued"),
    Contention("expired", "recover", "reconcile", "recovered", "busy", "A queued"),
    Contention("expired", "reconcile", "recover", "idle", "recovered", "A queued"),
    Contention("expired", "recover", "request", "recovered", "requested", "A queued, work pending"),
    Contention("expired", "request", "recover", "requested", "recovered", "A queued, work pending"),
    Contention("expired", "recover", "delete", "recovered", "55000", "A queued"),
    Contention("settled", "reconcile", "reconcile", "dispatched", "busy", "one B task, one message"),
    Contention("settled", "reconcile", "claim", "dispatched", "blocked", "B queued, not claimed"),
    Contention("settled", "claim", "reconcile", "blocked", "busy", "B not dispatched"),
    Contention(
        "settled", "reconcile", "request", "dispatched", "requested", "processed is behind both requests"
    ),
    Contention("settled", "request", "reconcile", "requested", "busy", "work pending"),
    Contention("settled", "reconcile", "delete", "dispatched", "55000", "B queued"),
    Contention("dispatched", "reconcile", "claim", "clean", "claimed", "B held"),
    Contention("dispatched", "claim", "reconcile", "blocked", "busy", "B queued, work pending"),
    Contention("redirtied", "reconcile", "succeed", "clean", "accepted", "work pending: the newer request"),
    Contention("redirtied", "succeed", "reconcile", "accepted", "busy", "work pending"),
    Contention("redirtied", "reconcile", "fail", "clean", "accepted", "the run failed, work clean"),
    Contention("redirtied", "fail", "reconcile", "accepted", "busy", "the run failed, work clean"),
    Contention("redirtied", "reconcile", "oversize", "clean", "accepted", "the run failed, work clean"),
    Contention("redirtied", "oversize", "reconcile", "accepted", "busy", "the run failed, work clean"),
)
