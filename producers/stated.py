"""What a run's state was when it was last sent, to tell what has changed since.

A tree: containers whose JSON is large are split into their members, others are kept as their text,
scalars as they are. A tree is never changed. The next one shares with it what is equal, so many of
them cost what changed between them.

A text that nobody has judged (an `orjson.Fragment`) passes where it says what was judged before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from producers.contract.limits import PATH_STEPS_MAX
from producers.validation import DUMP_OPTIONS, is_exact

SPLIT_BYTES: Final = 1_024

_dumps = partial(orjson.dumps, option=DUMP_OPTIONS | orjson.OPT_SORT_KEYS)
_ABSENT: Final = object()
_PLAIN = frozenset((str, int, bool, NoneType))
_NATIVE = _PLAIN | {float}
_TEXT = frozenset((str,))
_LISTS = frozenset((list, tuple))

Path: TypeAlias = list[str | int]


@dataclass(slots=True, eq=False)
class Leaf:
    """A container that is not split, or what only its JSON says (a datetime, an enum)."""

    text: bytes


@dataclass(slots=True, eq=False)
class Obj:
    """A split object. `room` is what it takes with something in it."""

    members: dict[str, Node]
    room: int


@dataclass(slots=True, eq=False)
class Arr:
    """A split array, as Obj."""

    items: list[Node]
    room: int


Node: TypeAlias = str | int | float | bool | Leaf | Obj | Arr | None


class Unfit(ValueError):
    """The state is nothing that could travel as a difference; perhaps not at all."""


class Step(NamedTuple):
    """A state after another one: its tree, and a patch's edits as members of a JSON object.

    The edits are empty if nothing has changed.
    """

    root: Obj
    edits: bytes


def tree_of(document: dict[str, Any]) -> Obj:
    """The tree of a document as `orjson.loads` returns it."""
    return _object({key: _grown(item, 1) for key, item in document.items()})


def text_of(node: Node) -> bytes:
    """The JSON of a tree, keys sorted within what is not split."""
    return _dumps(_outline(node))


def size_of(node: Node) -> int:
    """Bytes of `text_of`."""
    match node:
        case Leaf():
            return len(node.text)
        case Obj():
            return node.room + (not node.members)
        case Arr():
            return node.room + (not node.items)
    return len(_dumps(node))


def difference(before: Obj, state: Any) -> Step:
    """What leads from one state to another. It may be changed by others meanwhile.

    Raises Unfit for all that a whole snapshot would refuse, but for its size.
    """
    if not isinstance(state, dict):
        raise Unfit
    edits = _Edits([], [], [])
    root = _follow_object(before, state, [], edits)
    return Step(root, edits.text())


@dataclass(slots=True)
class _Edits:
    remove: list[Path]
    set: list[dict[str, Any]]
    splice: list[dict[str, Any]]

    def put(self, path: Path, node: Node) -> None:
        self.set.append({"path": path, "value": _outline(node)})

    def replace(self, path: Path, length: int, start: int, delete: int, nodes: list[Node]) -> None:
        """Splices of one array come in order, those of arrays within it before."""
        items = [_outline(node) for node in nodes]
        edit = {"path": path, "length": length, "start": start, "delete": delete, "items": items}
        self.splice.append(edit)

    def text(self) -> bytes:
        edits = {"remove": self.remove, "set": self.set, "splice": self.splice}
        try:
            return _dumps({name: each for name, each in edits.items() if each})[1:-1]
        except TypeError:
            # A new key that is no Unicode.
            raise Unfit from None


def _outline(node: Node) -> Any:
    match node:
        case Leaf():
            return orjson.Fragment(node.text)
        case Obj():
            return {key: _outline(member) for key, member in node.members.items()}
        case Arr():
            return [_outline(item) for item in node.items]
    return node


# --- growing ----------------------------------------------------------------------------------


def _object(members: dict[str, Node]) -> Obj:
    return Obj(members, 1 + sum(_key_room(key) + size_of(node) for key, node in members.items()))


def _key_room(key: str) -> int:
    """Of a key with its colon and comma."""
    try:
        return len(_dumps(key)) + 2
    except TypeError:
        raise Unfit from None


def _fresh(value: Any, depth: int) -> Node:
    """The tree of a value that nobody has judged, so many steps below the document."""
    try:
        text = _dumps(value)
    except TypeError:
        raise Unfit from None
    if not is_exact([value], depth):
        raise Unfit
    if type(value) in _NATIVE:
        node: Node = value
        return node
    if len(text) <= SPLIT_BYTES:
        return Leaf(text)
    # From the text, since the value may be changed meanwhile.
    return _grown(orjson.loads(text), depth)


def _grown(value: Any, depth: int) -> Node:
    if not isinstance(value, dict | list):
        node: Node = value
        return node
    is_whole = depth >= PATH_STEPS_MAX
    if is_whole or _left(value, SPLIT_BYTES) >= 0:
        text = _dumps(value)
        if is_whole or len(text) <= SPLIT_BYTES:
            return Leaf(text)
    if isinstance(value, dict):
        return _object({key: _grown(item, depth + 1) for key, item in value.items()})
    items = [_grown(item, depth + 1) for item in value]
    return Arr(items, 1 + _room_of(items))


def _left(value: Any, room: int) -> int:
    """What is left at best of so many bytes after a value; once negative, it looks no further."""
    if isinstance(value, str):
        return room - len(value) - 2
    if not isinstance(value, dict | list):
        return room - 1
    room -= len(value) + 1
    for item in chain(value, value.values()) if isinstance(value, dict) else value:
        if room < 0:
            break
        room = _left(item, room)
    return room


# --- comparing --------------------------------------------------------------------------------


def _same(node: Node | object, value: Any, depth: int) -> bool:
    """Whether a tree is that of a value, so many steps below the document."""
    kind = type(value)
    if kind in _PLAIN:
        return type(node) is kind and bool(node == value)
    if kind is float:
        # A whole snapshot would tell 0.0 from -0.0.
        return type(node) is float and node == value and (value != 0 or str(node) == str(value))
    if isinstance(node, Leaf):
        return _says(node.text, value, depth)
    if isinstance(node, Obj) and isinstance(value, dict):
        known, members = node.members, _members(value)
        return len(members) == len(known) and all(
            _same(known.get(key, _ABSENT), item, depth + 1) for key, item in members.items()
        )
    if isinstance(node, Arr) and kind in _LISTS:
        items = [*value]
        return len(items) == len(node.items) and all(
            _same(known, item, depth + 1) for known, item in zip(node.items, items, strict=True)
        )
    return False


def _says(text: bytes, value: Any, depth: int) -> bool:
    try:
        if _dumps(value) != text:
            return False
    except TypeError:
        raise Unfit from None
    # The text of NaN is null, too.
    if b"null" in text and not is_exact([value], depth):
        raise Unfit
    return True


def _members(value: dict[Any, Any]) -> dict[str, Any]:
    """The members of an object as they are now, whatever its class makes of reading them."""
    now = dict.copy(value)
    if not _TEXT.issuperset(map(type, now)):
        raise Unfit
    return now


def _follow(before: Node, value: Any, path: Path, edits: _Edits) -> Node:
    """The tree of a value that comes in the place of another's; that very one where equal."""
    if isinstance(before, Obj) and isinstance(value, dict):
        return _follow_object(before, value, path, edits)
    if isinstance(before, Arr) and type(value) in _LISTS:
        return _follow_array(before, [*value], path, edits)
    if _same(before, value, len(path)):
        return before
    node = _fresh(value, len(path))
    edits.put(path, node)
    return node


