"""How often a writing process looks for cycles of objects that nothing refers to."""

from __future__ import annotations

import gc

YOUNG_MAX = 50_000
"""Objects until the next look: a few batches' worth. Python's own 700 is a look every few messages,
and took a fifth of the time of a writer, which makes no cycles but in errors.
"""


def look_rarely() -> None:
    """To be called once, when all is imported: what is there by now is never looked at again."""
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 100)
