"""``pgflow.ensure_workers()``: pings the functions whose workers are needed and not alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]

REQUESTS = "select id, method, url, headers, convert_from(body, 'utf8') as body from net.http_request_queue"


@pytest.fixture
def hosted(db: Connection) -> None:
    """A hosted project with its two secrets."""
    db.execute("select vault.create_secret('service-key', 'supabase_service_role_key')")
    db.execute("select vault.create_secret('abc', 'supabase_project_id')")


@pytest.fixture
def track(db: Connection) -> Callable[..., None]:
    """Make a function known, with any columns set by SQL expressions."""

    def insert(name: str, **columns: str) -> None:
        db.execute("insert into pgflow.worker_functions (function_name) values (%s)", (name,))
        for column, expression in columns.items():
            db.execute(
                f"update pgflow.worker_functions set {column} = {expression} where function_name = %s",
                (name,),
            )

    return insert


@pytest.fixture
def worker(db: Connection) -> Callable[..., None]:
    """Register a worker, with any columns set by SQL expressions."""

    def insert(function: str, **columns: str) -> None:
        names = "".join(f", {column}" for column in columns)
        values = "".join(f", {expression}" for expression in columns.values())
        db.execute(
            f"insert into pgflow.workers (worker_id, queue_name, function_name{names})"
            f" values (gen_random_uuid(), 'any_queue', %s{values})",
            (function,),
        )

    return insert


@pytest.fixture
def pinged(rows: Callable[..., list[dict[str, Any]]]) -> Callable[[], list[str]]:
    """Call it; the names of the functions that it pinged."""

    def call() -> list[str]:
        return sorted(str(found["function_name"]) for found in rows("select * from pgflow.ensure_workers()"))

    return call


def test_a_hosted_ping_is_an_authorised_post_with_an_empty_object(
    hosted: None,
    track: Callable[..., None],
    row: Callable[..., dict[str, Any]],
) -> None:
    track("worker_a")
    returned = row("select * from pgflow.ensure_workers()")
    request = row(REQUESTS)
    assert returned == {"function_name": "worker_a", "invoked": True, "request_id": request.pop("id")}
    assert request == {
        "method": "POST",
        "url": "https://abc.supabase.co/functions/v1/worker_a",
        "headers": {"Content-Type": "application/json", "Authorization": "Bearer service-key"},
        "body": "{}",
    }


def test_a_local_ping_goes_to_kong_without_authorisation(
    hosted: None,  # local mode does not look at the secrets
    make_local: Callable[[], None],
    track: Callable[..., None],
    row: Callable[..., dict[str, Any]],
) -> None:
    make_local()
    track("worker_a")
    returned = row("select * from pgflow.ensure_workers()")
    request = row(REQUESTS)
    assert returned == {"function_name": "worker_a", "invoked": True, "request_id": request.pop("id")}
    assert request == {
        "method": "POST",
        "url": "http://kong:8000/functions/v1/worker_a",
        "headers": {"Content-Type": "application/json"},
        "body": "{}",
    }


def test_local_mode_needs_no_secrets(
    make_local: Callable[[], None], track: Callable[..., None], pinged: Callable[[], list[str]]
) -> None:
    make_local()
    track("worker_a")
    assert pinged() == ["worker_a"]


def test_local_mode_ignores_debounce_and_live_workers(
    make_local: Callable[[], None],
    track: Callable[..., None],
    worker: Callable[..., None],
    pinged: Callable[[], list[str]],
) -> None:
    make_local()
    track("just_pinged", last_invoked_at="now()")
    track("alive")
    worker("alive")
    assert pinged() == ["alive", "just_pinged"]
    assert pinged() == ["alive", "just_pinged"]


@pytest.mark.parametrize("local", [True, False])
def test_disabled_and_process_functions_are_never_pinged(
    db: Connection,
    hosted: None,
    make_local: Callable[[], None],
    track: Callable[..., None],
    pinged: Callable[[], list[str]],
    local: bool,
) -> None:
    if local:
        make_local()
    track("disabled", enabled="false")
    track("process", start_mode="'process'")
    track("disabled_process", enabled="false", start_mode="'process'")
    track("wanted")
    assert pinged() == ["wanted"]
    untouched = db.execute("select count(*) from pgflow.worker_functions where last_invoked_at is null")
    assert untouched.fetchone() == {"count": 3}


@pytest.mark.parametrize(
    ("last_invoked_at", "expected"),
    [
        ("null", ["f"]),
        ("now() - interval '1 day'", ["f"]),
        ("now() - interval '9 seconds' - interval '1 microsecond'", ["f"]),
        ("now() - interval '9 seconds'", []),  # not earlier than now - debounce
        ("now()", []),
    ],
)
def test_a_function_is_pinged_again_only_after_its_debounce(
    hosted: None,
    track: Callable[..., None],
    pinged: Callable[[], list[str]],
    last_invoked_at: str,
    expected: list[str],
) -> None:
    track("f", debounce="'9 seconds'", last_invoked_at=last_invoked_at)
    assert pinged() == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, []),
        ({"last_heartbeat_at": "now() - interval '9 seconds' + interval '1 microsecond'"}, []),
        ({"last_heartbeat_at": "now() - interval '9 seconds'"}, ["f"]),  # not later than now - debounce
        ({"last_heartbeat_at": "now() - interval '1 hour'"}, ["f"]),
        ({"stopped_at": "now()"}, ["f"]),
        ({"deprecated_at": "now()"}, ["f"]),
    ],
)
def test_a_function_with_a_live_worker_is_not_pinged(
    hosted: None,
    track: Callable[..., None],
    worker: Callable[..., None],
    pinged: Callable[[], list[str]],
    columns: dict[str, str],
    expected: list[str],
) -> None:
    track("f", debounce="'9 seconds'")
    worker("f", **columns)
    assert pinged() == expected


def test_one_live_worker_among_dead_ones_suffices(
    hosted: None,
    track: Callable[..., None],
    worker: Callable[..., None],
    pinged: Callable[[], list[str]],
) -> None:
    track("f")
    worker("f", stopped_at="now()")
    worker("f", last_heartbeat_at="now() - interval '1 hour'")
    worker("f")
    assert pinged() == []


def test_the_worker_of_another_function_does_not_count(
    hosted: None,
    track: Callable[..., None],
    worker: Callable[..., None],
    pinged: Callable[[], list[str]],
) -> None:
    track("f")
    worker("g")
    assert pinged() == ["f"]


def test_each_function_is_judged_by_its_own_debounce(
    hosted: None,
    track: Callable[..., None],
    worker: Callable[..., None],
    pinged: Callable[[], list[str]],
) -> None:
    for name, debounce in (("short", "'1 second'"), ("long", "'1 minute'")):
        track(name, debounce=debounce)
        worker(name, last_heartbeat_at="now() - interval '30 seconds'")
    assert pinged() == ["short"]


def test_a_function_without_workers_is_pinged_only_once_within_its_debounce(
    hosted: None, track: Callable[..., None], pinged: Callable[[], list[str]]
) -> None:
    track("f")
    assert pinged() == ["f"]
    assert pinged() == []


def test_pinged_functions_get_the_wall_clock_and_others_stay(
    hosted: None, track: Callable[..., None], rows: Callable[..., list[dict[str, Any]]]
) -> None:
    track("waiting", last_invoked_at="now() - interval '1 second'")
    track("wanted")
    before = {found["function_name"]: found for found in rows("select * from pgflow.worker_functions")}
    rows("select * from pgflow.ensure_workers()")
    after = {found["function_name"]: found for found in rows("select * from pgflow.worker_functions")}
    (times,) = rows("select now() as now, clock_timestamp() as clock")
    assert after["waiting"] == before["waiting"]
    assert times["now"] < after["wanted"].pop("last_invoked_at") < times["clock"]
    changed = {name for name in after["wanted"] if after["wanted"][name] != before["wanted"][name]}
    assert changed <= {"updated_at"}


def test_each_ping_is_a_request_of_its_own(
    hosted: None, track: Callable[..., None], rows: Callable[..., list[dict[str, Any]]]
) -> None:
    for name in ("a", "b", "c"):
        track(name)
    returned = rows("select * from pgflow.ensure_workers()")
    urls = {request["id"]: request["url"] for request in rows(REQUESTS)}
    assert len(urls) == 3
    assert min(urls) > 0
    assert {found["request_id"]: found["function_name"] for found in returned} == {
        request_id: url.rsplit("/", 1)[1] for request_id, url in urls.items()
    }


@pytest.mark.parametrize(
    ("secrets", "key"),
    [
        ({"pgflow_auth_secret": "own", "supabase_service_role_key": "service"}, "own"),
        ({"pgflow_auth_secret": "own"}, "own"),
        ({"pgflow_auth_secret": "", "supabase_service_role_key": "service"}, "service"),
    ],
)
def test_the_own_secret_wins_over_the_service_role_key(
    db: Connection,
    track: Callable[..., None],
    row: Callable[..., dict[str, Any]],
    secrets: dict[str, str],
    key: str,
) -> None:
    for name, secret in {"supabase_project_id": "abc", **secrets}.items():
        db.execute("select vault.create_secret(%s, %s)", (secret, name))
    track("f")
    row("select * from pgflow.ensure_workers()")
    assert row(REQUESTS)["headers"]["Authorization"] == f"Bearer {key}"


@pytest.mark.parametrize(
    "secrets",
    [
        {},
        {"supabase_project_id": "abc"},
        {"supabase_project_id": "abc", "supabase_service_role_key": ""},
        {"supabase_project_id": "abc", "pgflow_auth_secret": "", "supabase_service_role_key": ""},
        {"supabase_service_role_key": "service"},
        {"pgflow_auth_secret": "own"},
        {"supabase_service_role_key": "service", "supabase_project_id": ""},
    ],
)
def test_without_key_or_project_nothing_happens_and_nothing_is_raised(
    db: Connection,
    track: Callable[..., None],
    pinged: Callable[[], list[str]],
    state_of: Callable[[Connection], object],
    secrets: dict[str, str],
) -> None:
    for name, secret in secrets.items():
        db.execute("select vault.create_secret(%s, %s)", (secret, name))
    track("f")
    before = state_of(db)
    assert pinged() == []
    assert state_of(db) == before


def test_nothing_tracked_pings_nothing(hosted: None, pinged: Callable[[], list[str]]) -> None:
    assert pinged() == []
