"""What must hold of a partition file, whatever happened to its writers. Reads only.

Most rules are queries in `sql/invariants.sql`, one by one; what SQL can not compute is here. They
share no code with what writes: a digest of a state is summed up anew from its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from producers.contract.keys import partition_of
from writer.core.definition import definition_digest
from writer.core.outcome import Refusal
from writer.core.parts import PartsCorrupt, build
from writer.errors import StoreUnavailable
from writer.store.database import open_reader, open_resting, rests, translated
from writer.store.queries import named

QUERIES = named("invariants.sql")
SHOWN_MAX = 20
"""Violations of one rule that are named; where there are more, the last says so."""
MODULUS = 2**256

RULES = {
    "foreign_keys": "A row refers to one that is not there.",
    "revisions": "Revisions have a hole, a repeat or a wrong start.",
    "run_revision": "A run is not at the revision of its last event.",
    "segment_revision": "A segment's revision is not 1 and its events.",
    "event_of_nothing": "An event belongs to no run or segment.",
    "lease_generations": "An event was written under an older lease than the one before it.",
    "applied": "A run has more events than commands that were applied.",
    "rejected": "A run's rejections are not as many as its cursor counts.",
    "rejection_of_nothing": "A rejection belongs to no stream.",
    "cursor_behind": "A cursor is behind what its stream's messages wrote.",
    "quarantine_place": "A run waits at a message that is settled.",
    "sequences": "An event's sequence is past its producer's last one.",
    "gaps": "A gap overlaps another, or does not end before its producer's last sequence.",
    "gap_filled": "A sequence that is said to be missing was applied.",
    "epochs": "Epochs overlap, run backwards, or end elsewhere than the file's.",
    "event_of_no_epoch": "An event was written under no epoch.",
    "entries": "A transcript's entries are not as many as its segment counts.",
    "session_events": "A session's events are not as many as its segment counts.",
    "row_of_nothing": "A row belongs to nothing.",
    "later_than_run": "A row has a revision that its run does not have.",
    "update_event": "An update has no event.",
    "tombstones": "A deleted run has rows left.",
    "tokens": "A rejection may hold a token.",
}
"""The rules that are queries, by name."""
COMPUTED = {
    "integrity": "SQLite finds the file damaged.",
    "states": "A state, summed up from its parts, is not what its event says.",
    "definitions": "A definition does not have the digest under which it is stored.",
    "partition": "A run belongs to another partition.",
    "file": "A partition's file is not there though its archive is, or is another partition's.",
    "archive": "The archive lacks, or can not give back, what the file has applied.",
}


class Violation(NamedTuple):
    """A rule that does not hold: its name, the run (None: the file itself), and where."""

    rule: str
    run: str | None
    place: str

    @property
    def sentence(self) -> str:
        """The rule that was broken, in words."""
        return (RULES | COMPUTED)[self.rule]


@contextmanager
def standing(path: Path) -> Iterator[apsw.Connection]:
    """A partition file held still: one read transaction, whether a writer is at work or not.

    Raises FileTooNew, FileCorrupt, StoreUnavailable; also for what is met inside.
    """
    with translated(path):
        try:
            connection = open_reader(path)
        except StoreUnavailable:
            if not rests(path):
                raise
            connection = open_resting(path)
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()


def violations(connection: apsw.Connection) -> Iterator[Violation]:
    """Everything that is wrong with a file, as of one moment if a read transaction is open.

    A damaged file may raise an apsw error midway; `integrity` comes first, and tells it.
    """
    damage = list(islice(_damage(connection), SHOWN_MAX))
    yield from damage
    if damage:
        return
    for rule in RULES:
        yield from _cut(rule, _rows(connection, rule))
    yield from _cut("states", _states(connection))
    yield from _cut("definitions", _definitions(connection))
    yield from _cut("partition", _strangers(connection))


def _cut(rule: str, found: Iterable[tuple[str | None, str]]) -> Iterator[Violation]:
    for count, (run, place) in enumerate(islice(found, SHOWN_MAX + 1)):
        if count == SHOWN_MAX:
            yield Violation(rule, None, f"and more than these {SHOWN_MAX}")
        else:
            yield Violation(rule, run, place)


def _damage(connection: apsw.Connection) -> Iterator[Violation]:
    try:
        for (told,) in connection.execute("PRAGMA integrity_check"):
            if told != "ok":
                yield Violation("integrity", None, str(told))
    except (apsw.CorruptError, apsw.NotADBError) as error:
        yield Violation("integrity", None, str(error))


def _states(connection: apsw.Connection) -> Iterator[tuple[str, str]]:
    for run_key, run_id in list(_rows(connection, "keys")):
        for place in _wrong_states(connection, run_key):
            yield run_id, place


class _Parts:
    """The live parts of a state at a revision, and their sum."""

    def __init__(self) -> None:
        self.live: dict[str, tuple[str, str]] = {}
        self.sum = 0

    def take(self, pointer: str, shape: str, value: str | None) -> None:
        if pointer in self.live:
            self.sum -= _hash(pointer, *self.live.pop(pointer))
        if value is not None:
            self.live[pointer] = (shape, value)
            self.sum += _hash(pointer, shape, value)

    def are(self, digest: bytes) -> bool:
        return self.sum % MODULUS == int.from_bytes(digest)


def _wrong_states(connection: apsw.Connection, run_key: int) -> Iterator[str]:
    """Revisions at which a run's parts do not sum up to the digest that was recorded."""
    proofs = list(_rows(connection, "proofs", run_key))[::-1]
    parts = _Parts()
    for at, changes in groupby(_rows(connection, "parts", run_key), key=itemgetter(0)):
        # A snapshot that changed nothing has no parts: those up to here prove the same sum.
        while proofs and proofs[-1][0] < at:
            revision, digest = proofs.pop()
            if not parts.are(digest):
                yield f"revision {revision}"
        for _, pointer, shape, value in changes:
            parts.take(pointer, shape, value)
    for revision, digest in reversed(proofs):
        if not parts.are(digest):
            yield f"revision {revision}"
    ((last, digest),) = _rows(connection, "last_proof", run_key)
    if not parts.are(digest):
        yield f"the run's own digest, of revision {last}"
    try:
        build((pointer, shape, value) for pointer, (shape, value) in parts.live.items())
    except PartsCorrupt as error:
        yield str(error)


def _hash(pointer: str, shape: str, value: str) -> int:
    name = pointer.encode()
    framed = b"%d:%b%b:%b" % (len(name), name, shape.encode(), value.encode())
    return int.from_bytes(sha256(framed).digest())


def _definitions(connection: apsw.Connection) -> Iterator[tuple[str | None, str]]:
    for digest, text, run_id in _rows(connection, "definitions"):
        try:
            found = definition_digest(orjson.loads(text))
        except (orjson.JSONDecodeError, Refusal):
            found = None
        if found != digest:
            yield run_id, f"definition {digest.hex()}"


def _strangers(connection: apsw.Connection) -> Iterator[tuple[str, str]]:
    for partition, partitions in _rows(connection, "identity"):
        for _, run_id in _rows(connection, "keys"):
            right = partition_of(run_id, partitions)
            if right != partition:
                yield run_id, f"it is in partition {partition}, not {right}"


def _rows(connection: apsw.Connection, query: str, *bindings: int) -> Iterator[tuple[Any, ...]]:
    return connection.execute(QUERIES[query], bindings)
