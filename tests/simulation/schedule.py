"""A schedule from its seed: a safety phase with faults, then a liveness phase without; then
checks.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.simulation import turns
from tests.simulation.actor import Actor, Violation
from tests.simulation.checks import check_file, check_rebuilds, check_receipts
from tests.simulation.client import Client
from tests.simulation.fate import Fate, draw
from tests.simulation.oracle import parse
from tests.simulation.world import TTL_MS, World
from writer.streams.control import ask
from writer.streams.ownership import writer_id

STEPS_MAX = 400
QUIET_STEPS = 4


@dataclass
class Outcome:
    """What a schedule did."""

    seed: int
    fate: Fate | None = None
    faults: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    commits: int = 0
    error: BaseException | None = None
    trace: list[str] = field(default_factory=list)


def memory_folder() -> str | None:
    """Where files cost no disk, if the machine has such a place."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def run_schedule(seed: int) -> Outcome:
    """Run one; whatever is wrong stands in `error`."""
    outcome = Outcome(seed)
    root = Path(tempfile.mkdtemp(prefix="sw-sim-", dir=memory_folder()))
    random = Random(seed)
    outcome.fate = draw(random)
    world = World(random, outcome.fate, root)
    try:
        play(world)
    except (Violation, Exception) as error:  # noqa: BLE001 - every failure is a finding
        outcome.error = error
    finally:
        for actor in world.living():
            actor.kill()
        world.close()
        shutil.rmtree(root, ignore_errors=True)
    outcome.faults = world.faults
    # The only part of it that a process has from elsewhere.
    outcome.trace = [line.replace(writer_id(""), "") for line in world.trace]
    outcome.messages, outcome.commits = len(world.oracle.log), world.watch.stand.commit_seq
    return outcome


def play(world: World) -> None:
    """Both phases, and the checks at the end."""
    for _ in range(world.fate.turns):
        turns.take_turn(world)
    world.trace.append("calm")
    world.calm, world.poison = True, 0
    world.frozen_at = None
    for actor in world.living():
        # Whoever stood still wakes up; whoever lost the partition meanwhile must notice by itself.
        while not actor.over and actor.paused_at:
            world.run(actor)
    for message in world.held_back:
        world.deliver(*message)
    drain(world)
    check_file(world)
    check_receipts(world)
    check_rebuilds(world)


def drain(world: World) -> None:
    """I13: once faults stop, everything that Redis holds is settled."""
    quiet = 0
    swept: Actor | None = None
    for _ in range(STEPS_MAX):
        world.now += TTL_MS // 2
        owner = owner_of(world)
        if owner is None:
            continue
        if owner is not swept or quiet % 2 == 1:
            # As the daemon does once a partition is taken, and then from time to time.
            turns.look_around(world)
            swept = owner
        release(world)
        before = len(world.oracle.log)
        world.run(owner)
        waits = world.server.keys.sorted_sets or world.watch.quarantined
        idle = len(world.oracle.log) == before and not waits
        quiet = quiet + 1 if idle and not owner.over and not owner.loop.taken else 0
        if quiet == QUIET_STEPS:
            return check_drained(world)
    raise Violation(f"I13: the backlog is not drained: {world.server.keys.streams}")


def owner_of(world: World) -> Actor | None:
    """The writer that has the partition; all others step until they have noticed."""
    living = world.living()
    for actor in living[:-1]:
        world.run(actor)
    living = world.living()
    if not living:
        # The lease of one that died on another host has to end first, whatever the clock did.
        expires = world.server.keys.strings.get(world.keys.owner(0), (b"", 0))[1]
        world.now += max(expires - world.redis_ms(), 0)
        world.start()
        return None
    return living[0]


def release(world: World) -> None:
    """An operator lets every quarantined run go on."""
    for run, message_id in world.watch.quarantined.items():
        account = world.oracle.account(run)
        key = world.keys.run(0, run)
        stream = world.server.keys.streams.get(key)
        newer = any(
            item.id == message_id and parse(run, item.fields).newer
            for item in (stream.items if stream is not None else ())
        )
        act = "skip" if newer else "resume"
        place = (account.incarnation, message_id)
        ask(Client(world.server), world.keys, 0, act, run, place, "op")


def check_drained(world: World) -> None:
    """Nothing is left in Redis, but what the replay window keeps."""
    for key, stream in world.server.keys.streams.items():
        if not key.startswith(world.keys.run_prefix(0)):
            continue
        run = key.removeprefix(world.keys.run_prefix(0))
        world.trimmed(key, stream.items)
        if stream.items and not world.fate.window_ms:
            raise Violation(f"I13: {run} still holds {len(stream.items)} messages")
