"""The loop of one partition: take, read, apply, settle. No SQL, no JSON, no Redis command in it.

What it took stays in memory until it is settled, so whatever fails, the next round starts from the
stored cursors with fresh aggregates and does the same work again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from producers.contract import limits
from writer.apply import Applier, Message, Request, Settled
from writer.clock import SYSTEM, Clock
from writer.core.outcome import Held, Rejected
from writer.errors import StoreUnavailable, WriterError
from writer.notes import Log, Notes
from writer.receipts import Receipt, receipts_of
from writer.store.commit import FREES, Hook, no_hook
from writer.store.partition import PartitionFile
from writer.streams.control import Control
from writer.streams.ownership import Ownership
from writer.streams.read import Reader, Reading
from writer.streams.settle import Settler
from writer.trimming import Trimming

TAKEN_MAX = 4_096
"""Runs whose marks are held at once; the rest wait in Redis."""
STREAMS_MAX = 500
"""Streams in one read."""


@dataclass(slots=True)
class PartitionLoop:
    """One partition's writer, between taking it and stepping down. Belongs to one thread."""

    partition: int
    file: PartitionFile
    applier: Applier
    reader: Reader
    settler: Settler
    ownership: Ownership
    send_receipts: Callable[[Sequence[Receipt]], None]
    log: Log
    control: Control
    lineage: str
    replay_window_ms: int = 0
    durable: bool = True
    hook: Hook = no_hook
    clock: Clock = SYSTEM
    taken: OrderedDict[str, None] = field(default_factory=OrderedDict)
    quarantined: set[str] = field(default_factory=set)
    notes: Notes = field(init=False)
    trimming: Trimming = field(init=False)

    def __post_init__(self) -> None:
        self.notes = Notes(self.log, self.clock)
        self.trimming = Trimming(
            self.applier,
            self.reader,
            self.settler,
            self.notes,
            self.clock,
            self.lineage,
            self.replay_window_ms,
            self.durable,
        )

    def begin(self) -> None:
        """Let go on what this version understands and an older one did not; mark it as ready."""
        waiting = self.file.quarantined()
        understood = [
            Request(
                f"contract-{limits.CONTRACT_VERSION}",
                "resume",
                run_id,
                quarantine.incarnation,
                quarantine.message_id,
                "upgrade",
            )
            for run_id, quarantine in waiting.items()
            if quarantine.version is not None and quarantine.version <= limits.CONTRACT_VERSION
        ]
        self.quarantined = set(waiting)
        if understood:
            self._act(understood, None)

    def step(self) -> int:
        """One round; returns how many messages it settled. Sleeps up to 500 ms if there are none.

        Raises Retry and Stop errors: nothing is lost, and the next round begins where this one did.
        """
        self.ownership.keep()
        self.file.check_place()
        # A control stream that was replaced by an older one is read from its start.
        asked = [
            Request(*each)
            for each in self.control.read()
            if not self.file.is_recorded(each.control_id, each.act, each.run, each.message_id)
        ]
        if asked:
            self._act(asked, self.control.cursor)
        self._take()
        if not self.taken:
            self.notes.report()
            # Nobody waits for it, and whoever can not write meets the same fault at its commit.
            with suppress(StoreUnavailable):
                self.file.give_back()
            return 0
        runs = list(self.taken)[:STREAMS_MAX]
        cursors = [(run, self.trimming.place(run).message_id) for run in runs]
        per_run = max(self.reader.batch_messages_max // len(runs), 16)
        reading = self.reader.read(cursors, per_run)
        replaced = self.trimming.look_below(cursors, reading)
        reading = reading.without(replaced)
        restarts, tidy = self.trimming.look_at_empty(reading.empty)
        restarts += replaced
        gaps = {run: self._open_gaps(run) for run in dict.fromkeys(i.run for i in reading.items)}
        settled = self._apply(reading, restarts)
        # Before anything is trimmed: what is missed may lie behind the cursor.
        restarts += self._look_for_missing(gaps)
        receipts = receipts_of(settled, self.file)
        done = [each.message.run for each in settled]
        restarts += self.trimming.trim(done, restarts, tidy, self.hook)
        if receipts:
            self.send_receipts(receipts)
        # Only now are these marks answered. A run with a rest goes behind the others: fairness.
        for run in runs:
            del self.taken[run]
        for run in (*reading.more, *restarts):
            if run not in self.quarantined:
                self.taken[run] = None
        self.notes.report()
        return len(settled)

    def step_down(self) -> None:
        """Mark again what is held, and give the partition back."""
        self.reader.mark(list(self.taken), self.clock.now_ms())
        self.taken.clear()
        self.ownership.release()

    def _take(self) -> None:
        room = TAKEN_MAX - len(self.taken)
        if room > 0:
            for run in self.reader.take(room, wait=not self.taken):
                if run not in self.quarantined:
                    self.taken[run] = None

    def _act(self, requests: Sequence[Request], cursor: str | None) -> None:
        """Carry out operator acts; what they free is read on."""
        for act in self.applier.act(
            requests, now=self.clock.now_ms(), cursor=cursor, hook=self.hook
        ):
            self.log.info(
                "operator_act",
                act=act.act,
                run=act.run_id,
                message_id=act.message_id,
                operator=act.operator,
                outcome=act.outcome,
                detail=act.detail,
            )
            frees = act.outcome == "done" and act.act in FREES
            if frees and act.run_id in self.quarantined:
                self.quarantined.discard(act.run_id)
                self.taken[act.run_id] = None

    def _open_gaps(self, run: str) -> list[tuple[str, int, int]]:
        aggregate = self.applier.aggregates.known(run)
        if aggregate is None:
            return self.file.open_gaps(run)
        return [
            (producer, first, last)
            for producer, sequences in aggregate.producers.items()
            for first, last in sequences.gaps
        ]

    def _look_for_missing(self, before: Mapping[str, list[tuple[str, int, int]]]) -> list[str]:
        """Runs whose newly missing sequences lie in the stream all the same, behind the cursor."""
        restarts = []
        for run, known in before.items():
            opened = [gap for gap in self._open_gaps(run) if gap not in known]
            if opened and self.reader.holds(run, self.trimming.place(run).message_id, opened):
                restarts.append(run)
        if restarts:
            self.applier.apply((), now=self.clock.now_ms(), restarts=restarts, hook=self.hook)
            for run in restarts:
                self.notes.note("missing_found", run)
        return restarts

    def _apply(self, reading: Reading, restarts: Sequence[str]) -> list[Settled]:
        messages = [Message(*item) for item in reading.items if item.run not in self.quarantined]
        if not messages and not restarts:
            return []
        if not self.ownership.trusted:
            self.ownership.distrust()
            self.ownership.keep()
        settled: list[Settled] = []
        for portion, again in self._portions(messages, restarts):
            settled += self._apply_halved(portion, again)
        for each in settled:
            if isinstance(each.outcome, Rejected):
                self.notes.refused[each.outcome.reason.value] += 1
        return settled

    def _portions(
        self, messages: Sequence[Message], restarts: Sequence[str]
    ) -> Iterator[tuple[list[Message], Sequence[str]]]:
        """What to apply in one transaction each: whole runs that fit into memory together."""
        by_run: dict[str, list[Message]] = {run: [] for run in restarts}
        for message in messages:
            by_run.setdefault(message.run, []).append(message)
        again = frozenset(restarts)
        runs = list(by_run)
        while runs:
            count = self.applier.aggregates.portion(runs)
            portion, runs = runs[:count], runs[count:]
            yield (
                [message for run in portion for message in by_run.pop(run)],
                [run for run in portion if run in again],
            )

    def _apply_halved(
        self, messages: Sequence[Message], restarts: Sequence[str] = ()
    ) -> list[Settled]:
        """Apply in one transaction; after an unexpected failure in halves, down to the one at
        fault.
        """
        try:
            settled, _ = self.applier.apply(
                messages, now=self.clock.now_ms(), restarts=restarts, hook=self.hook
            )
        except WriterError:
            raise
        except Exception as error:
            # Whatever it is, it must stop one run, not all.
            if len(messages) > 1:
                middle = len(messages) // 2
                first = self._apply_halved(messages[:middle], restarts)
                rest = [
                    message for message in messages[middle:] if message.run not in self.quarantined
                ]
                return [*first, *self._apply_halved(rest)]
            if not messages:
                raise
            self._quarantine(messages[0], error)
            return []
        for each in settled:
            if isinstance(each.outcome, Held):
                self._hold(each.message, f"contract version {each.outcome.version}")
        return [each for each in settled if not isinstance(each.outcome, Held)]

    def _quarantine(self, message: Message, error: Exception) -> None:
        cause = f"{type(error).__name__} at {place_of(error)}"
        self.applier.quarantine(message, "unexpected", cause, self.clock.now_ms(), self.hook)
        self._hold(message, cause)

    def _hold(self, message: Message, cause: str) -> None:
        self.quarantined.add(message.run)
        self.trimming.look_again(message.run)
        hint = "other runs go on; see `statewriter status`"
        self.notes.note("quarantined", message.run, message_id=message.id, cause=cause, hint=hint)


def place_of(error: Exception) -> str:
    """Where an exception was raised: a name and a line, for a log."""
    trace = error.__traceback__
    place = "unknown"
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_qualname}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
