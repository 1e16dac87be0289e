"""Flow definitions: which steps there are, what they wait for, and the Python functions that do the work.

A handler is a plain function of one :class:`Context`; what it returns is the task's output, an exception is a
failed attempt. Handlers are synchronous and run in a pool of threads: most of what workflows call (database
drivers, HTTP clients, file systems) is blocking, a blocking call in an event loop would stop every other task
and the heartbeat with it, and a thread that waits for the network costs next to nothing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pgflow_migrate import slugs

Json = Any
MODES = ("fail", "skip", "skip-cascade")
MAX_INTEGER = 2**31 - 1  # what SQL's integer holds


@dataclass(frozen=True)
class Context:
    """What a handler gets.

    Attributes:
        flow_slug: the flow.
        run_id: the run, a UUID in text form.
        step_slug: the step.
        task_index: position in a map step's array; 0 in a single step.
        queue_name: the queue that the task's message is in.
        msg_id: the message, in decimal digits: with the queue's name its identity.
        input: a map step's element; of a single step an object with the output of each completed dependency.
    """

    flow_slug: str
    run_id: str
    step_slug: str
    task_index: int
    queue_name: str
    msg_id: str
    input: Json
    read_flow_input: Callable[[], Json] = field(repr=False, compare=False)

    @property
    def flow_input(self) -> Json:
        """The input that the run was started with. Root single steps have it; others read it when asked."""
        return self.read_flow_input()


Handler = Callable[[Context], Any]
_H = TypeVar("_H", bound=Handler)


@dataclass(frozen=True)
class Step:
    """One step of a flow; the fields are the arguments of :meth:`Flow.step`."""

    slug: str
    step_type: str
    depends_on: tuple[str, ...]
    handler: Handler
    max_attempts: int | None = None
    base_delay: int | None = None
    timeout: int | None = None
    start_delay: int | None = None
    if_: Mapping[str, Json] | None = None
    if_not: Mapping[str, Json] | None = None
    when_unmet: str = "skip"
    when_exhausted: str = "fail"


class Flow:
    """A flow and its steps, added in an order in which each comes after what it depends on.

    ::

        orders = Flow("orders", max_attempts=3)

        @orders.step("load")
        def load(context: Context) -> list[int]:
            return context.flow_input["items"]

        @orders.map("charge", depends_on="load", timeout=30)
        def charge(context: Context) -> str:
            return f"charged {context.input}"
    """

    def __init__(
        self,
        slug: str,
        *,
        max_attempts: int | None = None,
        base_delay: int | None = None,
        timeout: int | None = None,
    ) -> None:
        """A flow without steps.

        Args:
            slug: its name; its queue is ``slug.lower()``.
            max_attempts: attempts at a task in all; None leaves the database's default (3).
            base_delay: seconds; the n-th retry waits ``base_delay * 2**n``. Default: 5.
            timeout: seconds after which a task counts as stalled (and 30 more). Default: 60.

        Raises:
            ValueError: the slug or an option is not allowed.
        """
        self.queue_name = slugs.canonical_queue_name(slug)
        self.slug = slug
        self.max_attempts = _option(f'Flow "{slug}"', "max_attempts", max_attempts)
        self.base_delay = _option(f'Flow "{slug}"', "base_delay", base_delay)
        self.timeout = _option(f'Flow "{slug}"', "timeout", timeout, least=1)
        self._steps: dict[str, Step] = {}

    def __repr__(self) -> str:
        return f"<Flow {self.slug}: {', '.join(self._steps) or 'no steps'}>"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in the order of their definition."""
        return tuple(self._steps.values())

    def step(
        self,
        slug: str,
        *,
        depends_on: str | Sequence[str] = (),
        max_attempts: int | None = None,
        base_delay: int | None = None,
        timeout: int | None = None,
        start_delay: int | None = None,
        if_: Mapping[str, Json] | None = None,
        if_not: Mapping[str, Json] | None = None,
        when_unmet: str = "skip",
        when_exhausted: str = "fail",
    ) -> Callable[[_H], _H]:
        """Decorate the handler of a single step: one task a run.

        Args:
            slug: the step's name, unique in the flow whatever the case of its letters.
            depends_on: steps whose outputs it gets, all of them defined before.
            max_attempts: as of the flow, whose value is the default.
            base_delay: as of the flow, whose value is the default.
            timeout: as of the flow, whose value is the default.
            start_delay: seconds before its messages become visible.
            if_: a JSON object that the input must contain.
            if_not: a JSON object that the input must not contain.
            when_unmet: ``fail``, ``skip`` or ``skip-cascade``: what becomes of it without its condition.
            when_exhausted: the same for when its attempts are used up.

        Raises:
            ValueError: something of it is not allowed; the message is a sentence.
        """
        return self._adding(
            "single",
            slug,
            depends_on,
            max_attempts=max_attempts,
            base_delay=base_delay,
            timeout=timeout,
            start_delay=start_delay,
            if_=if_,
            if_not=if_not,
            when_unmet=when_unmet,
            when_exhausted=when_exhausted,
        )

    def map(
        self,
        slug: str,
        *,
        depends_on: str | Sequence[str] = (),
        max_attempts: int | None = None,
        base_delay: int | None = None,
        timeout: int | None = None,
        start_delay: int | None = None,
        if_: Mapping[str, Json] | None = None,
        if_not: Mapping[str, Json] | None = None,
        when_unmet: str = "skip",
        when_exhausted: str = "fail",
    ) -> Callable[[_H], _H]:
        """Decorate the handler of a map step: one task for each element of an array.

        Args:
            slug: as of :meth:`step`.
            depends_on: the one step whose output is the array; without it the run's input is.
            max_attempts: as of :meth:`step`, and so are all the others.
            base_delay: see there.
            timeout: see there.
            start_delay: see there.
            if_: see there.
            if_not: see there.
            when_unmet: see there.
            when_exhausted: see there.

        Raises:
            ValueError: as :meth:`step`; or it depends on several steps.
        """
        return self._adding(
            "map",
            slug,
            depends_on,
            max_attempts=max_attempts,
            base_delay=base_delay,
            timeout=timeout,
            start_delay=start_delay,
            if_=if_,
            if_not=if_not,
            when_unmet=when_unmet,
            when_exhausted=when_exhausted,
        )

    def handler(self, step_slug: str) -> Handler:
        """The function that does the tasks of a step.

        Raises:
            KeyError: there is no such step.
        """
        return self._steps[step_slug].handler

    def shape(self) -> dict[str, Json]:
        """The definition as the database compiles it and compares it with what it has."""
        shape: dict[str, Json] = {"steps": [_step_shape(step) for step in self.steps]}
        return _with_options(
            shape, maxAttempts=self.max_attempts, baseDelay=self.base_delay, timeout=self.timeout
        )

    @classmethod
    def from_shape(
        cls, slug: str, shape: Mapping[str, Json], handlers: Handler | Mapping[str, Handler]
    ) -> Flow:
        """The flow that a shape describes; ``flow.shape()`` gives the shape again.

        Args:
            slug: the flow's name, which is no part of a shape.
            shape: as :meth:`shape` gives it, or the database's ``pgflow._get_flow_shape``.
            handlers: a handler for each step, or one for all.

        Raises:
            ValueError: the shape describes a flow that is not allowed.
            KeyError: a key of the shape, or a step's handler, is missing.
        """
        flow = cls(slug, **_options_of(shape, ("max_attempts", "base_delay", "timeout")))
        for step in shape["steps"]:
            options = _options_of(step, ("max_attempts", "base_delay", "timeout", "start_delay"))
            options |= {"when_unmet": step["whenUnmet"], "when_exhausted": step["whenExhausted"]}
            for option, key in (("if_", "requiredInputPattern"), ("if_not", "forbiddenInputPattern")):
                if step[key]["defined"]:
                    options[option] = step[key]["value"]
            handler = handlers if callable(handlers) else handlers[step["slug"]]
            flow._adding(step["stepType"], step["slug"], step["dependencies"], **options)(handler)
        return flow

    def _adding(
        self, step_type: str, slug: str, depends_on: str | Sequence[str], **options: Any
    ) -> Callable[[_H], _H]:
        where = f'Step "{slug}" of flow "{self.slug}"'
        self._check_slug(where, slug)
        parents = (depends_on,) if isinstance(depends_on, str) else tuple(depends_on)
        self._check_parents(where, step_type, parents)
        checked = _checked(where, options)

        def add(handler: _H) -> _H:
            self._check_slug(where, slug)  # once more: a decorator may be kept and used twice
            if inspect.iscoroutinefunction(handler) or not callable(handler):
                raise ValueError(f"{where} needs a plain function as its handler.")
            self._steps[slug] = Step(slug, step_type, parents, handler, **checked)
            return handler

        return add

    def _check_slug(self, where: str, slug: str) -> None:
        wrong = slugs.fault(slug)
        if wrong is not None:
            raise ValueError(f"{where}: the slug {wrong}.")
        for other in self._steps:
            if other.lower() == slug.lower():
                differs = f' as "{other}", which differs in case only' if other != slug else ""
                raise ValueError(f"{where} is there already{differs}.")

    def _check_parents(self, where: str, step_type: str, parents: tuple[str, ...]) -> None:
        if step_type not in ("single", "map"):
            raise ValueError(f"{where} is neither single nor map but {step_type!r}.")
        if step_type == "map" and len(parents) > 1:
            raise ValueError(f"{where} is a map and can depend on one step, not on {len(parents)}.")
        for parent in parents:
            if parent not in self._steps:
                raise ValueError(f'{where} depends on "{parent}", which is not defined before it.')
            if parents.count(parent) > 1:
                raise ValueError(f'{where} depends on "{parent}" twice.')


