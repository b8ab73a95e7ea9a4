"""Every case runs against the pure core, a real file, and a real daemon."""

from __future__ import annotations

from tests.support.world import stored, world

__all__ = ["stored", "world"]
