"""The first start dies at each write, until the schema is there: it is made whole or not at all."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import apply_main, checks
from tests.support.processes import memory_folder, processes
from tests.support.tracing import Scripted
from writer.store.partition import stored_partitions


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose syncs cost nothing."""
    with memory_folder() as made:
        yield made


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_a_half_made_file_is_made_anew(folder: Path, step: int) -> None:
    deaths = 0
    with processes(folder) as started:
        scripted = Scripted(started, folder)
        while True:
            data = folder / f"{deaths}"
            data.mkdir()
            fault = f"signal=SIGKILL:when={deaths * step + 1}"
            code, told = scripted.run(data, "pwrite64", fault)
            if told:
                break
            assert code == -signal.SIGKILL
            deaths += 1
            # What a daemon asks first: it must neither fail nor believe a half-made file.
            assert stored_partitions(data) in (None, 1)
            apply_main.apply_all(data, lambda text: None)
            checks.check_data(data)
            assert checks.settled(data) == apply_main.MESSAGES
    assert deaths > 20 // step
