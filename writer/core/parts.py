"""A JSON state document kept as a tree of parts, so that a revision costs what it changed.

A container is split into its members while its canonical JSON is larger than ``SPLIT_BYTES``, at
any depth. Once split it stays split until it goes: until its key is absent, or holds a scalar or
the other container type. So the layout is a function of the document's history alone.

Each node of the tree is one live row, addressed by JSON Pointer (RFC 6901). Its shape and value:

    value   canonical JSON of a scalar, or of a container that is not split
    object  ``{}``, for a split object
    array   ``[base,length]``, for a split array, whose keys are base to base + length - 1

Canonical JSON is orjson's with sorted keys, and two values are equal if it is: 1, 1.0 and true
differ, and null differs from absent. Documents are what ``orjson.loads`` returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, compress, repeat
from operator import is_, is_not, itemgetter
from typing import Any, NamedTuple, TypeAlias

from orjson import OPT_SORT_KEYS, dumps, loads

from producers.contract.jsontext import compact, room_left, sorted_json

SPLIT_BYTES = 1024
DIGEST_MODULUS = 2**256


# Nodes are never assigned to, though not frozen: that would make them three times as dear to
# create. They are compared by identity, since a generated equality would be Python's.
@dataclass(slots=True, eq=False)
class Leaf:
    """A value that is not split: a scalar or a container, as canonical JSON."""

    text: bytes


@dataclass(slots=True, eq=False)
class Obj:
    """A split object: its members by key, in no particular order."""

    members: dict[str, Node]


@dataclass(slots=True, eq=False)
class Arr:
    """A split array: ``items[i]`` has the key ``base + i``, and the base may be negative."""

    base: int
    items: list[Node]


Node: TypeAlias = Leaf | Obj | Arr


class Part(NamedTuple):
    """A row to write. The value None is a tombstone, and its shape the last live one."""

    pointer: str
    shape: str
    value: str | None


class Size(NamedTuple):
    """Live rows, and the bytes of their values; also by how much these become more."""

    rows: int
    bytes: int


NOTHING = Size(0, 0)


class Change(NamedTuple):
    """The new tree, the rows to write, and what they add to the digest modulo 2**256.

    A pointer occurs at most once; parents stand before their members, which are sorted by key.
    """

    root: Node
    parts: list[Part]
    delta: int
    grown: Size


class PartsCorrupt(ValueError):
    """The rows do not form one tree."""


def change(old: Node | None, document: Any) -> Change:
    """The step from a tree (None: the first revision) to the tree of a new document.

    What did not change is the same objects in both trees: the root too, if nothing did.
    """
    return difference(old, follow(old, document))


def difference(old: Node | None, new: Node) -> Change:
    """The step from one tree to another that shares with it what did not change."""
    steps: list[tuple[str, Node | None, Node | None]] = []
    _compare("", old, new, steps)
    parts: list[Part] = []
    delta = rows = grown = 0
    for pointer, before, after in steps:
        live = after or before
        assert live is not None
        shape, value = _row(live)
        parts.append(Part(pointer, shape, value.decode() if after else None))
        delta += _hash(pointer, after) - _hash(pointer, before)
        rows += (after is not None) - (before is not None)
        grown += (len(value) if after else 0) - (len(_row(before)[1]) if before else 0)
    return Change(new, parts, delta % DIGEST_MODULUS, Size(rows, grown))


def follow(old: Node | None, value: Any) -> Node:
    """The tree of a value that comes in the place of another's; shared with it where equal."""
    if isinstance(old, Leaf) and old.text == dumps(value, option=OPT_SORT_KEYS):
        return old
    if isinstance(old, Obj) and isinstance(value, dict):
        members = {key: follow(old.members.get(key), item) for key, item in value.items()}
        kept = map(is_, members.values(), map(old.members.get, members))
        return old if len(members) == len(old.members) and all(kept) else Obj(members)
    if isinstance(old, Arr) and isinstance(value, list):
        return _follow_array(old, value)
    return _fresh(value)


