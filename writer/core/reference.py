"""A trace event refers to what the state holds already, so that nothing is stored twice.

A host's event often repeats what its snapshot has just added to the state, such as a step's output.
Where a member of the payload equals a part that the same revision wrote, the event keeps null in
its place and a reference beside it: a JSON path in the payload and the part's pointer. Readers put
the part back; a part of a revision is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from producers.contract.jsontext import sorted_json
from writer.core.parts import Part

REFERENCE_BYTES_MIN = 64
"""A shorter value costs less than a reference to it."""

Reference = tuple[str, str]
"""A path such as `$."output"."reply"`, and the pointer of the part that belongs there."""


def refer(
    payload: Mapping[str, Any], parts: Iterable[Part]
) -> tuple[Mapping[str, Any], list[Reference]]:
    """The payload with null where the state has the value, and the references; unchanged if
    none.
    """
    pointers: dict[str, str] = {}
    for part in parts:
        if part.shape == "value" and part.value and len(part.value) >= REFERENCE_BYTES_MIN:
            pointers.setdefault(part.value, part.pointer)
    if not pointers:
        return payload, []
    references: list[Reference] = []
    return _refer(payload, "$", pointers, references), references


def _refer(
    members: Mapping[str, Any], path: str, pointers: Mapping[str, str], found: list[Reference]
) -> dict[str, Any]:
    left: dict[str, Any] = {}
    for key, member in members.items():
        left[key] = member
        # A key that a path would have to quote is left alone, with all beneath it.
        if not isinstance(member, (dict, list, str)) or not key.isprintable() or not _plain(key):
            continue
        pointer = pointers.get(sorted_json(member).decode())
        if pointer is not None:
            found.append((f'{path}."{key}"', pointer))
            left[key] = None
        elif isinstance(member, dict):
            left[key] = _refer(member, f'{path}."{key}"', pointers, found)
    return left


def _plain(key: str) -> bool:
    return bool(key) and key.isascii() and '"' not in key and "\\" not in key
