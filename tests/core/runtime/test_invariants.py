"""What holds in any state: random flows, random schedules, every law checked after every call.

The laws are R (runs), S (step states), T (tasks), Q (queue messages), E (events). A law is a condition that
finds the rows that break it. Release 0.15.0 is excused from the laws that its task handling breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.core.runtime.conftest import Core, Sessions

FLOW = "sim"
DONE = "('completed', 'skipped')"

VIEWS = """
create temporary view state as
  select states.*, runs.status as run_status, steps.step_type, steps.deps_count,
    (select count(*) from pgflow.deps join pgflow.step_states as parents
       on parents.run_id = states.run_id and parents.step_slug = deps.dep_slug
     where deps.flow_slug = states.flow_slug and deps.step_slug = states.step_slug
       and parents.status not in ('completed', 'skipped')) as open_parents,
    (select count(*) from pgflow.step_tasks as tasks
     where tasks.run_id = states.run_id and tasks.step_slug = states.step_slug) as tasks,
    (select count(*) from pgflow.step_tasks as tasks
     where tasks.run_id = states.run_id and tasks.step_slug = states.step_slug
       and tasks.status = 'completed') as completed_tasks,
    (select max(task_index) from pgflow.step_tasks as tasks
     where tasks.run_id = states.run_id and tasks.step_slug = states.step_slug) as last_index
  from pgflow.step_states as states
  join pgflow.runs using (run_id)
  join pgflow.steps on steps.flow_slug = states.flow_slug and steps.step_slug = states.step_slug;

create temporary view task as
  select tasks.*, runs.status as run_status, states.status as step_status, steps.step_type,
    coalesce(steps.opt_max_attempts, flows.opt_max_attempts) as max_attempts,
    coalesce(steps.opt_base_delay, flows.opt_base_delay) as base_delay,
    coalesce(steps.opt_timeout, flows.opt_timeout) as timeout,
    coalesce(steps.opt_start_delay, 0) as start_delay,
    tasks.status in ('queued', 'started') and tasks.permanently_stalled_at is null as live
  from pgflow.step_tasks as tasks
  join pgflow.runs using (run_id)
  join pgflow.step_states as states on states.run_id = tasks.run_id and states.step_slug = tasks.step_slug
  join pgflow.steps on steps.flow_slug = tasks.flow_slug and steps.step_slug = tasks.step_slug
  join pgflow.flows on flows.flow_slug = tasks.flow_slug;