def build(rows: Iterable[tuple[str, str, str]]) -> Node:
    """The tree of the live rows (pointer, shape, value), which come in any order.

    Raises PartsCorrupt if they do not form one. The text in value rows is for the digest to prove.
    """
    live: dict[str, tuple[str, str]] = {}
    for pointer, shape, value in rows:
        if pointer in live or (pointer and not pointer.startswith("/")):
            raise PartsCorrupt(f"row {pointer!r} is there twice, or is no JSON Pointer")
        live[pointer] = (shape, value)
    waiting: dict[str, dict[str, Node]] = {}
    for pointer in sorted(live, key=lambda pointer: pointer.count("/"), reverse=True):
        node = _assemble(pointer, *live[pointer], waiting.pop(pointer, {}))
        parent, slash, token = pointer.rpartition("/")
        if slash:
            waiting.setdefault(parent, {})[token] = node
    if waiting or "" not in live:
        raise PartsCorrupt(f"there is no row at {min(waiting, default='')!r}")
    return node


def document(node: Node) -> Any:
    """The document, decoded anew: it is the caller's own."""
    return loads(encode(node))


def encode(node: Node) -> bytes:
    """The canonical JSON of the whole document."""
    if isinstance(node, Leaf):
        return node.text
    if isinstance(node, Arr):
        return b"[%b]" % b",".join([encode(item) for item in node.items])
    pairs = [b"%b:%b" % (dumps(k), encode(item)) for k, item in sorted(node.members.items())]
    return b"{%b}" % b",".join(pairs)


def digest(node: Node) -> int:
    """The sum modulo 2**256 of SHA-256 over each live part, computed from nothing."""
    total = 0
    pending = [("", node)]
    while pending:
        pointer, node = pending.pop()
        total += _hash(pointer, node)
        pending += [(f"{pointer}/{_token(k)}", item) for k, item in _members(node).items()]
    return total % DIGEST_MODULUS


def size(node: Node) -> Size:
    """How much the live rows are."""
    rows = total = 0
    pending = [node]
    while pending:
        node = pending.pop()
        rows += 1
        total += len(_row(node)[1])
        if isinstance(node, Obj):
            pending += node.members.values()
        elif isinstance(node, Arr):
            pending += node.items
    return Size(rows, total)


def _fresh(value: Any) -> Node:
    if not isinstance(value, (dict, list)):
        return Leaf(compact(sorted_json(value)))
    # Without the estimate, each level of a large document would be encoded whole for its size.
    if room_left(value, SPLIT_BYTES) >= 0:
        text = dumps(value, option=OPT_SORT_KEYS)
        if len(text) <= SPLIT_BYTES:
            return Leaf(compact(text))
    if isinstance(value, dict):
        return Obj({key: _fresh(item) for key, item in value.items()})
    return Arr(0, [_fresh(item) for item in value])


def _follow_array(old: Arr, value: list[Any]) -> Arr:
    items: list[Node] = []
    shift = 0
    # Comparing the first members tells whether the array moved. If it did not, the outcome is
    # kept: arrays within arrays would otherwise repeat it once a level.
    if old.items and value:
        items = [follow(old.items[0], value[0])]
        if items[0] is not old.items[0]:
            shift = _shift(old.items, value)
    if shift:
        items = []
    for place in range(shift + len(items), shift + len(value)):
        before = old.items[place] if 0 <= place < len(old.items) else None
        items.append(follow(before, value[place - shift]))
    kept = map(is_, items, old.items)
    return old if len(items) == len(old.items) and all(kept) else Arr(old.base + shift, items)


def _shift(old: list[Node], new: list[Any]) -> int:
    """What the base moves by, old[0] being another value than new[0].

    That is the least k with old[k] = new[0], else minus the least j with new[j] = old[0], else 0.
    """
    texts: dict[int, bytes] = {}
    for place in range(1, len(old)):
        if _same(old[place], new[0], texts):
            return place
    for place in range(1, len(new)):
        if _same(old[0], new[place], {}):
            return -place
    return 0


def _same(node: Node, value: Any, texts: dict[int, bytes]) -> bool:
    """Whether a tree holds a value. ``texts`` keeps its canonical JSON by id, for many trees."""
    if isinstance(node, Leaf):
        if id(value) not in texts:
            texts[id(value)] = dumps(value, option=OPT_SORT_KEYS)
        return node.text == texts[id(value)]
    if isinstance(node, Obj) and isinstance(value, dict) and node.members.keys() == value.keys():
        return all(_same(item, value[key], texts) for key, item in node.members.items())
    if isinstance(node, Arr) and isinstance(value, list) and len(node.items) == len(value):
        return all(map(_same, node.items, value, repeat(texts)))
    return False


