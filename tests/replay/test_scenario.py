"""Reading scenarios: every key, and clear errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgflow_migrate import resources
from pgflow_migrate.replay.scenario import (
    Check,
    ExpectedFinding,
    ScenarioError,
    SelectionError,
    Setup,
    load,
    load_all,
)

GOOD = 'description = "d"\nupgrade = "succeeds"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "0.16.0" / "example"
    made.mkdir(parents=True)
    (made / "populate.sql").write_text("select 1;")
    (made / "scenario.toml").write_text(GOOD)
    return made


def test_every_key_is_read(folder: Path) -> None:
    (folder / "scenario.toml").write_text(
        """
        description = "what it is"
        upgrade = "succeeds"
        changes = ["pgflow.step_tasks.status"]

        [setup]
        pgmq = "extension"
        extension_members = ["Orders"]
        stock_prune_md5s = ["abc"]
        secrets = ["s3cret"]
        audit = false

        [[finding]]
        severity = "warning"
        code = "queue-extension-membership"
        flow_slug = "Orders"
        step_slug = "load"
        queue_name = "orders"
        count = 3

        [[check]]
        name = "one row"
        run = "select 2"
        work_off = ["Orders"]
        query = "select 1, null"
        rows = [[1, "NULL"]]

        [[check]]
        name = "it fails"
        query = "select 1/0"
        sqlstate = "22012"
        """
    )
    scenario = load(folder)
    assert scenario.id == "0.16.0/example"
    assert scenario.description == "what it is"
    assert scenario.populate == "select 1;"
    assert scenario.changes == ("pgflow.step_tasks.status",)
    assert scenario.setup == Setup("extension", ("Orders",), ("abc",), ("s3cret",), audit=False)
    assert scenario.findings == (
        ExpectedFinding("warning", "queue-extension-membership", "Orders", "load", "orders", 3),
    )
    assert scenario.checks == (
        Check("one row", "select 1, null", "select 2", ("Orders",), ((1, "NULL"),)),
        Check("it fails", "select 1/0", sqlstate="22012"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("upgrade = ", "is not TOML"),
        ('upgrade = "succeeds"', "'description' is missing"),
        ('description = "d"', "'upgrade' is missing"),
        ('description = "d"\nupgrade = "maybe"', "'upgrade' is 'maybe'. Use succeeds or rejected."),
        ('description = 7\nupgrade = "succeeds"', "'description' is 7, not a text"),
        (GOOD + "colour = 1", "unknown key 'colour'"),
        (GOOD + 'changes = "all"', "'changes' is 'all', not a list of texts"),
        (GOOD + "changes = [1]", "'changes' is not a list of texts"),
        (GOOD + 'setup = "x"', "'setup' is 'x', not a table"),
        (GOOD + "[setup]\npgqm = 'sql'", "unknown key 'setup.pgqm'"),
        (GOOD + "[setup]\npgmq = 'maybe'", "'setup.pgmq' is 'maybe'. Use extension or sql."),
        (GOOD + "[setup]\naudit = 1", "'setup.audit' is 1, not true or false"),
        (GOOD + "finding = [1]", "'finding' is not a list of tables"),
        (GOOD + "[[finding]]\nseverity = 'info'", "'finding[1].code' is missing"),
        (GOOD + "[[finding]]\nseverity = 'fatal'\ncode = 'x'", "'finding[1].severity' is 'fatal'"),
        (GOOD + "[[finding]]\nseverity = 'info'\ncode = 'x'\ncount = true", "is True, not a whole number"),
        (GOOD + "[[check]]\nname = 'n'", "'check[1].query' is missing"),
        (GOOD + "[[check]]\nname = 'n'\nquery = 'q'\nrows = [1]", "'check[1].rows' is not a list of rows"),
        (GOOD + "[[check]]\nname = 'n'\nquery = 'q'\nrow = []", "unknown key 'check[1].row'"),
        (
            GOOD + "[[finding]]\nseverity = 'error'\ncode = 'x'",
            "'upgrade' is 'succeeds' with an error finding",
        ),
        (GOOD.replace("succeeds", "rejected"), "'upgrade' is 'rejected' with no error finding"),
        (
            GOOD.replace("succeeds", "rejected")
            + "changes = ['a.b.c']\n[[finding]]\nseverity = 'error'\ncode = 'x'",
            "a rejected upgrade changes nothing",
        ),
        (GOOD + "[setup]\nextension_members = ['x']", "'setup.extension_members' needs"),
    ],
)
def test_a_bad_scenario_is_refused_naming_file_and_key(folder: Path, text: str, message: str) -> None:
    (folder / "scenario.toml").write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load(folder)
    assert str(folder / "scenario.toml") in str(caught.value)
    assert message in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("name", ["scenario.toml", "populate.sql"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ScenarioError, match=f"{name} is missing"):
        load(folder)


def test_release_and_pattern_choose(folder: Path) -> None:
    root = folder.parents[1]
    other = root / "0.15.0" / "another"
    other.mkdir(parents=True)
    (other / "populate.sql").write_text("")
    (other / "scenario.toml").write_text(GOOD)
    (root / "README.md").write_text("not a release")
    assert [scenario.id for scenario in load_all(root)] == ["0.15.0/another", "0.16.0/example"]
    assert [scenario.id for scenario in load_all(root, ["0.16.0"])] == ["0.16.0/example"]
    assert [scenario.id for scenario in load_all(root, patterns=["an*"])] == ["0.15.0/another"]
    both = ["0.15.0/another", "0.16.0/example"]
    assert [scenario.id for scenario in load_all(root, ["0.16.0", "0.15.0"], ["exam*", "an*", "e*"])] == both


def test_an_unknown_release_or_name_is_an_error(folder: Path) -> None:
    root = folder.parents[1]
    with pytest.raises(SelectionError) as release:
        load_all(root, ["0.16.0", "9.9"])
    assert str(release.value) == "There are no scenarios for release 9.9. Known releases: 0.16.0."
    with pytest.raises(SelectionError) as name:
        load_all(root, patterns=["*", "nope"])
    assert str(name.value) == "No scenario is called 'nope'. Known scenarios: example."
    assert (release.value.exit_code, name.value.exit_code) == (2, 2)


def test_a_folder_without_any_scenario_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=f"There are no scenarios in {tmp_path}") as caught:
        load_all(tmp_path)
    assert caught.value.exit_code == 1


def test_the_scenarios_that_are_shipped_load() -> None:
    scenarios = load_all(resources.fixtures())
    assert {scenario.release for scenario in scenarios} == {"0.15.0", "0.15.1", "0.16.0", "queue_identity"}
    assert all(scenario.description.strip() for scenario in scenarios)
