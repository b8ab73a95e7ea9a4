"""A batch of messages becomes one transaction: decode, facts, decide, commit.

Nothing here reads Redis or a clock, so a live daemon, a replay and a test apply alike.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from producers.contract import limits
from producers.contract.envelope import Decoded, decode, fields_text
from producers.contract.keys import partition_of
from producers.contract.reasons import Reason
from writer.core.acts import acted_at, begin_incarnation, break_lease
from writer.core.decide import decide
from writer.core.dialect import Dialects
from writer.core.facts import Wanted, want
from writer.core.outcome import Applied, Held, Outcome, Rejected
from writer.core.run import Run
from writer.dialects import DIALECTS
from writer.errors import WriterError
from writer.store.commit import (
    FREES,
    ActRow,
    Batch,
    DropRow,
    Hook,
    QuarantineRow,
    RejectionRow,
    no_hook,
)
from writer.store.partition import PartitionFile, Quarantine
from writer.streams.archive import Act, Archive, Record

CACHE_BYTES = 32 * 1024 * 1024
RUN_BYTES = 4 * 1024
"""About what an aggregate costs beside its state."""
ITEM_BYTES = 512
ROW_BYTES = 200
"""A part of a state in memory, beside its text."""
ARRIVAL_MS_MAX = limits.COUNTER_MAX
"""A message id may name any 64-bit millisecond; times stay where every parser keeps them exactly.
"""


class Message(NamedTuple):
    """One stream item with its token already sealed. `fields` as Redis has them.

    `incarnation` is set for one out of an archive: there a stream's incarnations follow each other.
    """

    run: str
    id: str
    fields: Mapping[bytes, bytes]
    incarnation: int | None = None


class Request(NamedTuple):
    """An operator's act as it was asked for: see `writer.core.acts`."""

    control_id: str
    act: str
    run: str
    incarnation: int
    message_id: str
    operator: str


class Settled(NamedTuple):
    """How one message ended."""

    message: Message
    decoded: Decoded
    outcome: Outcome


def arrival_ms(message_id: str) -> int:
    """The milliseconds of a message id: the only time that decisions know."""
    return min(order_of(message_id)[0], ARRIVAL_MS_MAX)


def order_of(message_id: str) -> tuple[int, int]:
    """A message id as what it is compared by: two numbers, never its text."""
    ms, _, n = message_id.partition("-")
    return int(ms), int(n)


class Aggregates:
    """Aggregates in memory, least recently used ones dropped above `bytes_max`."""

    def __init__(self, file: PartitionFile, bytes_max: int = CACHE_BYTES) -> None:
        self._file = file
        self._bytes_max = bytes_max
        self._runs: OrderedDict[str, tuple[Run, int]] = OrderedDict()
        self._bytes = 0

    def get(self, run_id: str) -> Run:
        """The run's aggregate, loaded if need be."""
        known = self._runs.get(run_id)
        if known is not None:
            self._runs.move_to_end(run_id)
            return known[0]
        run = self._file.load(run_id)
        weight = _weight(run)
        self._runs[run_id] = (run, weight)
        self._bytes += weight
        return run

    def known(self, run_id: str) -> Run | None:
        """The run's aggregate if it is in memory."""
        return self._runs.get(run_id, (None, 0))[0]

    def portion(self, run_ids: Sequence[str]) -> int:
        """Load aggregates in turn while they fit together; returns how many did, at least one."""
        held = 0
        for place, run_id in enumerate(run_ids):
            self.get(run_id)
            held += self._runs[run_id][1]
            if held > self._bytes_max:
                return max(place, 1)
        return len(run_ids)

    def weigh(self, runs: Iterable[Run]) -> None:
        """Count what a committed batch's aggregates have grown to, and drop what is too much."""
        for run in runs:
            known = self._runs.get(run.run_id)
            weight = _weight(run)
            self._bytes += weight - (known[1] if known is not None else 0)
            self._runs[run.run_id] = (run, weight)
        while self._bytes > self._bytes_max and len(self._runs) > 1:
            _, (_, weight) = self._runs.popitem(last=False)
            self._bytes -= weight

    def drop(self, run_ids: Iterable[str]) -> None:
        """Forget aggregates that may differ from what is stored."""
        for run_id in run_ids:
            known = self._runs.pop(run_id, None)
            self._bytes -= known[1] if known is not None else 0


def _weight(run: Run) -> int:
    items = len(run.attempts) + len(run.updates) + len(run.segments) + len(run.producers)
    items += len(run.work_items) + len(run.invocations) + len(run.suspensions)
    rows, size = run.state_size
    # A decoded document is some four times its text.
    state = rows * ROW_BYTES + size * (5 if run.document is not None else 1)
    return RUN_BYTES + items * ITEM_BYTES + state