"""

RUN_LAWS = {
    "R1": "status = 'started' and (num_nonnulls(completed_at, failed_at, output) > 0 or remaining_steps < 1)",
    "R2": f"""status = 'completed' and (
                completed_at is null or failed_at is not null or remaining_steps <> 0 or exists (
                select from state where state.run_id = runs.run_id and state.status not in {DONE}))""",
    "R3": """status = 'failed' and (failed_at is null or num_nonnulls(completed_at, output) > 0
             or remaining_steps < 1)""",
    "R4": f"""remaining_steps <> (select count(*) from state
              where state.run_id = runs.run_id and state.status not in {DONE})""",
    "R5": """(select count(*) from state where state.run_id = runs.run_id)
             <> (select count(*) from pgflow.steps where steps.flow_slug = runs.flow_slug)""",
    "R6": """(select count(*) from state where state.run_id = runs.run_id and state.status = 'failed')
             <> (status = 'failed')::int""",
    "R7": """status = 'completed' and output is distinct from (
               select jsonb_object_agg(step_slug, state.output) from state
               where state.run_id = runs.run_id and state.status = 'completed' and not exists (
                 select from pgflow.deps
                 where deps.flow_slug = state.flow_slug and deps.dep_slug = state.step_slug))""",
}

STATE_LAWS = {
    "S1": "status <> 'skipped' and remaining_deps <> open_parents",
    "S2": """status = 'skipped' and skip_reason in ('condition_unmet', 'handler_failed')
             and remaining_deps <> 0""",
    "S3": "run_status = 'started' and status = 'created' and remaining_deps = 0",
    "S4": """status = 'started' and (
               run_status not in ('started', 'failed') or started_at is null or initial_tasks < 1
               or remaining_tasks not between 1 and initial_tasks
               or remaining_tasks <> initial_tasks - completed_tasks)""",
    "S5": """status = 'completed' and (
               remaining_tasks is distinct from 0 or completed_at is null
               or step_type = 'map' and jsonb_array_length(output) is distinct from initial_tasks
               or step_type = 'single' and output is distinct from (
                 select tasks.output from pgflow.step_tasks as tasks
                 where tasks.run_id = state.run_id and tasks.step_slug = state.step_slug))""",
    "S6": "status = 'failed' and num_nulls(failed_at, error_message) > 0",
    "S7": """status = 'skipped' and (num_nulls(skip_reason, skipped_at) > 0
             or num_nonnulls(remaining_tasks, output) > 0)""",
    # A map that is skipped along with its parent, by a cascade, keeps the unknown count as well.
    "S8": """step_type = 'single' and initial_tasks is distinct from 1
             or initial_tasks is null and (step_type <> 'map' or deps_count = 0
               or open_parents = 0 and status <> 'skipped')""",
    "S9": """status = 'created'
             and num_nonnulls(started_at, completed_at, failed_at, skipped_at, remaining_tasks) > 0""",
    "T1": """tasks <> case when started_at is null then 0 else initial_tasks end
             or tasks > 0 and last_index <> tasks - 1""",
}

TASK_LAWS = {
    "T2": """status = 'queued' and (run_status <> 'started' or step_status <> 'started'
             or num_nonnulls(started_at, completed_at, failed_at) > 0 or message_id is null)""",
    "T3": """status = 'started' and (run_status <> 'started' or step_status <> 'started'
             or num_nulls(started_at, last_worker_id) > 0 or attempts_count < 1)""",
    "T4": """status = 'completed' and (completed_at is null or step_status <> 'completed'
             and (step_type <> 'map' or step_status not in ('started', 'failed', 'skipped')))""",
    "T5": """status = 'failed' and (num_nulls(failed_at, error_message) > 0
             or step_status not in ('failed', 'skipped'))""",
    "T6": """status = 'skipped' and step_status <> 'skipped'
             or status = 'cancelled' and run_status <> 'failed'
             or status in ('skipped', 'cancelled') and num_nonnulls(completed_at, failed_at, output) > 0""",
    "T7": """status in ('queued', 'started') and (run_status <> 'started' or step_status <> 'started')""",
    "T8": "permanently_stalled_at is not null and requeued_count <> 3",
    "T9": "attempts_count > greatest(1, max_attempts) + requeued_count",
    "T10": """exists (select from pgflow.step_tasks as other
              where other.message_id = task.message_id and other.message_id is not null
              and (other.run_id, other.step_slug, other.task_index)
                <> (task.run_id, task.step_slug, task.task_index))""",
    "Q2": "live and message_id not in (select msg_id from pgmq.q_sim)",
    "Q3": """not live and message_id not in (select msg_id from pgmq.a_sim)
             and message_id <> all (%(left_behind)s)""",
}

MESSAGE_LAWS = {
    "Q1": """(select count(*) from task
              where task.message_id = q_sim.msg_id and task.status in ('queued', 'started')
                and (live or q_sim.msg_id = any (%(left_behind)s))) <> 1""",
    "Q1 either queued or archived": "msg_id in (select msg_id from pgmq.a_sim)",
}

EVENTS = """
select 'E' as law,
  coalesce(sent.event, due.event) || ' sent ' || coalesce(sent.times, 0) || ' times' as culprit
