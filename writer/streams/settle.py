"""After the commit: Redis may forget what SQLite has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis

from producers.contract.keys import Keys
from writer.errors import Fenced
from writer.streams.link import lua, text, translated

_SEQUENCE_MAX = 2**64 - 1


class Mark(NamedTuple):
    """What Redis remembers of the file that it was settled for."""

    commit_seq: int
    lineage: str
    epoch: int
    archived: str
    """Up to where its archive went, empty without one."""


class Trim(NamedTuple):
    """A stream to settle: up to `cursor`; `retire` also removes it if it ended there and is
    empty. `last` is the message that was settled last: a stream that lacks it but has older ones
    is another than the one that was read.
    """

    run: str
    cursor: str
    trimmed: str = ""
    retire: bool = False
    last: str = ""


def after(message_id: str) -> str:
    """The smallest id past this one: what XTRIM MINID keeps from."""
    ms, _, n = message_id.partition("-")
    if int(n) == _SEQUENCE_MAX:
        return f"{int(ms) + 1}-0" if int(ms) < _SEQUENCE_MAX else message_id
    return f"{ms}-{int(n) + 1}"


@dataclass(slots=True)
class Settler:
    """Settles one partition's streams."""

    client: redis.Redis
    keys: Keys
    partition: int
    writer: str
    _settle: Any = field(init=False)

    def __post_init__(self) -> None:
        self._settle = self.client.register_script(lua("settle.lua"))

    def mark(self) -> Mark:
        """The mark as it stands; zeros if there is none."""
        with translated():
            found: Any = self.client.hgetall(self.keys.mark(self.partition))
        return Mark(
            int(found.get(b"commit_seq", 0)),
            text(found.get(b"lineage", b"")),
            int(found.get(b"epoch", 0)),
            text(found.get(b"archived", b"")),
        )

    def settle(
        self, commit_seq: int, lineage: str, epoch: int, archived: str, trims: Sequence[Trim]
    ) -> dict[str, str]:
        """Raise the mark, then trim; returns what became of each stream (see `settle.lua`).

        Raises Fenced if another writer owns the partition, RedisUnavailable.
        """
        keys = [self.keys.mark(self.partition), self.keys.owner(self.partition)]
        args: list[str | int] = [self.writer, commit_seq, lineage, epoch, archived]
        for trim in trims:
            keys.append(self.keys.run(self.partition, trim.run))
            keep = "" if trim.cursor == "0-0" or trim.retire else after(trim.cursor)
            last = "" if trim.last == "0-0" else trim.last
            args.extend((keep, trim.trimmed, last, trim.cursor if trim.retire else ""))
        with translated():
            words = self._settle(keys=keys, args=args)
        if words == b"lost":
            raise Fenced(
                f"partition {self.partition} has another owner",
                hint="this writer stepped down; nothing of it was lost",
            )
        return {trim.run: text(word) for trim, word in zip(trims, words, strict=True)}
