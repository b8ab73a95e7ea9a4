"""Three-way merge of JSON documents: base, what the sender made of it, what it is by now.

Member by member through objects, at any depth; an array or a scalar is one value. Whoever changed a
value alone wins; where both did, the sender does, for it comes later in the stream. A dialect may
settle places by rules of its own, and merge lists by the identity of their members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from producers.contract.jsontext import sorted_json

ABSENT: Any = object()
"""Stands for a member that is not there, which is not the same as null."""
UNSETTLED: Any = object()
"""What a rule returns for a place that it leaves to the general one."""

Place = tuple[str, ...]
"""The keys that lead to a value."""
Rule = Callable[[Place, Any, Any, Any], Any]
"""(place, base, theirs, latest), of which each may be ABSENT, to what it becomes, or UNSETTLED."""


def no_rule(place: Place, base: Any, theirs: Any, latest: Any) -> Any:
    """Leaves everything to the general rule."""
    return UNSETTLED


def merge(base: Any, theirs: Any, latest: Any, rule: Rule = no_rule) -> Any:
    """The merged document. `theirs` is the sender's, `latest` the stored one; none is changed.

    `rule` is asked first at every place, from the outside in.
    """
    merged = merge_at((), base, theirs, latest, rule)
    assert merged is not ABSENT
    return merged


def merge_at(place: Place, base: Any, theirs: Any, latest: Any, rule: Rule) -> Any:
    """What the value at a place becomes; ABSENT if it goes."""
    settled = rule(place, base, theirs, latest)
    if settled is not UNSETTLED:
        return settled
    if isinstance(theirs, dict) and isinstance(latest, dict):
        before = base if isinstance(base, dict) else {}
        keys = [*latest, *(key for key in theirs if key not in latest)]
        members = {
            key: merge_at(
                (*place, key),
                before.get(key, ABSENT),
                theirs.get(key, ABSENT),
                latest.get(key, ABSENT),
                rule,
            )
            for key in keys
        }
        return {key: member for key, member in members.items() if member is not ABSENT}
    return latest if same(base, theirs) else theirs


def merge_lists(
    base: Any,
    theirs: Any,
    latest: Any,
    identity: Callable[[Any], Hashable],
    one: Callable[[Any, Any, Any], Any] | None = None,
) -> Any:
    """Lists of which both sides added, took away and changed members, known by `identity`.

    The latest's order stays, what the sender added comes behind. `one` settles a member, ABSENT
    where a side lacks it; without it the general rule does. Members of equal identity are told
    apart by their turn.
    """
    if not isinstance(theirs, list) or not isinstance(latest, list):
        return latest if same(base, theirs) else theirs
    if same(base, theirs) or same(theirs, latest):
        return latest
    if same(base, latest):
        return theirs
    before = _by_identity(base if isinstance(base, list) else [], identity)
    sent, stored = _by_identity(theirs, identity), _by_identity(latest, identity)
    merged = []
    for key in [*stored, *(key for key in sent if key not in stored)]:
        was, new, now = (side.get(key, ABSENT) for side in (before, sent, stored))
        member = merge_at((), was, new, now, no_rule) if one is None else one(was, new, now)
        if member is not ABSENT:
            merged.append(member)
    return merged


def _by_identity(
    members: Sequence[Any], identity: Callable[[Any], Hashable]
) -> dict[tuple[Hashable, int], Any]:
    turns: Counter[Hashable] = Counter()
    found = {}
    for member in members:
        name = identity(member)
        found[name, turns[name]] = member
        turns[name] += 1
    return found


def same(one: Any, other: Any) -> bool:
    """Whether two values are one, ABSENT included."""
    if one is ABSENT or other is ABSENT:
        return one is other
    return sorted_json(one) == sorted_json(other)
