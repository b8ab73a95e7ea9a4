"""At the end: the file against the oracle, the invariants, the receipts, and two rebuilds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from producers.contract.envelope import seal
from tests.simulation.actor import Violation
from tests.simulation.folders import FILE, begin_file
from tests.simulation.oracle import Account, Acted, Settled
from tests.simulation.story import Story, text
from tests.simulation.world import World
from tests.support.invariants import broken_in
from tests.support.rebuilds import archived_in, digests_of, rebuild, replay
from writer.apply import Aggregates, Applier, Message
from writer.core.decide import RULES_VERSION
from writer.store.partition import PartitionFile, partition_path
from writer.streams.archive import Act

Facts = dict[str, Any]
BATCHES = (1, 7, 7, 7, 200, 200, 200, None, None, None)


def check_file(world: World) -> None:
    """What the file has of each run is what the oracle says."""
    world.watch.check_cursors()
    for run, account in world.oracle.runs.items():
        expected, found = told_of(account), stored_of(world, run)
        for what, value in expected.items():
            if found.get(what) != value:
                raise Violation(f"{run}: {what} is {found.get(what)}, must be {value}")
    broken = broken_in(world.data)
    if broken:
        raise Violation("\n".join(broken))


def told_of(account: Account) -> Facts:
    """An account as plain values."""
    story = account.story
    told: Facts = {
        "producers": [
            [each.no, name, each.last, each.state, each.lease]
            for name, each in account.senders.items()
        ],
        "missing": sorted(
            (each.no, seq) for each in account.senders.values() for seq in each.missing
        ),
        "rejections": account.rejections,
        "deleted": story.deleted,
        "events": [
            (each.segment, each.revision, each.type, each.message, each.generation)
            for each in story.events
        ],
    }
    lease = story.lease
    told["lease"] = lease and [
        lease.generation,
        *lease.owner,
        lease.token,
        lease.length,
        lease.renewed,
        lease.expires,
        lease.released,
    ]
    told |= _told_of_life(story)
    return told


def _told_of_life(story: Story) -> Facts:
    life = story.life
    if life is None:
        return {"run": None}
    return {
        "run": [life.status, life.title, life.revision, int(life.reserved)],
        "state": text(life.state),
        "updates": dict(sorted(life.current.items())),
        "segments": [
            [
                each.no,
                key,
                each.session,
                each.status,
                each.revision,
                each.entry_count,
                len(each.events),
                int(each.reclaimed),
            ]
            for key, each in life.segments.items()
        ],
    }


def _assembled(parts: dict[str, tuple[str, str]], pointer: str) -> Any:
    """A state from its parts. No key of a simulated one needs an escape."""
    shape, value = parts[pointer]
    if shape == "value":
        return json.loads(value)
    inside = f"{pointer}/"
    if shape == "array":
        first, length = json.loads(value)
        return [_assembled(parts, f"{inside}{first + place}") for place in range(length)]
    keys = [each[len(inside) :] for each in parts if each.startswith(inside)]
    return {key: _assembled(parts, inside + key) for key in keys if "/" not in key}


def stored_of(world: World, run: str) -> Facts:
    """The same of the file."""
    rows = world.watch.rows
    keys = rows("SELECT run_key FROM cursors WHERE run_id = ?", run)
    key = keys[0][0] if keys else -1
    gaps = rows("SELECT producer_no, first_seq, last_seq FROM gaps WHERE run_key = ?", key)
    lease = rows(
        "SELECT generation, owner_type, owner_id, token_sha256, lease_ms, renewed_at, "
        "expires_at, released_at FROM leases WHERE run_key = ?",
        key,
    )
    head = rows("SELECT status, title, revision, reserved FROM runs WHERE run_key = ?", key)
    parts = rows(
        "SELECT pointer, shape, value, max(revision) FROM state_parts WHERE run_key = ? "
        "GROUP BY pointer",
        key,
    )
    state = {pointer: (shape, value) for pointer, shape, value, _ in parts if value is not None}
    return {
        "producers": [
            list(row)
            for row in rows(
                "SELECT producer_no, producer, last_seq, state_seq, lease_seq FROM producers "
                "WHERE run_key = ? ORDER BY producer_no",
                key,
            )
        ],
        "missing": sorted((no, seq) for no, first, last in gaps for seq in range(first, last + 1)),
        "rejections": rows(
            "SELECT message_id, reason FROM rejections WHERE run_key = ? ORDER BY rejection_seq",
            key,
        ),
        "deleted": bool(rows("SELECT 1 FROM tombstones WHERE run_key = ?", key)),
        "events": rows(
            "SELECT segment, revision, type, message_id, lease_generation FROM events "
            "WHERE run_key = ? ORDER BY event_seq",
            key,
        ),
        "lease": list(lease[0]) if lease else None,
        "run": list(head[0]) if head else None,
        "state": text(_assembled(state, "")) if state else None,
        "updates": {
            (type_, key_): text(json.loads(data))
            for type_, key_, data, _ in rows(
                "SELECT type, key, data, max(update_seq) FROM updates WHERE run_key = ? "
                "GROUP BY type, key ORDER BY type, key",
                key,
            )
        },
        "segments": [
            list(row)
            for row in rows(
                "SELECT segment, capture_key, session, status, revision, entry_count, "
                "event_count, reclaimed FROM segments WHERE run_key = ? ORDER BY segment",
                key,
            )
        ],
    }


def check_receipts(world: World) -> None:
    """A receipt tells what became of its message, or of the original that it repeats."""
    unnoticed = world.faults["restore file"] and not world.archive_whole
    if world.folder_restored or world.time_lost or unnoticed:
        # Receipts of a time that was lost are not taken back. Without an archive and a sync of
        # every commit, they may go out a second before Redis hears of the commit.
        return
    prefix = world.keys.reply(0, "")
    ends: dict[tuple[str, str], set[str]] = {}
    for (run, (_, message_id)), verdict in world.oracle.verdicts.items():
        ends.setdefault((run, message_id), set()).add(verdict.partition(" ")[0])
    for key, stream in world.server.keys.streams.items():
        for item in stream.items if key.startswith(prefix) else ():
            named = {name.decode(): value.decode() for name, value in item.fields.items()}
            known = ends.get((named["run"], named["message_id"]), set())
            if known and named["outcome"] not in known and "duplicate" not in known:
                raise Violation(f"a receipt says {named}, but it was {known}")


def check_rebuilds(world: World) -> None:
    """I10: the archive, or without one the messages in the order of the oracle, make the same
    file again, whatever the batches.
    """
    live = digests_of(world.data / FILE)
    batch = world.random.choice(BATCHES)
    into = world.new_folder()
    begin_file(into)
    if world.archive_whole:
        upto = archived_in(world.data / FILE)
        rebuilt = rebuild(world.archive_folder, into, batch, (0, 2), upto)
    else:
        rebuilt = _from_log(world, into, batch)
    again = digests_of(rebuilt)
    if live != again:
        unlike = sorted(run for run in live | again if live.get(run) != again.get(run))
        raise Violation(f"I10: rebuilt in batches of {batch} {unlike} became something else")


def _from_log(world: World, into: Path, batch: int | None) -> Path:
    path = partition_path(into, 0)
    file = PartitionFile.open(
        path, partition=0, partitions=2, lineage="again", now=0, synchronous="OFF"
    )
    try:
        file.take("again", rules_version=RULES_VERSION, now=0)
        applier = Applier(file, 0, 2, Aggregates(file))
        log = world.oracle.log
        acts = [
            Act(each.control, each.act, each.run, each.incarnation, each.id)
            for each in log
            if isinstance(each, Acted)
        ]
        messages = [
            Message(each.run, each.id, seal(each.fields), each.incarnation)
            for each in log
            if isinstance(each, Settled)
        ]
        replay(applier, acts, messages, batch)
    finally:
        file.close()
    return path
