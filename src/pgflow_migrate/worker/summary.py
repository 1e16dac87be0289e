"""What a worker did, and why it left."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pgflow_migrate.worker.claims import Fatal


class Ending(enum.Enum):
    """Why a worker left."""

    STOPPED = "stopped"
    IDLE = "idle"
    DISMISSED = "dismissed"
    FATAL = "fatal"


@dataclass(frozen=True)
class Summary:
    """What a worker did.

    Attributes:
        worker_id: its id in ``pgflow.workers``.
        function_name: its name in ``pgflow.worker_functions``.
        queue_name: the queue that it read.
        ending: why it left.
        completed: tasks that it completed.
        failed: attempts that failed.
        late: outputs without effect, because step or run had ended meanwhile.
        unreported: tasks whose result the database could not be told; its recovery gives them out again.
        fatal: the batch that it could not work on, when that is why it left.
    """

    worker_id: str
    function_name: str
    queue_name: str
    ending: Ending
    completed: int
    failed: int
    late: int
    unreported: int
    fatal: Fatal | None
