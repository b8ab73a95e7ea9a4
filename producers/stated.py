"""What a run's state was when it was last sent, to tell what has changed since.

A tree: containers whose JSON is large are split into their members, others are kept as their text,
scalars as they are. A tree is never changed. The next one shares with it what is equal, so many of
them cost what changed between them.

A text that nobody has judged (an `orjson.Fragment`) passes where it says what was judged before.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from producers.contract.jsontext import compact, room_left
from producers.contract.limits import PATH_STEPS_MAX
from producers.validation import DUMP_OPTIONS, is_exact

SPLIT_BYTES: Final = 1_024
PATCH_DEPTH: Final = 3
"""How deep in a document what a patch brings must be for the patch to nest no deeper."""

_SORTED: Final = DUMP_OPTIONS | orjson.OPT_SORT_KEYS
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
    has_null: bool


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
    walk = _Walk([], [], [], [])
    root = walk.follow_object(before, state, [])
    if not is_exact(walk.doubts):
        raise Unfit
    return Step(root, walk.edits())


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


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, None, _SORTED)


def _leaf(text: bytes) -> Leaf:
    return Leaf(compact(text), b"null" in text)


def _room_of(items: list[Node]) -> int:
    """With a comma each."""
    return sum(size_of(item) + 1 for item in items)


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
    if not is_exact([value], max(depth, PATCH_DEPTH)):
        raise Unfit
    if type(value) in _NATIVE:
        node: Node = value
        return node
    if len(text) <= SPLIT_BYTES:
        return _leaf(text)
    # From the text, since the value may be changed meanwhile.
    return _grown(orjson.loads(text), depth)


def _grown(value: Any, depth: int) -> Node:
    if not isinstance(value, dict | list):
        node: Node = value
        return node
    is_whole = depth >= PATH_STEPS_MAX
    if is_whole or room_left(value, SPLIT_BYTES) >= 0:
        text = _dumps(value)
        if is_whole or len(text) <= SPLIT_BYTES:
            return _leaf(text)
    if isinstance(value, dict):
        return _object({key: _grown(item, depth + 1) for key, item in value.items()})
    items = [_grown(item, depth + 1) for item in value]
    return Arr(items, 1 + _room_of(items))


# --- comparing --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Walk:
    """Through a tree and the state that comes after it, noting what differs."""

    remove: list[Path]
    set: list[dict[str, Any]]
    splice: list[dict[str, Any]]
    doubts: list[Any]
    """Values whose text is as before, but has a null in it: the text of NaN is null, too."""

    def edits(self) -> bytes:
        edits = {"remove": self.remove, "set": self.set, "splice": self.splice}
        try:
            return _dumps({name: each for name, each in edits.items() if each})[1:-1]
        except TypeError:
            # A new key that is no Unicode.
            raise Unfit from None

    def follow_object(self, before: Obj, value: dict[Any, Any], path: Path) -> Obj:
        known, now = before.members, _members(value)
        changed: dict[str, Node] = {}
        room, added = before.room, 0
        for key, item in now.items():
            member = known.get(key, _ABSENT)
            if type(item) in _PLAIN and type(member) is type(item) and member == item:
                continue
            if member is _ABSENT:
                node = self._enter(item, [*path, key])
                room += _key_room(key) + size_of(node)
                added += 1
            else:
                node = self._follow(member, item, [*path, key])  # type: ignore[arg-type]
                if node is member:
                    continue
                room += size_of(node) - size_of(member)  # type: ignore[arg-type]
            changed[key] = node
        gone = sorted(known.keys() - now.keys()) if len(known) + added > len(now) else ()
        if not changed and not gone:
            return before
        members = known | changed
        for key in gone:
            self.remove.append([*path, key])
            room -= _key_room(key) + size_of(members.pop(key))
        return Obj(members, room)

    def _follow(self, before: Node, value: Any, path: Path) -> Node:
        """The tree of a value that comes in the place of another's; that very one where equal."""
        if isinstance(before, Obj) and isinstance(value, dict):
            return self.follow_object(before, value, path)
        if isinstance(before, Arr) and type(value) in _LISTS:
            return self._follow_array(before, [*value], path)
        return before if self._same(before, value) else self._enter(value, path)

    def _enter(self, value: Any, path: Path) -> Node:
        node = _fresh(value, len(path))
        self.set.append({"path": path, "value": _outline(node)})
        return node

    def _follow_array(self, before: Arr, now: list[Any], path: Path) -> Arr:
        """Places of edits are those before any splice of this array."""
        items, depth = before.items, len(path) + 1
        skipped, first, last = self._alignment(items, now)
        if first == len(items) == len(now):
            return before
        paired = min(len(items) - skipped, len(now)) - last
        runs: list[_Run] = []
        nodes = items[skipped : skipped + first]
        for place in range(skipped + first, skipped + paired):
            known, value = items[place], now[place - skipped]
            is_split = isinstance(known, Obj | Arr) and isinstance(value, dict | list | tuple)
            if is_split or self._same(known, value):
                nodes.append(self._follow(known, value, [*path, place]))
            else:
                nodes.append(_fresh(value, depth))
                _replace(runs, _Run(place, 1, nodes[-1:]))
        rest = [_fresh(value, depth) for value in now[paired : len(now) - last]]
        end = len(items) - last
        if rest or end > skipped + paired:
            _replace(runs, _Run(skipped + paired, end - skipped - paired, rest))
        # Only the last one changes the length.
        for run in runs:
            self._splice(path, len(items), run)
        if skipped:
            self._splice(path, len(now) + skipped, _Run(0, skipped, []))
        nodes += rest
        room = before.room - _room_of(items[:skipped]) - _room_of(items[skipped + first : end])
        return Arr([*nodes, *items[end:]], room + _room_of(nodes[first:]))

    def _splice(self, path: Path, length: int, run: _Run) -> None:
        """Splices of one array come in order, those of arrays within it before."""
        items = [_outline(node) for node in run.nodes]
        place = {"path": path, "length": length, "start": run.start, "delete": run.delete}
        self.splice.append({**place, "items": items})

    def _alignment(self, items: list[Node], now: list[Any]) -> tuple[int, int, int]:
        """How many members went at the front, then are equal, and are equal at the end."""
        shorter = min(len(items), len(now))
        first = self._common(items, now, shorter)
        last = self._common(items[::-1], now[::-1], shorter - first)
        if first == last == 0 < shorter:
            # The latest of many, which lose one at the front when they get one at the end.
            for skipped in range(1, len(items)):
                if self._same(items[skipped], now[0]):
                    rest = items[skipped:]
                    equal = self._common(rest, now, min(len(rest), len(now)))
                    return (skipped, equal, 0) if 2 * equal >= len(now) else (0, 0, 0)
        return 0, first, last

    def _common(self, items: list[Node], now: list[Any], most: int) -> int:
        for place in range(most):
            if not self._same(items[place], now[place]):
                return place
        return most

    def _same(self, node: Node | object, value: Any) -> bool:
        """Whether a tree is that of a value. Raises Unfit for what has no text."""
        kind = type(value)
        if kind in _PLAIN:
            return type(node) is kind and bool(node == value)
        if isinstance(node, Leaf):
            try:
                is_same = orjson.dumps(value, None, _SORTED) == node.text
            except TypeError:
                raise Unfit from None
            if is_same and node.has_null:
                self.doubts.append(value)
            return is_same
        if kind is float:
            # A whole snapshot would tell 0.0 from -0.0.
            return type(node) is float and node == value and (value != 0 or str(node) == str(value))
        if isinstance(node, Obj) and isinstance(value, dict):
            known, members = node.members, _members(value)
            return len(members) == len(known) and all(
                self._same(known.get(key, _ABSENT), item) for key, item in members.items()
            )
        if isinstance(node, Arr) and kind in _LISTS:
            items = [*value]
            return len(items) == len(node.items) and all(map(self._same, node.items, items))
        return False


class _Run(NamedTuple):
    """Members of an array that come in the place of others."""

    start: int
    delete: int
    nodes: list[Node]


def _replace(runs: list[_Run], run: _Run) -> None:
    """Add a run, joined with the last one where it follows upon it."""
    if runs and runs[-1].start + runs[-1].delete == run.start:
        before = runs.pop()
        run = _Run(before.start, before.delete + run.delete, before.nodes + run.nodes)
    runs.append(run)


def _members(value: dict[Any, Any]) -> dict[str, Any]:
    """The members of an object as they are now, whatever its class makes of reading them."""
    now = dict.copy(value)
    if not _TEXT.issuperset(map(type, now)):
        raise Unfit
    return now
