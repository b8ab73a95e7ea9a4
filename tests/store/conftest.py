"""A data folder with writers, for the tests of what is read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.filling import Filling
from writer.store.reader import StateReader


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    """Writers of a folder with one partition."""
    made = Filling(tmp_path)
    yield made
    made.close()


@pytest.fixture
def reader(filling: Filling) -> Iterator[StateReader]:
    """A reader of the same folder, open while it is written."""
    with StateReader(filling.data) as opened:
        yield opened
