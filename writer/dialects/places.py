"""Which members of a document's containers the parts of a change touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from writer.core.parts import Arr, Node, Obj, Part, key_of


def is_touched(parts: Sequence[Part], *names: str) -> bool:
    """Whether anything in these members of the document may differ."""
    for part in parts:
        name = part.pointer.split("/", 2)[1] if part.pointer else ""
        if name in names or (not part.pointer and part.shape == "value"):
            return True
    return False


def touched_members(parts: Sequence[Part], name: str) -> set[str] | None:
    """Keys in the object or array `name` whose value may differ; None: any."""
    found = set()
    place = f"/{name}"
    for part in parts:
        if not part.pointer or part.pointer == place:
            if part.shape == "value" or (part.pointer and part.value is None):
                return None
        elif part.pointer.startswith(f"{place}/"):
            token = part.pointer[len(place) + 1 :].partition("/")[0]
            found.add(key_of(token))
    return found


def base_of(root: Node, name: str) -> int:
    """The key of the first member of the array `name`: see `writer.core.parts`."""
    array = root.members.get(name) if isinstance(root, Obj) else None
    return array.base if isinstance(array, Arr) else 0


def text_in(record: Any, name: str) -> str | None:
    """A member of an object that is a text and not empty; None for anything else."""
    value = record.get(name) if isinstance(record, dict) else None
    return value if isinstance(value, str) and value else None


def whole_in(record: Any, name: str) -> int | None:
    """A member that is a whole number which every column holds."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**53 - 1:
        return None
    return value
