"""Sequences as a child would keep them: all that were seen. Shares no code with the core."""

from __future__ import annotations

from itertools import pairwise

from writer.apply import Message

TWO_32 = 4_294_967_296


class Ledger:
    """All sequences that arrived, by run and producer."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], set[int]] = {}

    def see(self, message: Message) -> bool | None:
        """Whether its sequence is new; None if it has none that could be used."""
        named = self._named(message)
        if named is None:
            return None
        pair, seq = named
        if self._too_far(pair, seq):
            return None
        seen = self._seen.setdefault(pair, set())
        new = seq not in seen
        seen.add(seq)
        return new

    def jumped(self, message: Message) -> bool:
        """Whether its sequence is too far past the producer's last."""
        named = self._named(message)
        return named is not None and self._too_far(*named)

    def last(self) -> dict[tuple[str, str], int]:
        """The highest sequence of each producer."""
        return {pair: max(seen) for pair, seen in self._seen.items()}

    def gaps(self) -> dict[tuple[str, str], list[tuple[int, int]]]:
        """The stretches that are missing below the highest."""
        found = {}
        for pair, seen in self._seen.items():
            ordered = sorted(seen | {0})
            missing = [
                (before + 1, after - 1) for before, after in pairwise(ordered) if after - before > 1
            ]
            if missing:
                found[pair] = missing
        return found

    def _too_far(self, pair: tuple[str, str], seq: int) -> bool:
        return seq - max(self._seen.get(pair, {0})) > TWO_32

    def _named(self, message: Message) -> tuple[tuple[str, str], int] | None:
        producer = message.fields.get(b"producer", b"").decode()
        seq = message.fields.get(b"seq", b"").decode()
        if not producer or not seq.isdigit():
            return None
        return (message.run, producer), int(seq)