def _follow_object(before: Obj, value: dict[Any, Any], path: Path, edits: _Edits) -> Obj:
    known, now = before.members, _members(value)
    changed: dict[str, Node] = {}
    room, added = before.room, 0
    for key, item in now.items():
        member = known.get(key, _ABSENT)
        if type(item) in _PLAIN and type(member) is type(item) and member == item:
            continue
        if member is _ABSENT:
            node = _fresh(item, len(path) + 1)
            edits.put([*path, key], node)
            room += _key_room(key) + size_of(node)
            added += 1
        else:
            node = _follow(member, item, [*path, key], edits)  # type: ignore[arg-type]
            if node is member:
                continue
            room += size_of(node) - size_of(member)  # type: ignore[arg-type]
        changed[key] = node
    gone = sorted(known.keys() - now.keys()) if len(known) + added > len(now) else ()
    if not changed and not gone:
        return before
    members = known | changed
    for key in gone:
        edits.remove.append([*path, key])
        room -= _key_room(key) + size_of(members.pop(key))
    return Obj(members, room)


def _follow_array(before: Arr, now: list[Any], path: Path, edits: _Edits) -> Arr:
    """Places of edits are those before any splice of this array."""
    items, depth = before.items, len(path) + 1
    skipped, first, last = _alignment(items, now, depth)
    if first == len(items) == len(now):
        return before
    paired = min(len(items) - skipped, len(now)) - last
    runs: list[tuple[int, int, list[Node]]] = []
    nodes = items[skipped : skipped + first]
    for place in range(skipped + first, skipped + paired):
        known, value = items[place], now[place - skipped]
        is_split = isinstance(known, Obj | Arr) and isinstance(value, dict | list | tuple)
        if is_split or _same(known, value, depth):
            nodes.append(_follow(known, value, [*path, place], edits))
        else:
            nodes.append(_fresh(value, depth))
            _replace(runs, place, 1, [nodes[-1]])
    rest = [_fresh(value, depth) for value in now[paired : len(now) - last]]
    end = len(items) - last
    if rest or end > skipped + paired:
        _replace(runs, skipped + paired, end - skipped - paired, rest)
    for start, delete, fresh in runs:
        edits.replace(path, len(items), start, delete, fresh)
    if skipped:
        edits.replace(path, len(now) + skipped, 0, skipped, [])
    nodes += rest
    room = before.room - _room_of(items[:skipped]) - _room_of(items[skipped + first : end])
    return Arr([*nodes, *items[end:]], room + _room_of(nodes[first:]))


def _room_of(items: list[Node]) -> int:
    return sum(size_of(item) + 1 for item in items)


def _replace(
    runs: list[tuple[int, int, list[Node]]], start: int, delete: int, nodes: list[Node]
) -> None:
    if runs and sum(runs[-1][:2]) == start:
        start, before, known = runs.pop()
        delete, nodes = before + delete, [*known, *nodes]
    runs.append((start, delete, nodes))


def _alignment(items: list[Node], now: list[Any], depth: int) -> tuple[int, int, int]:
    """How many members went at the front, then are equal, and are equal at the end."""
    shorter = min(len(items), len(now))
    first = _common(items, now, shorter, depth)
    last = _common(items[::-1], now[::-1], shorter - first, depth)
    if first == last == 0 < shorter:
        # The latest of many, which lose one at the front when they get one at the end.
        for skipped in range(1, len(items)):
            if _same(items[skipped], now[0], depth):
                rest = items[skipped:]
                equal = _common(rest, now, min(len(rest), len(now)), depth)
                return (skipped, equal, 0) if 2 * equal >= len(now) else (0, 0, 0)
    return 0, first, last


def _common(items: list[Node], now: list[Any], most: int, depth: int) -> int:
    for place in range(most):
        if not _same(items[place], now[place], depth):
            return place
    return most
