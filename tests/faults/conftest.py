"""The scene that most faults strike; a file whose faults need another has its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scene import Scene, scene


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Scene]:
    """A running daemon, whose runs are all open."""
    with scene(tmp_path) as made:
        made.start()
        made.opens()
        yield made
