"""What may come of a claim, in types: a handler's outcome, the database's answer, and no answer."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from uuid import UUID

from pgflow_migrate import canonical_json
from pgflow_migrate.canonical_json import Canonical


class Kind(enum.Enum):
    """What a handler did."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """What a handler came to. It is made once, so every report of it is the same report.

    Attributes:
        kind: whether it returned or failed.
        canonical: the output, or the error text as a JSON string.
        error: the error text, of a failure.
    """

    kind: Kind
    canonical: Canonical
    error: str | None = None

    @classmethod
    def succeeded(cls, output: object) -> Outcome:
        """A result.

        Raises:
            TypeError, ValueError: it is no JSON that PostgreSQL can hold.
        """
        return cls(Kind.SUCCEEDED, canonical_json.of_value(output))

    @classmethod
    def failed(cls, error: str) -> Outcome:
        """A failure; characters that PostgreSQL cannot hold are replaced."""
        text = error.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
        return cls(Kind.FAILED, canonical_json.of_value(text), text)


@dataclass(frozen=True)
class Accepted:
    """The outcome is in the database.

    Attributes:
        disposition: completed, failed or oversized.
        replayed: whether it was there before.
    """

    disposition: str
    replayed: bool


@dataclass(frozen=True)
class Conflict:
    """Another outcome of the same claim is in the database, and stays.

    Attributes:
        settled_kind: what was reported first.
        disposition: what came of that.
    """

    settled_kind: str
    disposition: str


@dataclass(frozen=True)
class Refused:
    """The claim holds nothing any more, or never did.

    Attributes:
        outcome: stale, terminal or rejected.
        reason: why.
    """

    outcome: str
    reason: str


@dataclass(frozen=True)
class Unconfirmed:
    """No answer came in time: neither accepted nor refused.

    A wait that was given up, or a connection that was lost, does not prove that the database rolled back. The
    same outcome may be reported again; another one must not be.

    Attributes:
        why: deadline, attempts (every one failed) or shutdown.
        attempts: how many were begun.
        in_flight: whether the last one had not ended.
        last_error: what the last failed attempt said.
    """

    why: str
    attempts: int
    in_flight: bool
    last_error: str | None


Answer = Accepted | Conflict | Refused
"""What the database said. Definite: it is not asked again."""


@dataclass(frozen=True)
class Claimed:
    """A task that is ours until its claim is settled or revoked.

    Attributes:
        token: the claim's id; ownership is this, never the worker's id.
        run_id, step_slug, task_index: the task's address.
        queue_name, msg_id: its message; the id as a decimal string.
        input: the outputs of its dependencies, by step.
        flow_input: the run's input, for a step without dependencies.
        replayed: whether this claim was made before, by a call whose answer was lost.
    """

    token: UUID
    run_id: UUID
    step_slug: str
    task_index: int
    queue_name: str
    msg_id: str
    input: object
    flow_input: object
    replayed: bool


@dataclass(frozen=True)
class NotClaimed:
    """A task that is not ours.

    Attributes:
        outcome: held, blocked, stale, terminal, conflict, unknown, wrong_protocol or rejected; busy when the
            run was locked, and nothing was asked.
        reason: why, where there is a reason.
    """

    outcome: str
    reason: str | None
