"""Lines that somebody may just be writing."""

from __future__ import annotations


def whole_lines(text: bytes) -> list[bytes]:
    """The lines that were written to their end."""
    whole, _, _ = text.rpartition(b"\n")
    return whole.splitlines()