def _checked(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    checked = dict(options)
    for name, value in options.items():
        if name in ("when_unmet", "when_exhausted"):
            if value not in MODES:
                raise ValueError(f"{where}: {name} is {value!r}, not one of {', '.join(MODES)}.")
        elif name in ("if_", "if_not"):
            checked[name] = _pattern(where, name, value)
        else:
            _option(where, name, value, least=1 if name == "timeout" else 0)
    return checked


def _option(where: str, name: str, value: int | None, least: int = 0) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INTEGER:
        raise ValueError(f"{where}: {name} is {value!r}, not a whole number from {least} to {MAX_INTEGER}.")
    return value


def _pattern(where: str, name: str, value: Any) -> dict[str, Json] | None:
    """The pattern, copied by way of JSON, so that what is checked now is what is sent later."""
    if value is None:
        return None
    try:
        copied = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{where}: {name} is no JSON: {error}.") from error
    if not isinstance(copied, dict):
        raise ValueError(f"{where}: {name} is {value!r}, not a JSON object.")
    return copied


def _step_shape(step: Step) -> dict[str, Json]:
    shape = {
        "slug": step.slug,
        "stepType": step.step_type,
        "dependencies": sorted(step.depends_on),
        "whenUnmet": step.when_unmet,
        "whenExhausted": step.when_exhausted,
        "requiredInputPattern": _pattern_shape(step.if_),
        "forbiddenInputPattern": _pattern_shape(step.if_not),
    }
    return _with_options(
        shape,
        maxAttempts=step.max_attempts,
        baseDelay=step.base_delay,
        timeout=step.timeout,
        startDelay=step.start_delay,
    )


def _pattern_shape(pattern: Mapping[str, Json] | None) -> dict[str, Json]:
    return {"defined": False} if pattern is None else {"defined": True, "value": dict(pattern)}


def _with_options(shape: dict[str, Json], **options: int | None) -> dict[str, Json]:
    given = {name: value for name, value in options.items() if value is not None}
    return shape | {"options": given} if given else shape


_OPTION_KEYS = {
    "max_attempts": "maxAttempts",
    "base_delay": "baseDelay",
    "timeout": "timeout",
    "start_delay": "startDelay",
}


def _options_of(shape: Mapping[str, Json], names: Sequence[str]) -> dict[str, Any]:
    given = shape.get("options", {})
    return {name: given[_OPTION_KEYS[name]] for name in names if _OPTION_KEYS[name] in given}
