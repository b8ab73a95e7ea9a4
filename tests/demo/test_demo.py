"""`demo`: it proves what it shows, and notices when something is not as it was said."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.console import Ran, statewriter
from writer.demo.agent import TASKS, Told, commands_of
from writer.demo.proof import differences
from writer.errors import Usage
from writer.store.reader import StateReader

pytestmark = pytest.mark.server

AGENTS = 2
STEPS = 3


@pytest.fixture(scope="module")
def shown() -> Iterator[tuple[Path, Ran]]:
    """A small demo in JSON, and its folder."""
    with tempfile.TemporaryDirectory(prefix="sw-demo-") as folder:
        data = Path(folder, "data")
        arguments = ("demo", "--agents", str(AGENTS), "--steps", str(STEPS), "--json")
        yield data, statewriter(*arguments, data=data)


def test_it_adds_up(shown: tuple[Path, Ran]) -> None:
    data, ran = shown
    found = ran.ok().json()
    assert found["commands"] == AGENTS * commands_of(STEPS)
    assert found["applied"] + found["rejected"] + found["duplicates"] == found["commands"]
    assert found["rejected"] == found["duplicates"] == found["runs"] == AGENTS * len(TASKS)
    assert found["seconds"] > 0
    assert found["wrong"] == []
    with StateReader(data) as reader:
        assert reader.digest(runs=False)["digest"] == found["digest"]


def test_what_it_leaves_can_be_looked_at(shown: tuple[Path, Ran]) -> None:
    data, _ = shown
    run = statewriter("show", "demo-1-a01-build", "--json", data=data).ok().json()
    assert (run["status"], run["parent_run"]) == ("completed", "demo-1-a01-plan")
    assert len(run["state"]["steps"]) == STEPS


def test_a_folder_with_data_is_refused(shown: tuple[Path, Ran]) -> None:
    data, _ = shown
    ran = statewriter("demo", data=data)
    assert ran.code == Usage.exit_code
    assert "holds data already" in ran.err


def test_for_people_it_says_what_to_try_next(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="sw-demo-") as folder:
        ran = statewriter("demo", "--agents", "1", "--steps", "1", data=Path(folder, "d")).ok()
    assert "proof" in ran.out
    assert f"statewriter show demo-1-a00-plan --data {folder}/d" in ran.out


def test_a_difference_is_noticed(shown: tuple[Path, Ran]) -> None:
    data, _ = shown
    with StateReader(data) as reader:
        run = "demo-1-a00-plan"
        told = Told(run, entries=[{"id": "never sent"}], ends=Counter(applied=1))
        found = list(differences(reader, told))
        assert f"{run}: entries differ" in found
        assert f"{run}: outcomes differ" in found
        assert f"{run}: states differ" in found
        assert list(differences(reader, Told("nowhere"))) == ["nowhere: it is not there"]
