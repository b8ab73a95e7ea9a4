"""Three-way merge of JSON documents: base, what the sender made of it, what it is by now.

Member by member through objects, at any depth; an array or a scalar is one value. Whoever changed a
value alone wins; where both did, the sender does, for it comes later in the stream.
"""

from __future__ import annotations

from typing import Any

from producers.contract.jsontext import sorted_json

ABSENT = object()
"""Stands for a member that is not there, which is not the same as null."""


def merge(base: Any, theirs: Any, latest: Any) -> Any:
    """The merged document. `theirs` is the sender's, `latest` the stored one; none is changed."""
    merged = _merge(base, theirs, latest)
    assert merged is not ABSENT
    return merged


def _merge(base: Any, theirs: Any, latest: Any) -> Any:
    if isinstance(theirs, dict) and isinstance(latest, dict):
        before = base if isinstance(base, dict) else {}
        keys = [*latest, *(key for key in theirs if key not in latest)]
        members = {
            key: _merge(before.get(key, ABSENT), theirs.get(key, ABSENT), latest.get(key, ABSENT))
            for key in keys
        }
        return {key: member for key, member in members.items() if member is not ABSENT}
    return latest if _same(base, theirs) else theirs


def _same(one: Any, other: Any) -> bool:
    if one is ABSENT or other is ABSENT:
        return one is other
    return sorted_json(one) == sorted_json(other)