from (select topic, event, count(*) as times from realtime.messages group by topic, event) as sent
full join (
  select 'pgflow:run:' || run_id as topic, unnest(
    case status when 'started' then array['run:started'] else array['run:started', 'run:' || status] end
  ) as event
  from pgflow.runs
  union all
  select 'pgflow:run:' || run_id, 'step:' || step_slug || ':' || status from pgflow.step_states
  where status in ('completed', 'failed', 'skipped')
  union all
  select 'pgflow:run:' || run_id, 'step:' || step_slug || ':started' from pgflow.step_states
  where started_at is not null and initial_tasks > 0
) as due using (topic, event)
where sent.times is distinct from 1 or due.event is null
"""

BROKEN_AT_0_15_0 = {"T2", "T3", "T5", "T7", "Q2"}

MOVES = {
    "run": {"started": {"completed", "failed"}},
    "step": {
        "created": {"started", "completed", "failed", "skipped"},
        "started": {"completed", "failed", "skipped"},
    },
    "task": {
        "queued": {"started", "skipped", "cancelled", "failed"},
        "started": {"completed", "queued", "failed", "skipped", "cancelled"},
    },
}

STATUSES = """
select 'run ' || run_id as key, status from pgflow.runs
union all
select 'step ' || run_id || ' ' || step_slug, status from pgflow.step_states
union all
select 'task ' || run_id || ' ' || step_slug || ' ' || task_index, status from pgflow.step_tasks
"""


def laws(release: str) -> str:
    excused = BROKEN_AT_0_15_0 if release == "core_0_15_0" else set()
    tables = [
        ("pgflow.runs", "run_id::text", RUN_LAWS),
        ("state", "run_id || ' ' || step_slug", STATE_LAWS),
        ("task", "run_id || ' ' || step_slug || ' ' || task_index", TASK_LAWS),
        ("pgmq.q_sim", "msg_id::text", MESSAGE_LAWS),
    ]
    queries = [EVENTS]
    for table, key, group in tables:
        marks = ", ".join(
            f"case when {broken} then '{law}' end" for law, broken in group.items() if law not in excused
        )
        # One scan a table: "offset 0" keeps the counts of the views from being worked out for each law.
        queries.append(
            f"select law, {key} as culprit from (select * from {table} offset 0) as {table.split('.')[-1]}"
            f" cross join unnest(array[{marks}]) as law where law is not null"
        )
    return "\nunion all\n".join(queries)


# -- random flows


@dataclass(frozen=True)
class Step:
    slug: str
    parents: tuple[str, ...]
    options: dict[str, Any]


PATTERNS: list[dict[str, Any] | None] = [None] * 12 + [{}, {"ok": True}]


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    made: list[Step] = []
    slugs = draw(st.permutations(["a", "b", "c", "d", "e", "f"]))
    for slug in slugs[: draw(st.integers(3, 6))]:
        earlier = [step.slug for step in made]
        is_map = draw(st.booleans())
        most = min(len(earlier), 1 if is_map else 3)
        parents = draw(st.lists(st.sampled_from(earlier), max_size=most, unique=True)) if earlier else []
        patterns: list[dict[str, Any] | None] = (
            PATTERNS + [{parent: {}} for parent in parents] + [{parent: [1]} for parent in parents]
        )
        made.append(
            Step(
                slug,
                tuple(parents),
                {
                    "step_type": "map" if is_map else "single",
                    "required_input_pattern": draw(st.sampled_from(patterns)),
                    "forbidden_input_pattern": draw(st.sampled_from(patterns)),
                    "when_unmet": draw(st.sampled_from(["skip", "skip-cascade", "skip", "fail"])),
                    "when_exhausted": draw(st.sampled_from(["fail", "skip", "skip-cascade"])),
                    "max_attempts": draw(st.sampled_from([None, 0, 1, 1, 3])),
                    "base_delay": draw(st.sampled_from([None, 0, 7])),
                    "timeout": draw(st.sampled_from([None, 11])),
                    "start_delay": draw(st.sampled_from([None, None, 0, 300])),
                },
            )
        )
    return made


INPUTS = st.sampled_from([{"ok": True}, {"ok": False}, {}, [], [1]])
ARRAYS = st.sampled_from([[], [1], [1, {"ok": True}, None]])
OUTPUTS = st.sampled_from([[1, 2], [1], [], [1, {"ok": True}], [1, 2], [1], {"ok": True}, None])
CALLS = st.sampled_from(
    ["read and claim"] * 6
    + ["complete"] * 6
    + ["fail"] * 4
    + ["show"] * 3
    + ["stall", "stall for good", "claim", "late", "late", "start"]
)


# -- a random schedule


@dataclass
class Moment:
    earliest: datetime
    latest: datetime = datetime.max


@dataclass
class Simulation:
    """Drives one flow; knows which visibility each message must have and which messages are stuck."""

    core: Core
    draw: Callable[[st.SearchStrategy[Any]], Any]
    steps: list[Step]
    due: dict[int, tuple[datetime, datetime]] = field(default_factory=dict)
    left_behind: list[int] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        core = self.core
        if core.rows("select from pgflow.flows where flow_slug = %s", FLOW):
            core.execute("select pgflow.delete_flow_and_data(%s)", FLOW)
        core.execute("truncate realtime.messages")
        core.flow(FLOW, max_attempts=2, base_delay=3, timeout=20)
        for step in self.steps:
            core.step(FLOW, step.slug, *step.parents, **step.options)

    def tasks(self, where: str = "true") -> list[dict[str, Any]]:
        return self.core.rows(f"select * from task where {where} order by message_id")

    def pick(self, where: str) -> dict[str, Any] | None:
        found = self.tasks(where)
        return self.draw(st.sampled_from(found)) if found else None

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        """The span of the body on the server's clock."""
        span = Moment(self.core.clock())
        yield span
        span.latest = self.core.clock()

    def expect(self, message: int, span: Moment, seconds: float) -> None:
        """The message was made visible ``seconds`` from some instant of the span."""
        wait = timedelta(seconds=seconds)
        self.due[message] = (span.earliest + wait, span.latest + wait)

    def call(self, name: str) -> None:
        """One call, with the messages that it sends."""
        with self.moment() as span:
            getattr(self, name.replace(" ", "_"))()
        for task in self.tasks():
            if task["message_id"] not in self.due:
                self.expect(task["message_id"], span, task["start_delay"])

    def start(self) -> None:
        if self.core.value("select count(*) from pgflow.runs") < 3:
            root_map = any(not s.parents and s.options["step_type"] == "map" for s in self.steps)
            self.core.start(FLOW, self.draw(ARRAYS if root_map else INPUTS))

    def read_and_claim(self) -> None:
        vt, quantity = self.draw(st.sampled_from([1, 400])), self.draw(st.integers(1, 4))
        with self.moment() as span:
            messages = self.core.read(FLOW, vt, quantity)
        for message in messages:
            self.expect(message, span, vt)
        self._claim(messages)

    def claim(self) -> None:
        """Any messages, read or not, claimed already or not."""
        known = [task["message_id"] for task in self.tasks("live")]
        if known:
            self._claim(self.draw(st.lists(st.sampled_from(known), max_size=3)))

    def _claim(self, messages: list[int]) -> None:
        claimable = {
            task["message_id"]: task
            for task in self.tasks("status = 'queued' and run_status = 'started' and step_status = 'started'")
            if task["message_id"] in messages
        }
        with self.moment() as span:
            records = self.core.start_tasks(FLOW, messages)
        assert sorted(record["msg_id"] for record in records) == sorted(claimable)
        if self.core.hardened:
            for message, task in claimable.items():
                self.expect(message, span, task["timeout"] + 2)
        if self.core.routed:
            self._expect_deferral(messages, set(claimable), span)

    def _expect_deferral(self, messages: list[int], claimed: set[int], span: Moment) -> None:
        """Messages of tasks that were started already are put off to their recovery; a second is rounding."""
        for task in self.tasks("status = 'started'"):
            if task["message_id"] in set(messages) - claimed:
                recovery = task["started_at"] + timedelta(seconds=task["timeout"] + 30)
                self.due[task["message_id"]] = (
                    recovery,
                    recovery + timedelta(seconds=1) + (span.latest - span.earliest),
                )

    def complete(self) -> None:
        task = self.pick("status = 'started'")
        if task:
            self._callback("complete", task)

    def fail(self) -> None:
        task = self.pick("status = 'started'")
        if task:
            self._callback("fail", task)

    def late(self) -> None:
        """A callback for any task, whatever has become of it."""
        task = self.pick("true")
        if task:
            self._callback(self.draw(st.sampled_from(["complete", "fail"])), task)

    def _callback(self, kind: str, task: dict[str, Any]) -> None:
        run, step, index = task["run_id"], task["step_slug"], task["task_index"]
        if kind == "complete":
            rows = self.core.complete(run, step, self.draw(OUTPUTS), index)
        else:
            with self.moment() as span:
                rows = self.core.fail(run, step, "it broke", index)
            active = task["run_status"] == task["step_status"] == "started"
            if active and task["status"] in ("queued", "started") and rows[0]["status"] == "queued":
                self.expect(task["message_id"], span, task["base_delay"] * 2 ** task["attempts_count"])
        assert rows == [self.core.task(run, step, index)]

    def stall_for_good(self) -> None:
        """A started task that has been requeued three times already grows old."""
        task = self.pick("status = 'started' and permanently_stalled_at is null")
        if task:
            self.core.execute(
                "update pgflow.step_tasks set requeued_count = 3 where message_id = %s", task["message_id"]
            )
            self.stall()

    def stall(self) -> None:
        """Some started tasks grow old, then somebody looks."""
        found = self.tasks("status = 'started' and permanently_stalled_at is null")
        old = self.draw(st.lists(st.sampled_from(found), max_size=2, unique_by=id)) if found else []
        for task in old:
            self.core.age(task["run_id"], task["step_slug"], 100_000, task["task_index"])
        again = [task["message_id"] for task in old if task["requeued_count"] < 3]
        final = [task["message_id"] for task in old if task["requeued_count"] >= 3]
        with self.moment() as span:
            assert self.core.requeue() == len(again)
        for message in again:
            self.expect(message, span, 0)
        if not again and not self.core.routed:
            self.left_behind += final

    def show(self) -> None:
        with self.moment() as span:
            self.core.show(FLOW)
        for message in self.core.queued(FLOW):
            self.expect(message, span, 0)

    def check(self) -> None:
        broken = self.core.connection.execute(
            laws(self.core.release).encode(), {"left_behind": self.left_behind}
        ).fetchall()
        assert broken == []
        for row in self.core.rows("select msg_id, vt from pgmq.q_sim"):
            earliest, latest = self.due[row["msg_id"]]
            assert earliest <= row["vt"] <= latest, f"Q4: message {row['msg_id']}"
        self._check_moves()

    def _check_moves(self) -> None:
        """Every run, step and task stays where it is or moves as it may; none goes away."""
        after = {row["key"]: row["status"] for row in self.core.rows(STATUSES)}
        for key, old in self.before.items():
            moves = MOVES[key.partition(" ")[0]].get(old, set())
            assert after[key] in {old, *moves}, f"{key} went from {old} to {after[key]}"
        self.before = after


