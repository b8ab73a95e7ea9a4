"""The worlds, for tests that must hold in all of them."""

from __future__ import annotations

from tests.support.world import stored, world

__all__ = ["stored", "world"]