@dataclass(slots=True)
class Applier:
    """Applies batches to one partition file. `partitions` tells which runs belong to it. With an
    `archive`, a batch is synced there inside its transaction, before anything else.
    """

    file: PartitionFile
    partition: int
    partitions: int
    aggregates: Aggregates
    archive: Archive | None = None
    dialects: Dialects = field(default_factory=lambda: DIALECTS)

    def apply(
        self,
        messages: Iterable[Message],
        *,
        now: int,
        restarts: Iterable[str] = (),
        archived: str | None = None,
        hook: Hook = no_hook,
    ) -> tuple[list[Settled], int]:
        """Settle messages in one transaction; returns how each ended, and the commit_seq.

        A run's messages keep their order; runs are taken one by one. Messages at or before the
        run's cursor are passed over. `restarts` names runs whose stream is read from its start
        again, as a new incarnation. `archived` is where these messages end in the archive, if they
        come from there. `now` (ms) dates quarantines only. Whatever is raised, nothing was written
        and the batch's aggregates are forgotten.
        """
        by_run: dict[str, list[Message]] = {run_id: [] for run_id in restarts}
        again = set(by_run)
        for message in messages:
            by_run.setdefault(message.run, []).append(message)
        batch = Batch(archived=archived)
        settled: list[Settled] = []
        records: list[Record] = []
        try:
            for run_id, items in by_run.items():
                run = self.aggregates.get(run_id)
                if run_id in again:
                    begin_incarnation(run, run.cursor.incarnation + 1)
                batch.runs.append(run)
                settled.extend(self._decide(run, items, batch, records, now))
            batch.messages = len(records)
            hook("decided")
            batch.to_archive = partial(self._append, records)
            commit_seq = self.file.commit(batch, hook)
        except BaseException as error:
            self.aggregates.drop(by_run)
            if self.archive is not None and batch.archived and _is_unexpected(error):
                # It will be halved, and what quarantines its run must not stand in the archive.
                self.archive.take_back()
            raise
        self.aggregates.weigh(batch.runs)
        return settled, commit_seq

    def quarantine(
        self, message: Message, cause: str, detail: str, now: int, hook: Hook = no_hook
    ) -> None:
        """Stop a run at a message that can not be settled for a reason of ours (`now` in ms)."""
        run = self.aggregates.get(message.run)
        row = QuarantineRow(run.run_key, message.id, cause, detail, None, now)
        self.file.commit(Batch(runs=[run], quarantines=[row]), hook)

    def act(
        self,
        requests: Iterable[Request],
        *,
        now: int,
        cursor: str | None = None,
        hook: Hook = no_hook,
    ) -> list[ActRow]:
        """Carry out operator acts, or record why not; `cursor` is the control stream's.

        An act counts only while its run stands where the act says: else it was meant for another
        moment, and is refused. The whole is one transaction.
        """
        batch = Batch(control_cursor=cursor)
        waiting = self.file.quarantined()
        touched: dict[str, Run] = {}
        try:
            for request in requests:
                run = touched.setdefault(request.run, self.aggregates.get(request.run))
                if request.act == "drop":
                    refused = self._drop(run, request, batch)
                else:
                    refused = _carry_out(run, request, waiting.get(request.run))
                if not refused and request.act in FREES:
                    del waiting[request.run]
                batch.acts.append(ActRow(*request, "refused" if refused else "done", refused, now))
            batch.runs.extend(run for run in touched.values() if run.stored)
            done = [Act(*row[:6]) for row in batch.acts if row.outcome == "done"]
            batch.to_archive = partial(self._append, (), done)
            self.file.commit(batch, hook)
        except BaseException:
            self.aggregates.drop(touched)
            raise
        return batch.acts

    def restore_acts(
        self,
        acts: Iterable[Act],
        *,
        now: int,
        archived: str | None = None,
        hook: Hook = no_hook,
    ) -> None:
        """Know acts of an archive, before the messages that they name are decided again."""
        batch = Batch(archived=archived)
        touched: dict[str, Run] = {}
        for act in acts:
            run = touched.setdefault(act.run, self.aggregates.get(act.run))
            if act.act == "break":
                # Refused unless the cursor stands there already: then the message is not read
                # again.
                _carry_out(run, Request(*act), None)
            elif act.act == "drop" and run.stored:
                # What was refused later is not kept at all: see `rejection`.
                self._drop(run, Request(*act), batch)
            batch.acts.append(ActRow(*act, "done", "", now))
        batch.runs.extend(run for run in touched.values() if run.stored)
        self.file.commit(batch, hook)
        self.aggregates.drop(touched)

    def _append(self, records: Sequence[Record], acts: Sequence[Act] = ()) -> str | None:
        if self.archive is None or not (records or acts):
            return None
        return self.archive.append(records, acts).text()

    def _drop(self, run: Run, request: Request, batch: Batch) -> str:
        """Forget the bytes of a refused message; returns why not, or nothing."""
        place = (request.incarnation, request.message_id)
        kept = self.file.is_kept(run, place)
        if kept is None:
            return "no message of the run was refused there"
        if not kept or place in run.drops:
            return "its bytes were dropped already"
        run.drops[place] = acted_at(request.control_id)
        batch.drops.append(DropRow(run.drops[place], run.run_key, *place))
        return ""

    def _decide(
        self,
        run: Run,
        messages: list[Message],
        batch: Batch,
        records: list[Record],
        now: int,
    ) -> list[Settled]:
        decoded = [decode(message.run, message.id, message.fields) for message in messages]
        if partition_of(run.run_id, self.partitions) != self.partition:
            decoded = [_misplaced(each) for each in decoded]
        wanted = Wanted()
        for each in decoded:
            want(run, each, wanted)
        facts = self.file.facts(run, wanted)
        settled: list[Settled] = []
        rows = len(batch.rows)
        for message, each in zip(messages, decoded, strict=True):
            order = order_of(message.id)
            if _is_passed(run, message, order):
                continue
            arrival = min(order[0], ARRIVAL_MS_MAX)
            outcome = decide(run, each, arrival, facts, self.dialects)
            settled.append(Settled(message, each, outcome))
            if isinstance(outcome, Held):
                batch.quarantines.append(_quarantine_row(run, message, outcome, now))
                break
            records.append(Record(run.run_id, run.cursor.incarnation, message.id, message.fields))
            if isinstance(outcome, Rejected):
                batch.rejections.append(rejection(run, message, each, outcome))
            elif isinstance(outcome, Applied):
                if run.changed.erased and outcome.revision == _grave_revision(run):
                    # What this batch would have added is deleted with the rest.
                    del batch.rows[rows:]
                    batch.rejections = [
                        kept for kept in batch.rejections if kept.run_key != run.run_key
                    ]
                batch.rows.extend(outcome.rows)
        return settled