def _compare(
    pointer: str,
    old: Node | None,
    new: Node | None,
    steps: list[tuple[str, Node | None, Node | None]],
) -> None:
    """Appends what each pointer whose row differs had and has now."""
    if old is new:
        return
    if old is None or new is None or _row(old) != _row(new):
        steps.append((pointer, old, new))
    # Sorted, so that neither the document's key order shows nor that of the rows it came from.
    for key, before, after in sorted(_differing(old, new), key=itemgetter(0)):
        _compare(f"{pointer}/{_token(key)}", before, after, steps)


def _differing(
    old: Node | None, new: Node | None
) -> Iterable[tuple[Any, Node | None, Node | None]]:
    """The members that are not the same object in both, with their keys."""
    if isinstance(old, Arr) and isinstance(new, Arr):
        return _differing_items(old, new)
    before, after = _members(old), _members(new)
    if {type(old), type(new)} == {Obj, Arr}:
        # Both may own the pointer "/0", which is to be written once.
        before, after = ({str(key): item for key, item in m.items()} for m in (before, after))
    keys = [key for key, item in after.items() if before.get(key) is not item]
    keys += before.keys() - after.keys()
    return [(key, before.get(key), after.get(key)) for key in keys]


def _differing_items(old: Arr, new: Arr) -> Iterable[tuple[int, Node | None, Node | None]]:
    # No dictionary of the members: a long array in which one differs is what runs are made of.
    old_end, new_end = old.base + len(old.items), new.base + len(new.items)
    first, last = max(old.base, new.base), min(old_end, new_end)
    if first < last:
        both = range(first, last)
        before = old.items[first - old.base : last - old.base]
        after = new.items[first - new.base : last - new.base]
        yield from compress(zip(both, before, after, strict=True), map(is_not, before, after))
    for key in chain(range(old.base, min(first, old_end)), range(max(last, old.base), old_end)):
        yield key, old.items[key - old.base], None
    for key in chain(range(new.base, min(first, new_end)), range(max(last, new.base), new_end)):
        yield key, None, new.items[key - new.base]


def _row(node: Node) -> tuple[str, bytes]:
    if isinstance(node, Leaf):
        return "value", node.text
    if isinstance(node, Obj):
        return "object", b"{}"
    return "array", b"[%d,%d]" % (node.base, len(node.items))


def _hash(pointer: str, node: Node | None) -> int:
    if node is None:
        return 0
    # The length says where the pointer ends, whatever it contains; no shape contains a colon.
    name, (shape, value) = pointer.encode(), _row(node)
    framed = b"%d:%b%b:%b" % (len(name), name, shape.encode(), value)
    return int.from_bytes(sha256(framed).digest(), "big")


def _members(node: Node | None) -> dict[Any, Node]:
    """The members by key: text in an object, a number in an array."""
    if isinstance(node, Obj):
        return node.members
    return dict(enumerate(node.items, node.base)) if isinstance(node, Arr) else {}


def _token(key: str | int) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def key_of(token: str) -> str:
    """The key that a step of a JSON Pointer names."""
    return token.replace("~1", "/").replace("~0", "~")


def _assemble(pointer: str, shape: str, value: str, members: dict[str, Node]) -> Node:
    node: Node = Leaf(value.encode())
    if shape == "object":
        keys = [key_of(token) for token in members]
        node = Obj(dict(zip(keys, members.values(), strict=True)))
    elif shape == "array":
        with suppress(ValueError, KeyError):
            base = int(value[1:].partition(",")[0])
            node = Arr(base, [members[str(base + place)] for place in range(len(members))])
    # Whatever is wrong, the node's row or its members' tokens do not come out as they went in.
    tokens = {_token(key) for key in _members(node)}
    if _row(node) != (shape, value.encode()) or tokens != members.keys():
        raise PartsCorrupt(f"{shape} {value[:40]} at {pointer!r} and its members do not agree")
    return node
