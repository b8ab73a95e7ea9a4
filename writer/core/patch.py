"""Edits of a state, in place of a whole new one: what they cost follows what they touch.

The document and its tree of parts are changed side by side. Neither is ever changed in place:
containers along an edit's path are copied, everything else is shared with what was before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias

from producers.contract.commands import Patch, SetMember, Splice
from writer.core.dialect import Dialect, Document
from writer.core.parts import Arr, Leaf, Node, Obj, follow

Steps: TypeAlias = Sequence[str | int]
Pair: TypeAlias = tuple[Node | None, Any]
"""The tree of a value, None where it has none of its own, and the value."""
Act: TypeAlias = Callable[[Node | None, Any], Pair]


class Mismatch(ValueError):
    """The state has nothing of the kind at an edit's place; the text names the place."""


def touched_by(patch: Patch) -> set[str]:
    """The members of the document that a patch reaches into."""
    return {str(path[0]) for path in _paths(patch)}


def _paths(patch: Patch) -> Iterator[Steps]:
    yield from patch.remove
    for member in patch.set:
        yield member.path
    for splice in patch.splice:
        yield splice.path


def patched(
    root: Node, document: Document, patch: Patch, dialect: Dialect
) -> tuple[Node, Document]:
    """The tree and the document after a patch; edits of what the writer stamps are left out.

    Raises Mismatch where an edit does not fit.
    """
    pair: Pair = (root, document)
    for path in patch.remove:
        pair = _edit(pair, path, path[:-1], _removal(path[-1]), dialect)
    for member in patch.set:
        pair = _edit(pair, member.path, member.path[:-1], _setting(member), dialect)
    for splice in patch.splice:
        pair = _edit(pair, splice.path, splice.path, _splicing(splice), dialect)
    tree, value = pair
    assert tree is not None
    return tree, value


def entered(
    before: Node, tree: Node, sent: Document, kept: Document, touched: Collection[str]
) -> Node:
    """The patched tree, with members that the dialect keeps in another form than they came in."""
    changed = {name for name in touched if sent.get(name) is not kept.get(name) or name not in kept}
    if not changed:
        return tree
    if not (isinstance(before, Obj) and isinstance(tree, Obj)):
        return follow(before, kept)
    members = {name: member for name, member in tree.members.items() if name not in changed}
    for name in changed & kept.keys():
        members[name] = follow(before.members.get(name), kept[name])
    return Obj(members)


def _edit(pair: Pair, path: Steps, steps: Steps, act: Act, dialect: Dialect) -> Pair:
    if path[0] in dialect.stamped:
        return pair
    try:
        # What is kept in another form has no places inside that a sender could know of.
        if path[0] not in dialect.opaque or not steps:
            return _descend(*pair, steps, act)
    except (KeyError, IndexError, TypeError):
        pass
    raise Mismatch(".".join(str(step)[:60] for step in path)[:200])


def _descend(node: Node | None, value: Any, steps: Steps, act: Act) -> Pair:
    if isinstance(node, Leaf):
        _, after = _descend(None, value, steps, act)
        return follow(node, after), after
    if not steps:
        return act(node, value)
    step = steps[0]
    below, member = _descend(_node_at(node, step), _value_at(value, step), steps[1:], act)
    return _with_member(node, value, step, below, member)


def _value_at(value: Any, step: str | int) -> Any:
    if isinstance(value, dict) and isinstance(step, str):
        return value[step]
    if isinstance(value, list) and isinstance(step, int):
        return value[step]
    raise TypeError


def _node_at(node: Node | None, step: str | int) -> Node | None:
    if isinstance(node, Obj):
        assert isinstance(step, str)
        return node.members[step]
    if isinstance(node, Arr):
        assert isinstance(step, int)
        return node.items[step]
    return None


def _with_member(
    node: Node | None, value: Any, step: str | int, below: Node | None, member: Any
) -> Pair:
    after = value.copy()
    after[step] = member
    if isinstance(node, Obj):
        assert isinstance(step, str)
        assert below is not None
        return Obj({**node.members, step: below}), after
    if isinstance(node, Arr):
        assert isinstance(step, int)
        assert below is not None
        items = node.items.copy()
        items[step] = below
        return Arr(node.base, items), after
    return None, after


def _setting(edit: SetMember) -> Act:
    step = edit.path[-1]

    def act(node: Node | None, value: Any) -> Pair:
        before = None
        if isinstance(step, int) or not isinstance(value, dict) or step in value:
            # A member that may be new is an object's.
            _value_at(value, step)
            before = _node_at(node, step)
        below = None if node is None else follow(before, edit.value)
        return _with_member(node, value, step, below, edit.value)

    return act


def _removal(step: str | int) -> Act:
    def act(node: Node | None, value: Any) -> Pair:
        if not isinstance(value, dict):
            raise TypeError
        if step not in value:
            return node, value
        after = {key: member for key, member in value.items() if key != step}
        if not isinstance(node, Obj):
            return None, after
        return Obj({key: member for key, member in node.members.items() if key != step}), after

    return act


def _splicing(edit: Splice) -> Act:
    def act(node: Node | None, value: Any) -> Pair:
        first, last = edit.start, edit.start + edit.delete
        if not isinstance(value, list) or len(value) != edit.length or last > edit.length:
            raise TypeError
        after = [*value[:first], *edit.items, *value[last:]]
        if not isinstance(node, Arr):
            return None, after
        return _spliced(node, first, last, edit.items, after), after

    return act


def _spliced(array: Arr, first: int, last: int, items: list[Any], after: list[Any]) -> Arr:
    """The array's tree after a splice. At the front it moves the base: the rest keeps its keys."""
    known = array.items
    if first == 0 and last < len(known):
        fresh = [follow(None, item) for item in items]
        return Arr(array.base + last - len(items), [*fresh, *known[last:]])
    # Members behind keep their keys only if there are as many as before.
    end = last if last - first == len(items) else len(after)
    changed = [
        follow(known[place] if place < len(known) else None, after[place])
        for place in range(first, first + len(items) if end == last else end)
    ]
    return Arr(array.base, [*known[:first], *changed, *(known[last:] if end == last else ())])
