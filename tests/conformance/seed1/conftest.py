"""A case runs against a real file and a real daemon; `engine` drives one run in either."""

from __future__ import annotations

import pytest

from tests.support.engine import Engine
from tests.support.world import StoredWorld, stored, world


@pytest.fixture
def engine(stored: StoredWorld) -> Engine:
    """An engine whose run does not exist yet."""
    return Engine(stored)


__all__ = ["engine", "stored", "world"]
