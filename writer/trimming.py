"""What Redis may forget of each stream, and whether a stream is still the one that was read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from producers.contract.envelope import Decoded
from writer.apply import Applier, order_of
from writer.clock import Clock
from writer.core.decide import is_known
from writer.core.facts import Wanted, want
from writer.notes import Notes
from writer.store.commit import Hook
from writer.store.partition import Place
from writer.streams.read import Reader, Reading
from writer.streams.settle import Settler, Trim

POINTS_MAX = 65_536
SYNC_EVERY_S = 1.0
"""Without a sync of every commit, Redis may forget only what a sync once a second has covered."""


@dataclass(slots=True)
class Trimming:
    """Of one partition's loop. `durable`: a commit survives a power cut at once."""

    applier: Applier
    reader: Reader
    settler: Settler
    notes: Notes
    clock: Clock
    lineage: str
    replay_window_ms: int
    durable: bool
    _points: OrderedDict[str, str] = field(default_factory=OrderedDict)
    """How far each stream was trimmed; '' was looked at, and not trimmed yet."""
    _first: dict[str, str] = field(default_factory=dict)
    """Where each stream began, until that is trimmed: what lies lower later is not of it."""
    _unsynced: dict[str, Trim] = field(default_factory=dict)
    _sync_at: float = 0.0

    def place(self, run: str) -> Place:
        """Where a stream is settled up to. Its aggregate may be large, and is not loaded for it."""
        known = self.applier.aggregates.known(run)
        if known is None:
            return self.applier.file.place(run)
        return Place(known.cursor.message_id, _ended(known))

    # --- is it still the stream that was read? -------------------------------------------------

    def look_below(self, cursors: Sequence[tuple[str, str]], reading: Reading) -> list[str]:
        """Runs whose stream was replaced before we knew it: it holds messages up to the cursor that
        were never read, and that a read from the cursor never would.

        Either the cursor's own is not among them, or one was never settled, which is asked once for
        each stream. Once it is trimmed up to the cursor, its last trim point tells.
        """
        replaced = []
        first = {item.run: item.id for item in reversed(reading.items)}
        # A stream whose turn did not come may be another one by the time it comes.
        reached = first.keys() | set(reading.empty)
        asked = [
            (run, cursor)
            for run, cursor in cursors
            if run in reached and cursor != "0-0" and self._points.get(run) != cursor
        ]
        found = self.reader.newest(asked)
        for run, cursor in asked:
            newest = found.get(run)
            if newest is None:
                self._points[run] = cursor
            elif newest == cursor and run in self._points:
                continue
            elif newest == cursor and (begin := self._first_known(run, cursor)):
                self._points[run], self._first[run] = "", begin
            else:
                self._points.pop(run, None)
                replaced.append(run)
                self.notes.note("stream_replaced", run)
        for run, cursor in cursors:
            if run in first and cursor in ("0-0", self._points.get(run)):
                # Nothing was left below it.
                self._first[run] = first[run]
        return replaced

    def look_again(self, run: str) -> None:
        """Much may happen to a stream whose run has to wait: one look at it is not enough."""
        if not self._points.get(run):
            self._points.pop(run, None)

    def look_at_empty(self, runs: Sequence[str]) -> tuple[list[str], list[Trim]]:
        """Streams that gave nothing though they were marked: which were replaced, which to
        tidy up.
        """
        if not runs:
            return [], []
        restarts: list[str] = []
        trims: list[Trim] = []
        for run, stream in self.reader.inspect(runs).items():
            cursor, has_ended = self.place(run)
            if order_of(stream.last_id) < order_of(cursor):
                self.notes.note("stream_restarted", run)
                self._points.pop(run, None)
                restarts.append(run)
            elif stream.length:
                trims.append(self._trim_of(run))
            elif cursor in (stream.last_id, "0-0") and has_ended:
                # The next incarnation is committed first: dying before the stream goes costs
                # nothing.
                if cursor != "0-0":
                    restarts.append(run)
                trims.append(Trim(run, stream.last_id, retire=True))
        return restarts, trims

    def _first_known(self, run: str, cursor: str) -> str:
        aggregate = self.applier.aggregates.get(run)

        def knows(message: Decoded) -> bool:
            wanted = Wanted()
            want(aggregate, message, wanted)
            return is_known(aggregate, message, self.applier.file.facts(aggregate, wanted))

        return self.reader.first_known(run, cursor, knows)

    # --- what it may forget --------------------------------------------------------------------

    def trim(
        self, settled: Iterable[str], restarts: Sequence[str], tidy: Sequence[Trim], hook: Hook
    ) -> list[str]:
        """Let Redis forget what is committed.

        `settled` are runs of which messages were, `restarts` those that are read from their start
        again. Returns runs whose stream turned out to be another: they are, too.
        """
        for run in restarts:
            self._unsynced.pop(run, None)
        self._unsynced.update({trim.run: trim for trim in tidy})
        self._unsynced.update({run: self._trim_of(run) for run in dict.fromkeys(settled)})
        if not self._unsynced or not self._synced():
            return []
        regressed = self._trim(list(self._unsynced.values()), hook)
        self._unsynced.clear()
        return regressed

    def _synced(self) -> bool:
        """Whether all that is committed survives a power cut; asked for at most once a second."""
        if self.durable:
            return True
        now = self.clock.monotonic()
        if now < self._sync_at:
            return False
        self._sync_at = now + SYNC_EVERY_S
        return self.applier.file.sync()

    def _trim(self, trims: Sequence[Trim], hook: Hook) -> list[str]:
        file, archive = self.applier.file, self.applier.archive
        # What is committed where nobody finds it must stay in Redis.
        file.check_place()
        trims = [trim._replace(trimmed=self._begin(trim.run)) for trim in trims]
        archived = archive.position.text() if archive is not None else ""
        words = self.settler.settle(file.commit_seq, self.lineage, file.epoch, archived, trims)
        regressed = [run for run, word in words.items() if word == "regressed"]
        for run in regressed:
            self.notes.note("stream_regressed", run)
        if regressed:
            self.applier.apply((), now=self.clock.now_ms(), restarts=regressed, hook=hook)
        for trim in trims:
            self._trimmed(trim.run, trim.cursor if words[trim.run] == "trimmed" else None)
        return regressed

    def _trimmed(self, run: str, upto: str | None) -> None:
        """Remember how far a stream was trimmed, if it was."""
        self._points.pop(run, None)
        if upto is not None:
            self._points[run] = upto
        # What a replay window keeps still begins where it began.
        if upto is None or order_of(self._first.get(run, upto)) <= order_of(upto):
            self._first.pop(run, None)
        while len(self._points) > POINTS_MAX:
            forgotten, _ = self._points.popitem(last=False)
            self._first.pop(forgotten, None)

    def _begin(self, run: str) -> str:
        """The id below which a stream holds nothing, '' if that is not known."""
        known = [self._points.get(run), self._first.get(run)]
        return max(filter(None, known), key=order_of, default="")

    def _trim_of(self, run: str) -> Trim:
        """Up to the cursor, or what the replay window leaves of that."""
        last = upto = self.place(run).message_id
        if self.replay_window_ms:
            begin = f"{max(self.clock.now_ms() - self.replay_window_ms, 0)}-0"
            upto = min(last, begin, key=order_of)
        return Trim(run, upto, last=last)


def _ended(run: Any) -> bool:
    return run.tombstone is not None or (run.head is not None and run.head.terminal)
