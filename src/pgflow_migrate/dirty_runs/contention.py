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
    "last": "A held by the last claim that is allowed, whose lease is over",
    "settled": "A completed, work pending",
    "dispatched": "B queued, work pending",
    "redirtied": "B held, work pending by a request",
    "broken": "as redirtied, but the flow is no longer what the run began with: chunks fail",
    "done": "A and B completed, work pending",
    "released": "the run completed, work clean, its evidence older than the replay horizon",
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
    Contention("queued", "request", "reconcile", "requested", "busy", "work pending"),
    Contention("queued", "reconcile", "request", "idle", "requested", "work pending"),
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
    Contention("held", "oversize", "delete", "accepted", "55000", "the evidence stands"),
    Contention("held", "request", "delete", "requested", "55000", "the claim stands, work pending"),
    Contention("held", "reconcile", "succeed", "idle", "accepted", "A completed, work pending"),
    Contention("held", "reconcile", "fail", "idle", "accepted", "the run failed, work clean"),
    Contention("held", "reconcile", "oversize", "idle", "accepted", "the run failed, work clean"),
    Contention("held", "claim", "request", "held", "requested", "one claim, work pending"),
    Contention("held", "request", "claim", "requested", "blocked", "one claim, work pending"),
    Contention("held", "recover", "succeed", "not_expired", "accepted", "A completed"),
    Contention("held", "succeed", "recover", "accepted", "settled", "A completed"),
    Contention("held", "recover", "fail", "not_expired", "accepted", "the run failed"),
    Contention("held", "fail", "recover", "accepted", "settled", "the run failed"),
    Contention("held", "recover", "oversize", "not_expired", "accepted", "the run failed"),
    Contention("held", "oversize", "recover", "accepted", "settled", "the run failed"),
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
    Contention(
        "last",
        "recover",
        "succeed",
        "attention",
        "accepted",
        "A completed, attention: the result of the last claim counts",
    ),
    Contention("last", "succeed", "recover", "accepted", "settled", "A completed, work pending"),
    Contention("last", "recover", "fail", "attention", "accepted", "the run failed, attention: for a person"),
    Contention("last", "fail", "recover", "accepted", "settled", "the run failed, work clean"),
    Contention(
        "last", "recover", "oversize", "attention", "accepted", "the run failed, attention: for a person"
    ),
    Contention("last", "oversize", "recover", "accepted", "settled", "the run failed, work clean"),
    Contention("last", "recover", "recover", "attention", "attention", "the claim stands, attention"),
    Contention("last", "recover", "claim", "attention", "blocked", "the claim stands, attention"),
    Contention("last", "claim", "recover", "held", "attention", "the claim stands, attention"),
    Contention("last", "recover", "reconcile", "attention", "busy", "the claim stands, attention"),
    Contention("last", "reconcile", "recover", "idle", "attention", "the claim stands, attention"),
    Contention("last", "recover", "request", "attention", "requested", "the claim stands, attention"),
    Contention("last", "request", "recover", "requested", "attention", "the claim stands, attention"),
    Contention("last", "recover", "delete", "attention", "55000", "the claim stands, attention"),
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
    Contention("dispatched", "reconcile", "reconcile", "clean", "busy", "B queued, work clean"),
    Contention(
        "dispatched",
        "reconcile",
        "request",
        "clean",
        "requested",
        "B queued, work pending: the newer request",
    ),
    Contention("dispatched", "request", "reconcile", "requested", "busy", "B queued, work pending"),
    Contention("redirtied", "reconcile", "claim", "clean", "held", "B held, work clean"),
    Contention("redirtied", "claim", "reconcile", "blocked", "busy", "B held, work pending"),
    Contention("redirtied", "reconcile", "succeed", "clean", "accepted", "work pending: the newer request"),
    Contention("redirtied", "succeed", "reconcile", "accepted", "busy", "work pending"),
    Contention("redirtied", "reconcile", "fail", "clean", "accepted", "the run failed, work clean"),
    Contention("redirtied", "fail", "reconcile", "accepted", "busy", "the run failed, work clean"),
    Contention("redirtied", "reconcile", "oversize", "clean", "accepted", "the run failed, work clean"),
    Contention("redirtied", "oversize", "reconcile", "accepted", "busy", "the run failed, work clean"),
    Contention("broken", "reconcile", "reconcile", "failed", "busy", "B held, retry_wait, one failure"),
    Contention(
        "broken",
        "reconcile",
        "request",
        "failed",
        "requested",
        "B held, retry_wait, one failure: back-off stays",
    ),
    Contention("broken", "request", "reconcile", "requested", "busy", "B held, work pending, no failure"),
    Contention(
        "broken",
        "reconcile",
        "succeed",
        "failed",
        "accepted",
        "B completed, retry_wait, one failure: back-off stays",
    ),
    Contention("broken", "succeed", "reconcile", "accepted", "busy", "B completed, work pending, no failure"),
    Contention("broken", "reconcile", "fail", "failed", "accepted", "the run failed, work clean"),
    Contention("broken", "fail", "reconcile", "accepted", "busy", "the run failed, work clean"),
    Contention("broken", "reconcile", "oversize", "failed", "accepted", "the run failed, work clean"),
    Contention("broken", "oversize", "reconcile", "accepted", "busy", "the run failed, work clean"),
    Contention("done", "reconcile", "reconcile", "finalized", "busy", "the run completed, work pending"),
    Contention("done", "reconcile", "request", "finalized", "terminal", "the run completed, work pending"),
    Contention("done", "request", "reconcile", "requested", "busy", "the run lives, work pending"),
    Contention("done", "reconcile", "delete", "finalized", "55000", "the run completed, work pending"),
    Contention("released", "start", "delete", "started, replayed", "done", "no flow, no run"),
    Contention("released", "delete", "start", "done", "rejected", "no flow, no run"),
    Contention("released", "claim", "delete", "terminal", "done", "no flow, no run"),
    Contention("released", "delete", "claim", "done", "unknown", "no flow, no run"),
    Contention("released", "succeed", "delete", "accepted, replayed", "done", "no flow, no run"),
    Contention("released", "delete", "succeed", "done", "stale", "no flow, no run: the horizon is over"),
    Contention("released", "fail", "delete", "conflict", "done", "no flow, no run"),
    Contention("released", "delete", "fail", "done", "stale", "no flow, no run"),
    Contention("released", "recover", "delete", "settled", "done", "no flow, no run"),
    Contention("released", "delete", "recover", "done", "unknown", "no flow, no run"),
    Contention("released", "reconcile", "delete", "idle", "done", "no flow, no run"),
    Contention("released", "delete", "reconcile", "done", "busy", "no flow, no run"),
    Contention("released", "request", "delete", "terminal", "done", "no flow, no run"),
    Contention("released", "delete", "request", "done", "unknown", "no flow, no run"),
)
