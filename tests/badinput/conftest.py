"""Bad input runs against the pure core, a real file, and a real daemon, as the cases do."""

from __future__ import annotations

from tests.support.world import stored, world

__all__ = ["stored", "world"]
