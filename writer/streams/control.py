"""The control stream: operator acts on their way to the writer."""

from __future__ import annotations

from typing import Any, NamedTuple

from producers.contract.keys import Keys
from writer.clock import SYSTEM, Clock
from writer.streams.link import Client, text, translated

ACTS = ("skip", "resume", "break", "drop", "redrive")
ACTS_MAX = 10_000
READ_MAX = 100
OPERATOR_CHARS_MAX = 100
LOOK_EVERY_S = 0.5


class Asked(NamedTuple):
    """One act as it was asked for."""

    control_id: str
    act: str
    run: str
    incarnation: int
    message_id: str
    operator: str


def ask(
    client: Client, keys: Keys, partition: int, act: str, run: str, place: tuple[int, str], who: str
) -> str:
    """Send an act; `place` is (incarnation, message id). Returns its id. Raises
    RedisUnavailable.
    """
    incarnation, message_id = place
    fields: dict[Any, Any] = {
        "act": act,
        "run": run,
        "incarnation": incarnation,
        "message_id": message_id,
        "operator": who[:OPERATOR_CHARS_MAX],
    }
    with translated():
        sent = client.xadd(keys.control(partition), fields, maxlen=ACTS_MAX, approximate=True)
    return text(sent)


def _order(message_id: str) -> tuple[int, int]:
    ms, _, n = message_id.partition("-")
    return int(ms), int(n)


class Control:
    """Reads a partition's control stream from a cursor that SQLite keeps."""

    def __init__(
        self,
        client: Client,
        keys: Keys,
        partition: int,
        cursor: str,
        clock: Clock = SYSTEM,
    ) -> None:
        self.cursor = cursor
        self._client = client
        self._key = keys.control(partition)
        self._look_at = 0.0
        self._clock = clock

    def read(self) -> list[Asked]:
        """What was asked since; looks at most twice a second. Moves `cursor` past what it returns.

        What is no act of ours is passed over: nothing depends on it.
        """
        if self._clock.monotonic() < self._look_at:
            return []
        self._look_at = self._clock.monotonic() + LOOK_EVERY_S
        with translated():
            last: Any = self._client.xrevrange(self._key, count=1)
            if not last or text(last[0][0]) == self.cursor:
                return []
            if _order(text(last[0][0])) < _order(self.cursor):
                # The stream was replaced. Acts name a place of their run, so an old one harms
                # nothing.
                self.cursor = "0-0"
            reply: Any = self._client.xrange(self._key, min=f"({self.cursor}", count=READ_MAX)
        asked = []
        for control_id, fields in reply:
            self.cursor = text(control_id)
            try:
                named = {text(name): text(value) for name, value in fields.items()}
                asked.append(
                    Asked(
                        self.cursor,
                        named["act"],
                        named["run"],
                        int(named["incarnation"]),
                        named["message_id"],
                        named["operator"][:OPERATOR_CHARS_MAX],
                    )
                )
            except (KeyError, ValueError):
                continue
        return asked