@pytest.mark.parametrize(
    ("release", "examples"),
    [("core_0_15_0", 10), ("core_0_15_1", 10), ("core_0_16_0", 40), ("queue_identity", 20)],
)
def test_every_law_holds_after_every_call(sessions: Sessions, release: str, examples: int) -> None:
    (core,) = sessions(release, 1)
    core.execute("set synchronous_commit = off")
    core.execute("set jit = off")
    core.execute("set plan_cache_mode = force_generic_plan")
    core.execute(VIEWS)

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data(), steps(), st.lists(CALLS, min_size=25, max_size=25))
    def run(data: st.DataObject, flow: list[Step], calls: list[str]) -> None:
        simulation = Simulation(core, data.draw, flow)
        simulation.prepare()
        for call in ["start", *calls]:
            simulation.call(call)
            simulation.check()

    run()


def breaches(core: Core, release: str) -> set[str]:
    """The names of the laws that the database breaks."""
    rows = core.connection.execute(laws(release).encode(), {"left_behind": []}).fetchall()
    return {row["law"] for row in rows}


RESEND = """insert into realtime.messages (payload, event, topic, private)
select payload, event, topic, private from realtime.messages where event = 'step:each:started'"""


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ("update pgflow.runs set remaining_steps = 0", {"R1", "R4"}),
        ("update pgflow.runs set output = '{}'", {"R1"}),
        (
            "update pgflow.runs set status = 'completed', completed_at = now(), remaining_steps = 0",
            {"R2", "R4", "S4", "T2", "T3", "T7", "E"},
        ),
        ("update pgflow.runs set status = 'failed'", {"R3", "R6", "T2", "T3", "T7", "E"}),
        ("update pgflow.runs set remaining_steps = 1", {"R4"}),
        ("delete from pgflow.step_states where step_slug = 'after'", {"R4", "R5"}),
        ("update pgflow.step_states set status = 'failed' where step_slug = 'after'", {"R6", "S6", "E"}),
        ("update pgflow.step_states set remaining_deps = 0 where step_slug = 'after'", {"S1", "S3"}),
        ("update pgflow.step_states set remaining_tasks = 1 where step_slug = 'each'", {"S4"}),
        ("update pgflow.step_states set initial_tasks = null where step_slug = 'after'", {"S8"}),
        ("update pgflow.step_states set started_at = now() where step_slug = 'after'", {"S9", "T1", "E"}),
        ("delete from pgflow.step_tasks where task_index = 0", {"T1", "Q1"}),
        ("update pgflow.step_tasks set started_at = now() where task_index = 1", {"T2"}),
        ("update pgflow.step_tasks set last_worker_id = null", {"T3"}),
        ("update pgflow.step_tasks set status = 'completed' where task_index = 0", {"S4", "T4", "Q1", "Q3"}),
        ("update pgflow.step_tasks set status = 'failed' where task_index = 0", {"T5", "Q1", "Q3"}),
        ("update pgflow.step_tasks set status = 'cancelled' where task_index = 0", {"T6", "Q1", "Q3"}),
        ("update pgflow.step_tasks set status = 'skipped' where task_index = 0", {"T6", "Q1", "Q3"}),
        (
            "update pgflow.step_tasks set permanently_stalled_at = now() where task_index = 0",
            {"T8", "Q1", "Q3"},
        ),
        ("update pgflow.step_tasks set attempts_count = 9 where task_index = 0", {"T9"}),
        (
            # Queue identity has an index that forbids this.
            "drop index if exists pgflow.step_tasks_queue_message_key;"
            "update pgflow.step_tasks set message_id = 1",
            {"T10", "Q1"},
        ),
        ("delete from pgmq.q_sim where msg_id = 1", {"Q2"}),
        (
            "insert into pgmq.a_sim (msg_id, vt) select msg_id, vt from pgmq.q_sim",
            {"Q1 either queued or archived"},
        ),
        ("delete from realtime.messages where event = 'step:each:started'", {"E"}),
        (RESEND, {"E"}),
    ],
)
def test_a_broken_law_is_noticed(hardened: Core, change: str, broken: set[str]) -> None:
    """A run with a claimed and a queued task obeys the laws; after the change it does not."""
    hardened.execute(VIEWS)
    hardened.flow(FLOW)
    hardened.map_step(FLOW, "each")
    hardened.step(FLOW, "after", "each")
    run = hardened.start(FLOW, [1, 2])
    hardened.claim(run, "each", 0)
    assert breaches(hardened, "core_0_16_0") == set()
    hardened.execute(change)
    assert breaches(hardened, "core_0_16_0") == broken


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ("update pgflow.runs set completed_at = null", {"R2"}),
        ("update pgflow.runs set output = '{}'", {"R7"}),
        ("update pgflow.step_states set completed_at = null where step_slug = 'list'", {"S5"}),
        ("update pgflow.step_states set output = '[1, 2, 3]' where step_slug = 'each'", {"S5", "R7"}),
        ("update pgflow.step_states set skipped_at = null where step_slug = 'gone'", {"S7"}),
        ("update pgflow.step_states set remaining_deps = 1 where step_slug = 'gone'", {"S2"}),
        ("update pgflow.step_tasks set completed_at = null where step_slug = 'list'", {"T4"}),
        ("delete from pgmq.a_sim where msg_id = 1", {"Q3"}),
    ],
)
def test_a_broken_law_is_noticed_after_the_end_of_a_run(
    hardened: Core, change: str, broken: set[str]
) -> None:
    hardened.execute(VIEWS)
    hardened.flow(FLOW)
    hardened.step(FLOW, "list")
    hardened.map_step(FLOW, "each", "list")
    hardened.step(FLOW, "gone", required_input_pattern={"never": "there"})
    run = hardened.start(FLOW, {})
    hardened.do(run, "list", [1])
    hardened.do(run, "each", "done")
    assert breaches(hardened, "core_0_16_0") == set()
    hardened.execute(change)
    assert breaches(hardened, "core_0_16_0") == broken


def test_at_0_15_0_a_failed_run_breaks_the_laws_that_it_is_excused_from(unhardened: Core) -> None:
    unhardened.execute(VIEWS)
    unhardened.flow(FLOW)
    unhardened.step(FLOW, "last", max_attempts=1)
    for slug in ("claimed", "late", "waiting"):
        unhardened.step(FLOW, slug)
    run = unhardened.start(FLOW, {})
    for slug in ("claimed", "late"):
        unhardened.claim(run, slug)
    unhardened.break_(run, "last")
    unhardened.fail(run, "late")
    assert breaches(unhardened, "core_0_16_0") == BROKEN_AT_0_15_0
    assert breaches(unhardened, "core_0_15_0") == set()
