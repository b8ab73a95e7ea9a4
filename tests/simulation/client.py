"""A connection to the simulated server, with the calls of redis-py that the writer makes.

Each call passes a gate before it reaches the server and before its reply comes back: there the
connection breaks, the writer dies, or stands still while the world goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis

from tests.simulation.server import Item, Server, place_of, to_bytes
from writer.streams.link import lua

Gate = Callable[[str], None]
"""Called with `before <call>` and `after <call>`; may raise."""
Seen = Callable[[str, list[Item]], None]
"""Hears what stood behind the cursor of each stream that was read, by key."""


def open_gate(point: str) -> None:
    """Lets everything through."""


class Script:
    """What `register_script` returns."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        return self._client.run_script(self._name, keys, args)


class Pipeline:
    """Commands that go together, without a transaction."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._calls: list[Callable[[], Any]] = []

    def xinfo_stream(self, key: str) -> None:
        self._calls.append(lambda: self._client.xinfo(key))

    def xrevrange(self, key: str, max: str = "+", min: str = "-", count: int | None = None) -> None:
        self._calls.append(lambda: self._client.between(key, min, max)[::-1][:count])

    def xadd(self, key: str, fields: dict[Any, Any], **_: Any) -> None:
        self._calls.append(lambda: self._client.append(key, fields))

    def pexpire(self, key: str, ms: int) -> None:
        """Receipts live longer than a schedule."""

    def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        return self._client.through("pipeline", lambda: [call() for call in self._calls])


class Client:
    """One writer's, operator's or sweep's connection."""

    def __init__(
        self, server: Server, gate: Gate = open_gate, seen: Seen = lambda key, items: None
    ) -> None:
        self._server = server
        self._gate = gate
        self._seen = seen
        self._starts = server.starts

    def through(self, name: str, call: Callable[[], Any]) -> Any:
        """Make a call that may be lost on its way there or back."""
        self._gate(f"before {name}")
        if self._starts != self._server.starts:
            self._starts = self._server.starts
            raise redis.ConnectionError("the server was started anew")
        reply = call()
        self._gate(f"after {name}")
        return reply

    def register_script(self, text: str) -> Script:
        """Scripts are known by their text."""
        return Script(self, SCRIPTS[text])

    def run_script(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        def call() -> Any:
            reply = getattr(self._server, name)(keys, args)
            if name == "read":
                for key, cursor, _ in zip(keys, args[3:], reply, strict=False):
                    stream = self._server.keys.streams.get(key)
                    self._seen(key, [] if stream is None else stream.after(place_of(cursor)))
            return reply

        return self.through(name, call)

    def pipeline(self, *, transaction: bool = True) -> Pipeline:
        return Pipeline(self)

    def bzpopmin(self, key: str, timeout: float) -> tuple[bytes, bytes, float] | None:
        popped = self.through("bzpopmin", lambda: self._server.zpopmin(key, 1))
        return (key.encode(), *popped[0]) if popped else None

    def zpopmin(self, key: str, most: int) -> list[tuple[bytes, float]]:
        return self.through("zpopmin", lambda: self._server.zpopmin(key, most))

    def hgetall(self, key: str) -> dict[bytes, bytes]:
        return self.through("hgetall", lambda: dict(self._server.keys.hashes.get(key, {})))

    def xadd(self, key: str, fields: dict[Any, Any], **_: Any) -> bytes:
        return self.through("xadd", lambda: self.append(key, fields))

    def xrange(self, key: str, min: str = "-", max: str = "+", count: int | None = None) -> Any:
        return self.through("xrange", lambda: self.between(key, min, max)[:count])

    def xrevrange(self, key: str, max: str = "+", min: str = "-", count: int | None = None) -> Any:
        return self.through("xrevrange", lambda: self.between(key, min, max)[::-1][:count])

    def scan(self, cursor: int, match: str, count: int, _type: str) -> tuple[int, list[bytes]]:
        prefix = match.replace("\\", "").removesuffix("*")
        names = [key for key in self._server.keys.streams if key.startswith(prefix)]
        return self.through("scan", lambda: (0, [name.encode() for name in sorted(names)]))

    def close(self) -> None:
        """Nothing is open."""

    def append(self, key: str, fields: dict[Any, Any]) -> bytes:
        """XADD without a gate."""
        named = {to_bytes(name): to_bytes(value) for name, value in fields.items()}
        return self._server.xadd(key, named).id.encode()

    def xinfo(self, key: str) -> dict[str, Any] | redis.ResponseError:
        """XINFO STREAM, its reply or its error, without a gate."""
        stream = self._server.keys.streams.get(key)
        if stream is None:
            return redis.ResponseError("no such key")
        last = f"{stream.last[0]}-{stream.last[1]}".encode()
        return {"length": len(stream.items), "last-generated-id": last}

    def between(self, key: str, first: str, last: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        stream = self._server.keys.streams.get(key)
        items = [] if stream is None else stream.items
        if first.startswith("("):
            begin = place_of(first[1:])
            items = [item for item in items if item.place > begin]
        elif first != "-":
            begin = place_of(first)
            items = [item for item in items if item.place >= begin]
        if last != "+":
            end = place_of(last)
            items = [item for item in items if item.place <= end]
        return [(item.id.encode(), dict(item.fields)) for item in items]


SCRIPTS = {lua(f"{name}.lua"): name for name in ("mark", "look", "own", "disown", "read", "settle")}