def _is_unexpected(error: BaseException) -> bool:
    """Whether the loop will try the batch again in halves."""
    return isinstance(error, Exception) and not isinstance(error, WriterError)


def _carry_out(run: Run, request: Request, waiting: Quarantine | None) -> str:
    """Do what an act asks of the aggregate; returns why not, or nothing."""
    place = (request.incarnation, request.message_id)
    cursor = run.cursor
    if request.act in FREES:
        if waiting is None or (waiting.incarnation, waiting.message_id) != place:
            return "the run is not quarantined at this message"
        if request.act == "skip":
            run.skips.add(place)
        return ""
    if request.act == "redrive":
        return ""
    if request.act == "break":
        if (cursor.incarnation, cursor.message_id) != place:
            return f"the run's cursor is at {cursor.message_id} of incarnation {cursor.incarnation}"
        if not break_lease(run, arrival_ms(cursor.message_id)):
            return "the run has no lease in force"
        run.breaks.add(place)
        return ""
    return "no such act"


def _misplaced(decoded: Decoded) -> Decoded:
    """What a message is in a partition that its run does not belong to."""
    if decoded.reason is Reason.RUN_ID_INVALID:
        return decoded
    return decoded._replace(
        command=None, newer_version=None, reason=Reason.PARTITION_WRONG, detail=""
    )


def _is_passed(run: Run, message: Message, order: tuple[int, int]) -> bool:
    """Whether the message lies at or before the cursor. A later incarnation begins anew."""
    cursor = run.cursor
    if message.incarnation is not None and message.incarnation != cursor.incarnation:
        if message.incarnation < cursor.incarnation:
            return True
        begin_incarnation(run, message.incarnation)
    return order <= order_of(cursor.message_id)


def _quarantine_row(run: Run, message: Message, held: Held, now: int) -> QuarantineRow:
    detail = f"contract version {held.version}; this writer knows {limits.CONTRACT_VERSION}"
    return QuarantineRow(run.run_key, message.id, "version_newer", detail, held.version, now)


def _grave_revision(run: Run) -> int | None:
    return run.tombstone.revision if run.tombstone is not None else None


def rejection(run: Run, message: Message, decoded: Decoded, outcome: Rejected) -> RejectionRow:
    """A refused message as it is kept: whole, or its head and hash if it is over the limit."""
    size = sum(len(name) + len(value) for name, value in message.fields.items())
    digest = sha256()
    for name, value in sorted(message.fields.items()):
        digest.update(b"%d:%b%d:%b" % (len(name), name, len(value), value))
    dropped_at = run.drops.get((run.cursor.incarnation, message.id))
    keep = size <= limits.REFUSED_BYTES_MAX and dropped_at is None
    cut = limits.REFUSED_HEAD_BYTES
    return RejectionRow(
        run_key=run.run_key,
        incarnation=run.cursor.incarnation,
        message_id=message.id,
        kind=decoded.kind,
        producer=decoded.producer,
        producer_seq=decoded.seq,
        reason=outcome.reason.value,
        detail=outcome.detail[: limits.REASON_CHARS_MAX],
        fields=fields_text(message.fields) if keep else None,
        head=None
        if keep or dropped_at is not None
        else fields_text({name[:100]: value[:cut] for name, value in message.fields.items()}),
        fields_bytes=size,
        fields_sha256=digest.digest(),
        body_hash=decoded.body_hash,
        recorded_at=arrival_ms(message.id),
        dropped_at=dropped_at,
    )
