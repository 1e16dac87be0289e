"""Each revision makes the database of its release: tables, types, functions, cron jobs, grants."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pgflow_migrate import resources
from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.chain import REVISIONS, release_of
from pgflow_migrate.releases.comparison import compare

RELEASES = {revision: release_of(revision) for revision in REVISIONS}


@pytest.mark.parametrize(("revision", "release"), RELEASES.items())
def test_a_revision_makes_the_database_of_its_release(
    revision: str,
    release: str,
    database_at: Callable[[str], str],
    connect: Callable[[str], psycopg.Connection[dict[str, object]]],
) -> None:
    actual = catalogue.read(connect(database_at(revision)))
    assert actual.sees_cron
    assert "\n".join(map(str, compare(catalogue.snapshot(release), actual))) == ""
    assert actual.objects == catalogue.snapshot(release).objects


@pytest.mark.parametrize("release", RELEASES.values())
def test_a_snapshot_is_written_as_the_command_writes_it(release: str) -> None:
    path = resources.root() / "src/pgflow_migrate/releases/snapshots" / f"{release}.json"
    assert path.read_text(encoding="utf-8") == catalogue.snapshot(release).to_json()


def test_a_snapshot_holds_every_object_of_its_release() -> None:
    kinds = [catalogue.kind_of(name) for name in catalogue.snapshot("0.16.0").objects]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "schema": 1,
        "table": 8,
        "column": 78,
        "constraint": 66,
        "index": 19,
        "type": 1,
        "function": 31,
        "cron job": 3,
    }


def test_0_15_1_differs_from_0_15_0_in_one_constraint() -> None:
    differences = compare(catalogue.snapshot("0.15.0"), catalogue.snapshot("0.15.1"))
    assert [str(difference) for difference in differences] == [
        "constraint step_tasks.valid_status: definition is "
        "CHECK ((status = ANY (ARRAY['queued'::text, 'started'::text, 'completed'::text, 'failed'::text, "
        "'skipped'::text, 'cancelled'::text]))), not "
        "CHECK ((status = ANY (ARRAY['queued'::text, 'started'::text, 'completed'::text, 'failed'::text])))"
    ]


def test_0_16_0_differs_from_0_15_1_in_one_signature() -> None:
    differences = compare(catalogue.snapshot("0.15.1"), catalogue.snapshot("0.16.0"))
    assert [(str(difference), difference.matters) for difference in differences] == [
        ("function ensure_flow_compiled(text, jsonb) is not part of the release", True),
        ("function ensure_flow_compiled(text, jsonb, boolean) is missing", True),
    ]


def test_releases_are_listed_oldest_first() -> None:
    assert catalogue.releases() == ("0.15.0", "0.15.1", "0.16.0", "queue_identity", "dirty_runs")
    snapshots = (resources.root() / "src/pgflow_migrate/releases/snapshots").glob("*.json")
    assert {path.stem for path in snapshots} == set(catalogue.releases())
