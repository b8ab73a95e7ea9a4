"""The writer dies at its 1st, 2nd, 3rd ... system call that writes: a batch is whole or absent."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import apply_main, checks
from tests.support.processes import memory_folder, processes
from tests.support.tracing import Scripted, expected_after

EVERY_FIFTH = pytest.param(5, marks=pytest.mark.slow)
EVERY = pytest.param(1, marks=pytest.mark.soak)


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


@pytest.fixture
def scripted(folder: Path) -> Iterator[Scripted]:
    with processes(folder) as started:
        yield Scripted(started, folder)


@pytest.mark.parametrize("step", [EVERY_FIFTH, EVERY])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "write", "fsync", "rename"])
def test_a_batch_is_whole_or_absent(
    scripted: Scripted, folder: Path, reference: dict[str, str], call: str, step: int
) -> None:
    points = 0
    # The first few are each a place of their own; after that they repeat themselves.
    step = step if call == "pwrite64" else 1
    while True:
        data = folder / f"{call}-{points}"
        data.mkdir()
        fault = f"signal=SIGKILL:when={points * step + 1}"
        code, told = scripted.run(data, call, fault)
        check_stored(data, told)
        tell: list[str] = []
        apply_main.apply_all(data, tell.append)
        assert checks.digests_of(data / "p00.sqlite") == reference
        checks.check_data(data)
        if points % 5 == 0:
            checks.check_replay(data)
        shutil.rmtree(data)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        points += 1
    print(f"died at {points} points of {call}")
    assert points


def check_stored(data: Path, told: list[str]) -> None:
    """What is in the file is whole batches: those that were told of, and the next one at most."""
    path = data / "p00.sqlite"
    if _is_half_made(path):
        assert not told
        return
    checks.check_file(path)
    per_batch = apply_main.MESSAGES // apply_main.BATCHES
    found = checks.settled(data)
    least, most = expected_after(told)
    assert found % per_batch == 0
    assert least <= found // per_batch <= most


def _is_half_made(path: Path) -> bool:
    """Whether it died before the schema was there; a journal may have to be rolled back first."""
    if path.with_name(f"{path.name}-journal").exists() or not path.exists():
        return True
    return not checks.rows_of(path, "SELECT 1 FROM sqlite_schema LIMIT 1")
