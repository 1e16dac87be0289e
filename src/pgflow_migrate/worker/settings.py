"""Times and limits of a worker."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    """Times and limits of a worker; the defaults are those of pgflow's own worker.

    Attributes:
        visibility_timeout: seconds for which a message that was read is hidden from others; the claim then
            makes it the step's timeout plus 2 seconds.
        batch_size: messages read at most at a time, and never more than there are free threads, because the
            time of a claimed task runs while it waits.
        max_poll: seconds for which a read waits in the database for messages.
        poll_interval: milliseconds between its looks.
        concurrency: handlers that run at a time.
        heartbeat_interval: seconds between heartbeats, which go on while handlers run.
        first_retry: seconds before the first repetition after a database error; each further one waits twice
            as long, less a random part of up to a half.
        longest_retry: seconds to which that grows.
        last_reports: seconds for which results are still offered to a failing database once the worker has
            been told to stop.
        until_idle: seconds without message and running handler after which the worker ends; None: never.
    """

    visibility_timeout: int = 5
    batch_size: int = 10
    max_poll: int = 2
    poll_interval: int = 100
    concurrency: int = 10
    heartbeat_interval: float = 5.0
    first_retry: float = 0.1
    longest_retry: float = 30.0
    last_reports: float = 10.0
    until_idle: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: a value is not positive, or a read would wait for no time at all, which PGMQ takes for
                "do not look".
        """
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value <= 0:
                raise ValueError(f"{each.name} is {value}, which is not positive.")
        for name in ("visibility_timeout", "batch_size", "max_poll", "poll_interval", "concurrency"):
            if not isinstance(getattr(self, name), int):
                raise ValueError(f"{name} is {getattr(self, name)}, which is not a whole number.")
