"""The 1st, 81st, ... write or sync fails, once or from then on: what was told is committed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import apply_main, checks
from tests.support.processes import memory_folder, processes
from tests.support.tracing import Scripted, expected_after

SOME = pytest.param(80, marks=pytest.mark.slow)
EVERY = pytest.param(1, marks=pytest.mark.soak)
FAULTS = [("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), ("fdatasync", "EIO")]


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """Digests of a run that nothing disturbed."""
    with memory_folder() as data:
        apply_main.apply_all(data, lambda text: None)
        return checks.digests_of(data / "p00.sqlite")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose syncs cost nothing."""
    with memory_folder() as made:
        yield made


@pytest.mark.parametrize("call, error", FAULTS)
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("step", [SOME, EVERY])
def test_what_was_told_is_what_is_stored(
    folder: Path, reference: dict[str, str], call: str, error: str, lasting: bool, step: int
) -> None:
    step = step if call == "pwrite64" else max(step // 16, 1)
    struck = 0
    with processes(folder) as started:
        scripted = Scripted(started, folder)
        while True:
            data = folder / f"{struck}"
            data.mkdir()
            fault = f"error={error}:when={struck * step + 1}{'+' if lasting else ''}"
            code, told = scripted.run(data, call, fault)
            check_told(data, code, told, lasting)
            again: list[str] = []
            apply_main.apply_all(data, again.append)
            assert checks.digests_of(data / "p00.sqlite") == reference
            checks.check_all(data)
            shutil.rmtree(data)
            if not any(line.startswith("retry") for line in told):
                break
            struck += 1
    print(f"{call} failed with {error} at {struck} points")
    assert struck


def check_told(data: Path, code: int, told: list[str], lasting: bool) -> None:
    """A fault that passes is a Retry and then success; one that stays ends with code 10.

    What fails while it only tidies up, when the file is closed, is nobody's loss.
    """
    retried = any(line.startswith("retry") for line in told)
    assert code == (10 if lasting and retried else 0), told
    path = data / "p00.sqlite"
    if (
        not path.exists()
        or path.with_name("p00.sqlite-journal").exists()
        or not path.stat().st_size
    ):
        return
    least, most = expected_after(told)
    per_batch = apply_main.MESSAGES // apply_main.BATCHES
    found = checks.settled(data) if checks.rows_of(path, "SELECT 1 FROM sqlite_schema") else 0
    assert least * per_batch <= found <= most * per_batch
    assert found % per_batch == 0
