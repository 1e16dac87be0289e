"""Every limit of the contract that SQL enforces: below, at and above its bound, by real calls.

What is really read is in test_limits_of_work.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from tests.dirty_runs.changes import unchanged, without_triggers
from tests.dirty_runs.protocol import Row, Session

from pgflow_migrate.dirty_runs import limits
from pgflow_migrate.dirty_runs.limits import LIMITS, limit, retained_bytes
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def database(server: Server, templates: Templates) -> Iterator[Session]:
    """A session on a database with the flow ``demo``, for tests that leave nothing behind."""
    name = "dirty_runs_limits"
    session = Session(templates.clone("dirty_runs", name))
    session.define()
    yield session
    session.close()
    server.drop_database(name)


@pytest.fixture
def shared(database: Session) -> Iterator[Session]:
    """That session in a transaction that is rolled back."""
    with database.connection.transaction(force_rollback=True):
        yield database


# -- the same numbers everywhere ---------------------------------------------------------------------------


def test_the_limits_of_the_contract_are_those_of_the_database(session: Session) -> None:
    in_sql = {one.name: one.value for one in LIMITS if one.enforced == "sql"}
    assert session.value("select pgflow._v2_limits()") == {
        **in_sql,
        "contract_version": limits.CONTRACT_VERSION,
        "protocol_version": limits.PROTOCOL_VERSION,
    }
    # The worker alone has these, and no others.
    assert {one.name for one in LIMITS if one.enforced != "sql"} == {
        "report_attempts",
        "report_deadline_seconds",
    }
    assert len(in_sql) + 2 == len(LIMITS)


SHA256_BYTES = 32
SQLSTATE_BYTES = 5
# Every number in the text of a constraint of protocol 2, in its order; a name is a limit.
CONSTRAINTS: dict[str, list[str | int]] = {
    "step_tasks.claimed_output_is_bounded": ["result_bytes"],
    "run_work.protocol_version_is_known": [limits.PROTOCOL_VERSION],
    "run_work.definition_is_identified": [SHA256_BYTES],
    "run_work.generations_are_ordered": [0, "generation_max"],
    "run_work.failures_are_bounded": [
        0,
        "attention_failures",
        1,
        limit("attention_failures") - 1,
        "attention_failures",
    ],
    "run_work.error_is_bounded": ["error_bytes", SQLSTATE_BYTES],
    "task_claims.claim_number_is_bounded": [1, "claims_per_task"],
    "task_claims.policy_is_supported": ["max_attempts", "timeout_seconds_min", "timeout_seconds_max"],
    "task_claims.oversize_is_told": ["result_bytes"],
    "task_claims.settlement_is_bounded": [1, SHA256_BYTES, 0, "error_bytes", 0, "settlement_bytes"],
}


def test_numbers_in_constraints_are_those_of_the_contract(session: Session) -> None:
    texts = session.rows(
        "select c.relname || '.' || n.conname as name, pg_get_constraintdef(n.oid) as text"
        " from pg_constraint n join pg_class c on c.oid = n.conrelid"
        " where n.contype = 'c' and n.conrelid in ('pgflow.step_tasks'::regclass,"
        "   'pgflow.run_work'::regclass, 'pgflow.task_claims'::regclass)"
        " and (c.relname in ('run_work', 'task_claims')"
        "   or pg_get_constraintdef(n.oid) ~ 'current_claim_id')"
    )
    # Names such as settlement_sha256 have digits, too.
    numbers = {row["name"]: [int(n) for n in re.findall(r"(?<![\w.])\d+", row["text"])] for row in texts}
    assert {name: found for name, found in numbers.items() if found} == {
        name: [limit(part) if isinstance(part, str) else part for part in parts]
        for name, parts in CONSTRAINTS.items()
    }


def test_numbers_in_triggers_are_those_of_the_contract(session: Session) -> None:
    texts = session.rows(
        "select tgname as name, pg_get_triggerdef(oid) as text from pg_trigger"
        " where not tgisinternal and tgfoid::regproc::text like 'pgflow.%%'"
    )
    assert len(texts) > 10
    # Names such as _v2_guard_run and protocol_2_end have digits, too.
    numbers = {row["name"]: [int(n) for n in re.findall(r"(?<![\w.])\d+", row["text"])] for row in texts}
    assert {name: found for name, found in numbers.items() if found} == {
        "protocol_2_end": [limit("run_output_bytes")]
    }


def test_no_function_has_a_limit_of_its_own(session: Session) -> None:
    bodies = session.rows(
        "select proname, regexp_replace(prosrc, '--[^\\n]*', '', 'g') as body from pg_proc"
        " where pronamespace = 'pgflow'::regnamespace and proname <> '_v2_limits'"
        " and (proname like '%%v2%%' or proname = 'reconcile_one_run')"
    )
    assert len(bodies) > 20
    small = {"0", "1", "2", "3", "4"}  # protocols, and what counts characters of UTF-8 and of "..."
    own = {
        row["proname"]: found
        for row in bodies
        if (found := set(re.findall(r"(?<![\w$'%])\d+(?!\w)", row["body"])) - small)
    }
    assert own == {}


# Where each limit is shown: function names of this file, or file::function below tests/dirty_runs/.
SHOWN = {
    "steps": "transitions/test_start.py::test_a_definition_outside_the_envelope_is_rejected",
    "edges": "transitions/test_start.py::test_a_definition_outside_the_envelope_is_rejected",
    "tasks": "test_limits_of_work.py::test_a_run_with_more_rows_than_the_contract_allows_fails_its_chunk",
    "max_attempts": "test_timings_and_attempts_are_bounded",
    "definition_bytes": "test_a_definition_is_bounded_by_its_canonical_bytes",
    "input_bytes": "test_inputs_are_bounded_by_their_canonical_bytes",
    "result_bytes": "test_results_are_bounded_by_their_canonical_bytes",
    "run_output_bytes": "test_the_largest_result_under_the_longest_slug_is_an_output",
    "error_bytes": "test_errors_are_kept_up_to_their_bound_and_cut_beyond",
    "settlement_bytes": "test_errors_are_kept_up_to_their_bound_and_cut_beyond",
    "timeout_seconds_min": "test_timings_and_attempts_are_bounded",
    "timeout_seconds_max": "test_timings_and_attempts_are_bounded",
    "start_delay_seconds_max": "test_timings_and_attempts_are_bounded",
    "lease_grace_seconds": "test_a_lease_is_the_timeout_and_the_grace",
    "message_ids_per_call": "test_limits_of_work.py::test_a_huge_array_of_ids_is_rejected_at_no_cost",
    "claims_per_task": "test_a_task_has_two_claims_and_no_third",
    "transitions_per_chunk": "test_a_chunk_makes_one_transition",
    "examined_rows_per_chunk":
        "test_limits_of_work.py::test_a_run_with_more_rows_than_the_contract_allows_fails_its_chunk",
    "candidate_rows": "test_limits_of_work.py::test_no_more_candidates_are_read_than_are_allowed",
    "generation_max": "test_guards.py::test_generations_end_at_their_maximum_and_never_wrap",
    "backoff_seconds": "transitions/test_reconcile.py::test_a_back_off_doubles_and_progress_ends_it",
    "attention_failures": "transitions/test_reconcile.py::test_the_fifth_failure_in_a_row_asks_for_attention",
    "replay_horizon_seconds": "test_evidence_is_kept_for_its_horizon_and_no_longer",
}  # fmt: skip


def test_every_limit_of_sql_is_shown_by_a_test() -> None:
    assert SHOWN.keys() == {one.name for one in LIMITS if one.enforced == "sql"}
    for shown in SHOWN.values():
        file, _, function = shown.rpartition("::")
        text = (TESTS / (file or Path(__file__).name)).read_text()
        assert f"\ndef {function}(" in text, shown


# -- definitions -------------------------------------------------------------------------------------------


def canonical_definition(flow: str, a: str, b: str) -> str:
    """The definition that is identified, as protocol 2 writes it."""
    step = (
        '{{"slug": "{}", "type": "single", "index": {}, "queue": "{}", "timeout": 60, "condition": false,'
        ' "startDelay": 0, "maxAttempts": 1, "whenExhausted": "fail"}}'
    )
    return (
        f'{{"flow": "{flow}", "edges": [["{a}", "{b}"]], "steps": ['
        f"{step.format(a, 0, flow.lower())}, {step.format(b, 1, flow.lower())}]}}"
    )


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_definition_is_bounded_by_its_canonical_bytes(session: Session, over: int) -> None:
    # A letter of a step's slug counts twice, one of the flow's three times.
    wanted = limit("definition_bytes") + over
    flow = "d" if (wanted - len(canonical_definition("d", "a", "b"))) % 2 == 0 else "dd"
    spare, odd = divmod(wanted - len(canonical_definition(flow, "a", "b")), 2)
    assert odd == 0
    a, b = "a" * (1 + min(spare, 120)), "b" * (1 + spare - min(spare, 120))
    assert len(canonical_definition(flow, a, b)) == wanted
    session.execute("select pgflow.create_flow(%s, 1, 0, 60)", flow)
    session.execute("select pgflow.add_step(%s, %s)", flow, a)
    session.execute("select pgflow.add_step(%s, %s, array[%s])", flow, b, a)
    if over > 0:
        with unchanged(session):
            assert session.start(flow) == {"outcome": "rejected", "reasons": ["definition_bytes"]}
        return
    run = session.started(flow)
    assert session.work(run)["definition_sha256"] == session.value(
        "select sha256(convert_to(%s, 'UTF8'))", canonical_definition(flow, a, b)
    )


TIMINGS: list[tuple[str, str, int, list[str] | str]] = [
    ("flows", "opt_timeout", 0, "opt_timeout_is_positive"),
    ("flows", "opt_timeout", 1, []),
    ("flows", "opt_timeout", 3_600, []),
    ("flows", "opt_timeout", 3_601, ["timeout"]),
    ("steps", "opt_timeout", 0, "opt_timeout_is_positive"),
    ("steps", "opt_timeout", 1, []),
    ("steps", "opt_timeout", 3_600, []),
    ("steps", "opt_timeout", 3_601, ["timeout"]),
    ("steps", "opt_start_delay", -1, "opt_start_delay_is_nonnegative"),
    ("steps", "opt_start_delay", 0, []),
    ("steps", "opt_start_delay", 3_600, []),
    ("steps", "opt_start_delay", 3_601, ["start_delay"]),
    ("flows", "opt_max_attempts", 0, ["max_attempts"]),
    ("flows", "opt_max_attempts", 1, []),
    ("flows", "opt_max_attempts", 2, ["max_attempts"]),
    ("steps", "opt_max_attempts", 0, ["max_attempts"]),
    ("steps", "opt_max_attempts", 1, []),
    ("steps", "opt_max_attempts", 2, ["max_attempts"]),
]


@pytest.mark.parametrize(("table", "option", "value", "expected"), TIMINGS)
def test_timings_and_attempts_are_bounded(
    shared: Session, table: str, option: str, value: int, expected: list[str] | str
) -> None:
    change = f"update pgflow.{table} set {option} = {value}"
    if isinstance(expected, str):  # Such a definition cannot be.
        with pytest.raises(psycopg.errors.CheckViolation) as refused, shared.connection.transaction():
            shared.execute(change)
        assert refused.value.diag.constraint_name == expected
        return
    shared.execute(change)
    if expected:
        with unchanged(shared):
            assert shared.start() == {"outcome": "rejected", "reasons": expected}
    else:
        shared.started()


def test_a_lease_is_the_timeout_and_the_grace(session: Session) -> None:
    for timeout in (1, 3_600):
        flow = f"timeout_{timeout}"
        session.define(flow, timeout=timeout)
        row = session.claim_row(session.claimed(session.started(flow), "a"))
        assert (row["lease_expires_at"] - row["claimed_at"]).total_seconds() == timeout + 30


# -- inputs and results ------------------------------------------------------------------------------------

BOUND = 65_536


def quoted(characters: str) -> str:
    return f'"{characters}"'


ONE = r"\u0001"  # printed as it is written here
X = r"\u0078"  # printed as "x"
THOUSANDS = ", ".join(["1e1000"] * 65)  # 1,001 digits each
# A JSON text and how many bytes its canonical text has.
SIZES: dict[str, tuple[str, int]] = {
    "one below": (quoted("x" * (BOUND - 3)), BOUND - 1),
    "at the bound": (quoted("x" * (BOUND - 2)), BOUND),
    "one above": (quoted("x" * (BOUND - 1)), BOUND + 1),
    "two bytes a character, at": (quoted("é" * (BOUND // 2 - 1)), BOUND),
    "two bytes a character, above": (quoted("é" * (BOUND // 2 - 1) + "x"), BOUND + 1),
    "four bytes a character, at": (quoted("xx" + "😀" * (BOUND // 4 - 1)), BOUND),
    "four bytes a character, above": (quoted("xxx" + "😀" * (BOUND // 4 - 1)), BOUND + 1),
    "escapes of ordinary letters, at": (quoted(X * (BOUND - 2)), BOUND),
    "escapes that stay, at": (quoted(ONE * 10_922 + "xx"), BOUND),
    "escapes that stay, above": (quoted(ONE * 10_922 + "xxx"), BOUND + 1),
    "a number that is written out, at": ("1e65535", BOUND),
    "a number that is written out, above": ("1e65536", BOUND + 1),
    "many numbers that are written out, at": (f"[{THOUSANDS}, 1e338]", BOUND),
    "many numbers that are written out, above": (f"[{THOUSANDS}, 1e339]", BOUND + 1),
    "zeros that do not count, at": (f"[1.{'0' * 9_000}, {quoted('x' * (BOUND - 7))}]", BOUND),
    "zeros that do not count, above": (f"[1.{'0' * 9_000}, {quoted('x' * (BOUND - 6))}]", BOUND + 1),
    "white space that does not count": ('{"a":' + " " * BOUND + "1}", 8),
    "equal keys, of which one counts": ("{" + f'"a": {quoted("x" * 900)}, ' * 100 + '"a": 1}', 8),
}


@pytest.mark.parametrize(("text", "size"), SIZES.values(), ids=SIZES)
def test_inputs_are_bounded_by_their_canonical_bytes(shared: Session, text: str, size: int) -> None:
    canonical = "select pgflow._v2_bytes(pgflow._canonical_json(%s::jsonb))"
    assert shared.value(canonical, text) == size
    if size > limit("input_bytes"):
        with unchanged(shared):
            assert shared.start(given=text) == {"outcome": "rejected", "reasons": ["input_bytes"]}
        return
    run = shared.started(given=text)
    assert shared.value("select octet_length(input::text) from pgflow.runs") == size
    assert shared.start(given=text, run=run)["replayed"] is True


@pytest.mark.parametrize(("text", "size"), SIZES.values(), ids=SIZES)
def test_results_are_bounded_by_their_canonical_bytes(shared: Session, text: str, size: int) -> None:
    run = shared.started()
    claim = shared.claimed(run, "a")
    outcome = shared.complete(claim, text)
    row = shared.claim_row(claim)
    assert (outcome["outcome"], row["settlement_bytes"]) == ("accepted", size)
    if size > limit("result_bytes"):
        assert outcome["disposition"] == "oversized"
        assert row["settlement_error"] == f"[RESULT_TOO_LARGE] {size} bytes, at most 65536 are kept"
        assert (shared.task(run, "a")["output"], shared.run(run)["status"]) == (None, "failed")
    else:
        assert outcome["disposition"] == "completed"
        assert shared.value("select octet_length(output::text) from pgflow.step_tasks") == size
    with unchanged(shared):
        assert shared.complete(claim, text) == {**outcome, "replayed": True}


LARGEST = quoted("x" * (BOUND - 2))
LEAF = "b" * 128


def longest(session: Session) -> UUID:
    """A run whose input, and result of A, are as large as can be; B, whose slug is, too, may be claimed.

    Its second chunk failed with an error as long as can be.
    """
    session.execute("select pgflow.create_flow('d', 1, 0, 60)")
    session.execute("select pgflow.add_step('d', 'a')")
    session.execute("select pgflow.add_step('d', %s, '{a}')", LEAF)
    run = session.started("d", given=LARGEST)
    session.complete(session.claimed(run, "a"), LARGEST)
    assert session.reconcile(run)["outcome"] == "dispatched"
    session.execute(
        "create function public.poison() returns trigger language plpgsql as"
        " $$begin raise exception using message = repeat('x', 4096); end$$"
    )
    session.execute(
        "create trigger poison before update on pgflow.run_work for each row"
        " when (new.state = 'clean') execute function public.poison()"
    )
    assert session.reconcile(run)["error"] == "x" * limit("error_bytes")
    session.execute("drop trigger poison on pgflow.run_work")
    session.due(run)
    assert session.settle_down(run) == ["clean"]
    return run


def test_the_largest_result_under_the_longest_slug_is_an_output(session: Session) -> None:
    run = longest(session)
    session.complete(session.claimed(run, LEAF), LARGEST)
    assert session.settle_down(run) == ["finalized", "clean"]
    assert session.value("select octet_length(output::text) from pgflow.runs") == limit("run_output_bytes")
    session.execute("select pgflow.create_flow('e')")
    with pytest.raises(psycopg.errors.CheckViolation):
        session.execute("select pgflow.add_step('e', %s)", "c" * 129)


def test_an_output_above_its_bound_fails_its_chunk(session: Session) -> None:
    run = longest(session)
    session.complete(session.claimed(run, LEAF), 1)
    # No result is as large; nothing but a state written by hand.
    session.execute(
        "update pgflow.step_states set output = to_jsonb(repeat('b', 65535)) where step_slug like 'b%%'"
    )
    outcome = session.reconcile(run)
    assert (outcome["outcome"], outcome["sqlstate"]) == ("failed", "PF007")
    assert outcome["error"] == f"the output of run {run} has 65671 bytes, at most 65670 are kept"
    assert (session.run(run)["status"], session.run(run)["output"]) == ("started", None)


# -- errors ------------------------------------------------------------------------------------------------

CUT = (4_096 - 3) // 4  # whole characters, whatever their bytes
ERRORS: dict[str, tuple[str, str]] = {
    "one below": ("x" * 4_095, "x" * 4_095),
    "at the bound": ("x" * 4_096, "x" * 4_096),
    "one above": ("x" * 4_097, "x" * CUT + "..."),
    "two bytes a character, at": ("é" * 2_048, "é" * 2_048),
    "two bytes a character, above": ("é" * 2_048 + "x", "é" * CUT + "..."),
    "four bytes a character, at": ("😀" * 1_024, "😀" * 1_024),
    "four bytes a character, above": ("😀" * 1_025, "😀" * CUT + "..."),
    "far above": ("😀" * 500_000, "😀" * CUT + "..."),
}


@pytest.mark.parametrize(("error", "kept"), ERRORS.values(), ids=ERRORS)
def test_errors_are_kept_up_to_their_bound_and_cut_beyond(shared: Session, error: str, kept: str) -> None:
    assert len(kept.encode()) <= limit("error_bytes")
    run = shared.started()
    claim = shared.claimed(run, "a")
    assert shared.fail(claim, error)["outcome"] == "accepted"
    row = shared.claim_row(claim)
    assert row["settlement_error"] == kept
    assert shared.task(run, "a")["error_message"] == shared.state(run, "a")["error_message"] == kept
    assert len(row["settlement_sha256"]) + len(kept.encode()) <= limit("settlement_bytes")
    assert row["settlement_bytes"] == len(error.encode()) + 2
    with unchanged(shared):
        assert shared.fail(claim, error)["replayed"] is True


# -- history -----------------------------------------------------------------------------------------------


def test_a_task_has_two_claims_and_no_third(demo: Session) -> None:
    run = demo.started()
    for number in range(1, limit("claims_per_task") + 1):
        outcome = demo.claim(run, "a")
        assert (outcome["outcome"], outcome["claim_number"]) == ("claimed", number)
        claim = UUID(outcome["claim_id"])
        demo.expire(claim)
        recovered = demo.recover(run, "a", claim)
        assert recovered["outcome"] == ("recovered" if number < limit("claims_per_task") else "attention")
    with unchanged(demo):
        assert demo.claim(run, "a")["outcome"] == "blocked"
    assert demo.value("select count(*) from pgflow.task_claims") == limit("claims_per_task")


def test_a_chunk_makes_one_transition(demo: Session) -> None:
    """Each chunk writes one transition: none goes on to the next by itself."""

    def stage() -> Row:
        return demo.row(
            "select run.status, work.state, b.status as b, (select count(*) from pgflow.step_tasks) as tasks"
            " from pgflow.runs run join pgflow.run_work work using (run_id)"
            " join pgflow.step_states b on b.run_id = run.run_id and b.step_slug = 'b'"
        )

    run = demo.started()
    demo.complete(demo.claimed(run, "a"), 1)
    stages = [stage()]
    for _ in range(2):
        demo.reconcile(run)
        stages.append(stage())
    demo.complete(demo.claimed(run, "b"), 1)
    for _ in range(2):
        demo.reconcile(run)
        stages.append(stage())
    assert [tuple(found.values()) for found in stages] == [
        ("started", "pending", "created", 1),
        ("started", "pending", "started", 2),
        ("started", "clean", "started", 2),
        ("completed", "pending", "completed", 2),
        ("completed", "clean", "completed", 2),
    ]


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_evidence_is_kept_for_its_horizon_and_no_longer(demo: Session, status: str) -> None:
    run = demo.started()
    if status == "failed":
        demo.fail(demo.claimed(run, "a"))
    else:
        demo.complete(demo.claimed(run, "a"), 1)
        demo.settle_down(run)
        demo.complete(demo.claimed(run, "b"), 1)
        demo.settle_down(run)

    def ended(seconds: int) -> None:
        with without_triggers(demo):
            demo.execute(
                f"update pgflow.runs set started_at = now() - interval '9 days',"
                f" {status}_at = clock_timestamp() - interval '{seconds} s'"
            )

    for seconds in (0, limit("replay_horizon_seconds") - 60):
        ended(seconds)
        with unchanged(demo), pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
            demo.execute("select pgflow.delete_flow_and_data('demo')")
        assert "its replay evidence is kept until" in str(refused.value)
    ended(limit("replay_horizon_seconds"))
    demo.execute("select pgflow.delete_flow_and_data('demo')")
    for table in ("runs", "run_work", "task_claims", "step_tasks", "flows"):
        assert demo.value(f"select count(*) from pgflow.{table}") == 0


# -- all that a run keeps ----------------------------------------------------------------------------------


def kept_bytes(session: Session) -> int:
    """Inputs, results, errors and settlements in all rows, in bytes."""
    kept = {
        "runs": ["input::text", "output::text"],
        "step_states": ["output::text", "error_message"],
        "step_tasks": ["output::text", "error_message"],
        "task_claims": ["settlement_sha256", "settlement_error"],
        "run_work": ["last_error"],
    }
    return sum(
        session.value(f"select coalesce(sum(octet_length({column})), 0) from pgflow.{table}")
        for table, columns in kept.items()
        for column in columns
    )


def take_over(session: Session, run: UUID) -> UUID:
    """The second and last claim on B."""
    first = session.claimed(run, LEAF)
    session.expire(first)
    session.recover(run, LEAF, first)
    return session.claimed(run, LEAF)


def test_a_completed_run_that_keeps_as_much_as_it_can_is_within_the_bound(session: Session) -> None:
    run = longest(session)
    session.complete(take_over(session, run), LARGEST)
    assert session.settle_down(run) == ["finalized", "clean"]
    results = 4 * limit("result_bytes")
    settlements = 2 * SHA256_BYTES
    assert kept_bytes(session) == (
        limit("input_bytes") + results + limit("run_output_bytes") + settlements + limit("error_bytes")
    )
    assert kept_bytes(session) <= retained_bytes()


def test_a_failed_run_that_keeps_as_much_as_it_can_is_within_the_bound(session: Session) -> None:
    run = longest(session)
    session.fail(take_over(session, run), "x" * limit("error_bytes"))
    results = 2 * limit("result_bytes")
    settlements = SHA256_BYTES + limit("settlement_bytes")
    assert kept_bytes(session) == (limit("input_bytes") + results + settlements + 3 * limit("error_bytes"))
    assert kept_bytes(session) <= retained_bytes()


def test_the_bound_on_what_a_run_keeps_is_made_of_the_limits() -> None:
    assert retained_bytes() == 65_536 + 4 * 65_536 + 65_670 + 4 * (4_096 + 32) + 3 * 4_096
