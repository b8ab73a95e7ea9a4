"""A Redis server in memory, in virtual time: what the writer uses of one, script by script.

The scripts that it imitates are tested on real servers in `tests/streams`. Items of streams are
`Item` objects with an identity of their own, so that a test can tell which delivery was read,
settled or trimmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

Fields = dict[bytes, bytes]
Place = tuple[int, int]


class Item(NamedTuple):
    """One message in a stream: `uid` is its own, whatever its id; its id as two numbers and as
    Redis writes it; its bytes.
    """

    uid: int
    place: Place
    fields: Fields
    id: str
    size: int


@dataclass(slots=True)
class Stream:
    """A stream: its items, and the last id that it ever gave out."""

    items: list[Item] = field(default_factory=list)
    last: Place = (0, 0)

    def after(self, place: Place) -> list[Item]:
        """The items past a place."""
        return [item for item in self.items if item.place > place]

    def copy(self) -> Stream:
        """As it is now."""
        return Stream(list(self.items), self.last)


@dataclass(slots=True)
class Keyspace:
    """All that a server holds; `owners` are strings with the time (ms) at which they expire."""

    streams: dict[str, Stream] = field(default_factory=dict)
    sorted_sets: dict[str, dict[bytes, float]] = field(default_factory=dict)
    hashes: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    strings: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def copy(self) -> Keyspace:
        """As it is now."""
        return Keyspace(
            {name: stream.copy() for name, stream in self.streams.items()},
            {name: dict(marks) for name, marks in self.sorted_sets.items()},
            {name: dict(pairs) for name, pairs in self.hashes.items()},
            dict(self.strings),
        )


Trimmed = Callable[[str, list[Item]], None]


def place_of(message_id: str | bytes) -> Place:
    """An id as two numbers."""
    text = message_id.decode() if isinstance(message_id, bytes) else message_id
    ms, _, n = text.partition("-")
    return int(ms), int(n or 0)


def to_bytes(value: Any) -> bytes:
    """A value as a client sends it."""
    return value if isinstance(value, bytes) else str(value).encode()


class Server:
    """The server. `clock` gives its time in ms; `on_trim` hears which items settling removed."""

    def __init__(
        self, clock: Callable[[], int], on_trim: Trimmed = lambda key, items: None
    ) -> None:
        self.keys = Keyspace()
        self.clock = clock
        self.starts = 1
        self.on_trim = on_trim
        self._uids = count(1)

    def restart(self, keys: Keyspace) -> None:
        """Come back with what was kept; connections to it break."""
        self.keys = keys
        self.starts += 1

    # --- what hosts and operators send ---------------------------------------------------------

    def xadd(self, key: str, fields: Fields, at: str = "*") -> Item:
        """Append; the id comes from the clock, but never falls."""
        stream = self.keys.streams.setdefault(key, Stream())
        if at == "*":
            ms = max(self.clock(), stream.last[0])
            place = (ms, stream.last[1] + 1 if ms == stream.last[0] else 0)
        else:
            place = place_of(at)
            assert place > stream.last
        size = sum(len(name) + len(value) for name, value in fields.items())
        item = Item(next(self._uids), place, fields, f"{place[0]}-{place[1]}", size)
        stream.items.append(item)
        stream.last = place
        return item

    def zadd_lt(self, key: str, score: float, member: bytes) -> None:
        """ZADD LT: never raises a member's score."""
        marks = self.keys.sorted_sets.setdefault(key, {})
        marks[member] = min(score, marks.get(member, score))

    def zpopmin(self, key: str, most: int) -> list[tuple[bytes, float]]:
        """Take the members of the lowest scores."""
        marks = self.keys.sorted_sets.get(key, {})
        popped = sorted(marks.items(), key=lambda pair: (pair[1], pair[0]))[:most]
        for member, _ in popped:
            del marks[member]
        if not marks:
            self.keys.sorted_sets.pop(key, None)
        return popped

    def delete(self, key: str) -> None:
        """DEL of a stream."""
        self.keys.streams.pop(key, None)

    # --- scripts -------------------------------------------------------------------------------

    def mark(self, keys: Sequence[str], args: Sequence[Any]) -> int:
        """mark.lua"""
        for run in args[1:]:
            self.zadd_lt(keys[0], float(args[0]), to_bytes(run))
        return len(args) - 1

    def look(self, keys: Sequence[bytes], args: Sequence[Any]) -> list[Any]:
        """look.lua"""
        found: list[Any] = []
        for key in keys:
            stream = self.keys.streams.get(key.decode())
            if stream is None:
                found.append(None)
            elif stream.items:
                found.append(1)
            else:
                last = f"{stream.last[0]}-{stream.last[1]}".encode()
                found.append(last if int(args[0]) else None)
        return found

    def own(self, keys: Sequence[str], args: Sequence[Any]) -> bytes:
        """own.lua"""
        writer, ttl, replaced = to_bytes(args[0]), int(args[1]), to_bytes(args[2])
        owner = self.string(keys[0])
        if owner is None or owner in (writer, replaced):
            self.keys.strings[keys[0]] = (writer, self.clock() + ttl)
            return writer
        return owner

    def disown(self, keys: Sequence[str], args: Sequence[Any]) -> int:
        """disown.lua"""
        if self.string(keys[0]) == to_bytes(args[0]):
            del self.keys.strings[keys[0]]
            return 1
        return 0

    def string(self, key: str) -> bytes | None:
        """GET."""
        value, expires = self.keys.strings.get(key, (b"", 0))
        if self.clock() >= expires:
            self.keys.strings.pop(key, None)
            return None
        return value

    def read(self, keys: Sequence[str], args: Sequence[Any]) -> list[list[Any]]:
        """read.lua"""
        budget, left, most = int(args[0]), int(args[1]), int(args[2])
        reply: list[list[Any]] = []
        spent = 0
        for key, cursor in zip(keys, args[3:], strict=True):
            found: list[Any] = [0]
            waiting = self.keys.streams.get(key, Stream()).after(place_of(cursor))
            room, step = min(most, left), 1
            while room > 0 and spent < budget:
                asked = min(step, room)
                chunk, waiting = waiting[:asked], waiting[asked:]
                for item in chunk:
                    if spent > 0 and spent + item.size > budget:
                        found[0] = 1
                        return [*reply, found]
                    spent += item.size
                    left -= 1
                    pairs = [text for pair in item.fields.items() for text in pair]
                    found.append([item.id.encode(), pairs])
                if len(chunk) < asked:
                    room = -1
                else:
                    room -= len(chunk)
                    step = min(step * 2, 128) if spent * 4 < budget else 1
            if room >= 0:
                found[0] = 1
            reply.append(found)
            if spent >= budget or left <= 0:
                break
        return reply

    def settle(self, keys: Sequence[str], args: Sequence[Any]) -> bytes | list[bytes]:
        """settle.lua"""
        writer, commit_seq, lineage, epoch, archived = (to_bytes(arg) for arg in args[:5])
        owner = self.string(keys[1])
        if owner is not None and owner != writer:
            return b"lost"
        mark = self.keys.hashes.get(keys[0], {})
        if int(commit_seq) > int(mark.get(b"commit_seq", b"0")):
            self.keys.hashes[keys[0]] = mark | {
                b"commit_seq": commit_seq,
                b"lineage": lineage,
                b"epoch": epoch,
                b"archived": archived,
            }
        rest = [str(arg) for arg in args[5:]]
        return [
            self._settle_stream(key, *rest[4 * at : 4 * at + 4]) for at, key in enumerate(keys[2:])
        ]

    def _settle_stream(self, key: str, keep: str, trimmed: str, settled: str, last: str) -> bytes:
        stream = self.keys.streams.get(key)
        first = stream.items[0].place if stream is not None and stream.items else None
        end = place_of(settled) if settled else (0, 0)
        if first is not None and trimmed and first < place_of(trimmed):
            return b"regressed"
        if stream is None:
            return b"kept"
        older = [item.place for item in stream.items if item.place <= end]
        if older and older[-1] != end:
            return b"regressed"
        if first is not None and keep:
            begin = place_of(keep)
            gone = [item for item in stream.items if item.place < begin]
            stream.items = stream.items[len(gone) :]
            self.on_trim(key, gone)
            return b"trimmed"
        if last and first is None and stream.last == place_of(last):
            del self.keys.streams[key]
            return b"gone"
        return b"kept"
