"""What operators see and did: quarantines, their acts, and what became of refused commands."""

from __future__ import annotations

from typing import Any

import apsw

from producers.contract.keys import partition_of
from writer.errors import Usage
from writer.store.queries import named
from writer.store.reader.files import Files, OpenFile
from writer.store.reader.query import Record, each

QUERIES = named("audit.sql")
REDRIVE = "redrive-"
"""What the producer id of a redriven command begins with; the refused message's id follows."""


def quarantined(files: Files, run_id: str | None = None) -> list[Record]:
    """Runs that wait, the longest first.

    `{partition, run_id, incarnation, message_id, cause, detail, version, since}`
    """
    found: list[Record] = []
    for identity, file in files.all():
        with file.read() as connection:
            rows = _all(connection, "quarantined", run_id=run_id)
        found += [{"partition": identity.partition, **row} for row in rows]
    return sorted(found, key=lambda row: (row["since"], row["run_id"]))


def cursor_of(files: Files, run_id: str) -> Record | None:
    """`{partition, incarnation, message_id}`: where a run's own stream is settled up to."""
    home = _home(files, run_id)
    if home is None:
        return None
    with home[1].read() as connection:
        found = _one(connection, "cursor", run_id=run_id)
    return None if found is None else {"partition": home[0], **found}


def act_outcome(
    files: Files, partition: int, act: str, run_id: str, place: tuple[str, str]
) -> Record | None:
    """`{outcome: done | refused, detail}` of an act; None while it waits. `place` is the act's own
    id and the message's that it names.
    """
    control_id, message_id = place
    with _file(files, partition).read() as connection:
        return _one(
            connection,
            "act",
            act=act,
            run_id=run_id,
            control_id=control_id,
            message_id=message_id,
        )


def rejection_story(files: Files, rejection: Record) -> Record:
    """What hangs on one rejection, as `StateReader.rejection` gives it:

    acts        [{act, operator, outcome, detail, control_id, recorded_at}] that named it
    dropped_at  when its bytes were dropped; None: they were not
    redriven    see `redriven`
    redrive_of  the id of the rejection that it is the redrive of, if it is one
    """
    partition, seq = _split(rejection["id"])
    with _file(files, partition).read() as connection:
        dropped = _one(connection, "dropped", rejection_seq=seq)
        acts = _all(
            connection,
            "acts_on_message",
            run_id=rejection["run_id"],
            incarnation=rejection["incarnation"],
            message_id=rejection["message_id"],
        )
    return {
        "acts": acts,
        "dropped_at": None if dropped is None else dropped["dropped_at"],
        "redriven": redriven(files, rejection),
        "redrive_of": _origin(files, rejection),
    }


def redriven(files: Files, rejection: Record) -> Record | None:
    """What became of a rejection that was redriven; None if it was not, or that still waits.

    {producer, outcome: applied, message_id, segment, revision}
    {producer, outcome: rejected, message_id, reason, detail, id: the new rejection's}
    {producer, outcome: settled}: it made no event, and was not refused
    """
    producer = redrive_producer(rejection["message_id"])
    home = _home(files, rejection["run_id"])
    if home is None:
        return None
    partition, file = home
    with file.read() as connection:
        key = _one(connection, "run_key", run_id=rejection["run_id"])
        if key is None:
            return None
        made = _one(connection, "applied_as", **key, producer=producer)
        if made is not None:
            return {"producer": producer, "outcome": "applied", **made}
        refused = _one(connection, "refused_as", **key, producer=producer)
        if refused is not None:
            named_ = {"id": f"{partition}:{refused.pop('rejection_seq')}"}
            return {"producer": producer, "outcome": "rejected", **refused, **named_}
        if _one(connection, "has_sent", **key, producer=producer) is not None:
            return {"producer": producer, "outcome": "settled"}
    return None


def redrive_producer(message_id: str) -> str:
    """The producer id under which a refused message's command is sent again."""
    return f"{REDRIVE}{message_id}"


def _origin(files: Files, rejection: Record) -> str | None:
    producer = rejection["producer"] or ""
    home = _home(files, rejection["run_id"])
    if home is None or not producer.startswith(REDRIVE):
        return None
    partition, file = home
    with file.read() as connection:
        key = _one(connection, "run_key", run_id=rejection["run_id"])
        if key is None:
            return None
        message_id = producer.removeprefix(REDRIVE)
        found = _one(connection, "rejection_of", **key, message_id=message_id)
    return None if found is None else f"{partition}:{found['rejection_seq']}"


def _home(files: Files, run_id: str) -> tuple[int, OpenFile] | None:
    """The file of a run's own partition: where a redriven command goes, wherever it was refused."""
    for identity, file in files.all():
        if identity.partition == partition_of(run_id, identity.partitions):
            return identity.partition, file
    return None


def _split(rejection_id: str) -> tuple[int, int]:
    partition, _, seq = rejection_id.partition(":")
    return int(partition), int(seq)


def _file(files: Files, partition: int) -> OpenFile:
    for identity, file in files.all():
        if identity.partition == partition:
            return file
    raise Usage(f"there is no file of partition {partition}")


def _all(connection: apsw.Connection, query: str, **bindings: Any) -> list[Record]:
    return list(each(connection, QUERIES[query], bindings))


def _one(connection: apsw.Connection, query: str, **bindings: Any) -> Record | None:
    rows = _all(connection, query, **bindings)
    return rows[0] if rows else None
