"""Messages out of the archive, decided again: to catch up, or to build a partition anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from writer.apply import Applier, Message, order_of
from writer.streams.archive import Position, Record, read_archive

BATCH_MESSAGES = 500

Until = tuple[int, int] | None
"""Stop before messages past this id (ms, n)."""


def catch_up(applier: Applier, folder: Path, *, now: int, until: Until = None) -> int:
    """Apply what the archive holds past the file's own position; returns how many messages that
    was.

    Operator acts first: those that messages are decided by. Messages that are settled already, or
    stand in the archive twice, are passed over. Dying in between only repeats it.
    """
    since = Position.parse(applier.file.identity().archived)
    acts = [act for _, found, _ in read_archive(folder, since) for act in found]
    if acts:
        applier.restore_acts(acts, now=now)
    applied = 0
    for messages, position in _batches(folder, since, until):
        settled, _ = applier.apply(
            messages, now=now, archived=None if until is not None else position.text()
        )
        applied += len(settled)
    return applied


def _batches(
    folder: Path, since: Position, until: Until
) -> Iterator[tuple[list[Message], Position]]:
    batch: list[Message] = []
    position = since
    for records, _, position in read_archive(folder, since):
        batch.extend(_message(record) for record in records if _within(record, until))
        if len(batch) >= BATCH_MESSAGES:
            yield batch, position
            batch = []
    if position != since:
        yield batch, position


def _message(record: Record) -> Message:
    return Message(record.run, record.id, record.fields, record.incarnation)


def _within(record: Record, until: Until) -> bool:
    return until is None or order_of(record.id) <= until
