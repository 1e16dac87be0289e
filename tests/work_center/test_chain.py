"""The chain as it is written down, as Alembic reads it, and as the SQL files are."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from pgflow_migrate import resources
from pgflow_migrate.work_center import chain
from pgflow_migrate.work_center.revision import statements

SQL_FILES = sorted((resources.root() / "alembic" / "sql").glob("wc_*/**/*.sql"))


def _name(path: Path) -> str:
    return path.relative_to(resources.root() / "alembic" / "sql").as_posix()


def test_the_chain_is_that_of_the_revision_files() -> None:
    script = ScriptDirectory.from_config(Config(str(resources.alembic_ini()), ini_section="work_center"))
    revisions = [revision.revision for revision in script.walk_revisions()][::-1]
    assert revisions == [step.revision for step in chain.STEPS]
    for step in chain.STEPS:
        module = script.get_revision(step.revision).module
        assert Path(str(module.__file__)).stem == step.revision
        assert (module.__doc__ or "").startswith(f"{step.name}: ")


def test_the_steps_go_from_23_to_35_and_the_first_six_have_an_alias() -> None:
    assert [step.number for step in chain.STEPS] == list(range(23, 36))
    assert [step.alias for step in chain.STEPS[:6]] == [f"{step.name}-v1" for step in chain.STEPS[:6]]
    assert [step.alias for step in chain.STEPS[6:]] == [None] * 7


def test_a_checksum_is_of_the_name_alone() -> None:
    text = b"work-center-migration:23-conversation-stream:v1"
    assert chain.checksum("23-conversation-stream") == hashlib.sha256(text).hexdigest()
    assert chain.CHECKSUMS["23-conversation-stream"] == (
        "058a124c1b06c0907ec79862462ded7187ea75b13104279bd643ddcc1e7400ae"
    )
    assert len(set(chain.CHECKSUMS.values())) == 19


@pytest.mark.parametrize("text", ["28", "28-run-identity", "28-run-identity-v1", "wc_28_run_identity"])
def test_a_step_is_found_by_each_of_its_names(text: str) -> None:
    assert chain.find(text) is chain.STEPS[5]


@pytest.mark.parametrize("text", ["", "22", "36", "run-identity", "028"])
def test_what_names_no_step_is_not_found(text: str) -> None:
    assert chain.find(text) is None


def test_there_are_sql_files() -> None:
    assert len(SQL_FILES) > 35


@pytest.mark.parametrize("path", SQL_FILES, ids=_name)
def test_a_sql_file_says_what_it_is_and_leaves_the_transaction_alone(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(r"-- \S+", text)
    found = list(statements(text))
    assert found
    words = [statement.split(None, 1)[0].lower() for statement in found]
    assert not {"begin", "commit", "rollback", "savepoint", "release", "end", "pragma"} & set(words)


@pytest.mark.parametrize("path", SQL_FILES, ids=_name)
def test_every_sql_file_is_used_by_its_revision(path: Path) -> None:
    revision = _name(path).split("/")[0]
    script = resources.root() / "alembic" / "versions" / "work_center" / f"{revision}.py"
    source = script.read_text(encoding="utf-8")
    if "engine_turns." in source:  # steps 32 and 34 share it
        source = (Path(chain.__file__).parent / "engine_turns.py").read_text(encoding="utf-8")
    assert f'"{path.stem}"' in source
