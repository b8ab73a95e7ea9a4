"""What may happen in one turn: hosts send, writers move, things break."""

from __future__ import annotations

import shutil

from tests.simulation.client import Client
from tests.simulation.folders import copy_data, has_file, keep_segments
from tests.simulation.hosts import INVALID_RUN, WRONG_PARTITION
from tests.simulation.server import Keyspace, Stream, place_of
from tests.simulation.world import TTL_MS, Backup, World
from writer.clock import Clock
from writer.streams.control import ask
from writer.streams.reach import expire
from writer.streams.sweep import sweep

DAY_MS = 24 * 60 * 60 * 1_000
CENTURY_MS = 100 * 365 * DAY_MS
ACTS = ("skip", "resume", "break", "break")


class NeverEnded:
    """What the sweep looks at to see whether it should stop."""

    @staticmethod
    def is_set() -> bool:
        return False


def take_turn(world: World) -> None:
    """One turn of the safety phase."""
    random, fate = world.random, world.fate
    world.now += random.choice([0, 1, 1, 7, 80, 400, 1_500])
    send(world)
    if (fate.streams or fate.redis) and random.random() < 0.3:
        world.snapshots = [*world.snapshots[-3:], world.server.keys.copy()]
    for rate, happens in (
        (fate.streams, break_stream),
        (fate.redis, break_redis),
        (fate.clocks, move_clocks),
        (fate.restores, back_up_or_restore),
        (fate.expiry, expire_archive),
        (fate.operators, operate),
    ):
        if random.random() < rate:
            happens(world)
    for _ in range(random.randint(0, 3)):
        move(world)
    if random.random() < 0.1:
        look_around(world)


def send(world: World) -> None:
    """Hosts send some messages; some are lost on their way, come late, or come twice."""
    random, fate = world.random, world.fate
    for _ in range(random.choice([0, 1, 2, 4, 9])):
        run = random.choice(world.runs)
        if fate.damage and random.random() < 0.03:
            run = random.choice([WRONG_PARTITION, INVALID_RUN])
        fields = world.hosts.message(run)
        if random.random() < fate.lose:
            world.note("lost")
            if random.random() < 0.6:
                world.held_back.append((run, fields))
            continue
        world.deliver(run, fields)
        if random.random() < fate.duplicate:
            world.note("duplicate")
            if random.random() < 0.5:
                world.deliver(run, fields)
            else:
                world.held_back.append((run, fields))
        if world.held_back and random.random() < 0.3:
            world.note("late")
            world.deliver(*world.held_back.pop(random.randrange(len(world.held_back))))


def move(world: World) -> None:
    """A writer makes a step, wakes up, steps down, or a new one comes."""
    random, living = world.random, world.living()
    if not living or (len(living) < 3 and random.random() < 0.08):
        if not living or random.random() < 0.5:
            world.now += random.choice([0, TTL_MS + 1])
        if living:
            world.note("contend")
        world.start()
        return
    actor = random.choice(living)
    if actor.paused_at:
        if random.random() < 0.3:
            world.note("wake", actor.name)
            world.run(actor)
        return
    if actor.loop is not None and random.random() < world.fate.leave:
        world.note("leave", actor.name)
        actor.leave()
    world.run(actor)
    if actor.paused_at and random.random() < world.fate.streams * 3:
        break_stream(world)
        send(world)
    if actor.paused_at and random.random() < world.fate.usurp:
        usurp(world)


def usurp(world: World) -> None:
    """Another writer takes over from one that stands still past its lease, and gets some way."""
    world.note("usurp")
    world.now += TTL_MS + 1
    usurper = world.start()
    for _ in range(world.random.randint(1, 3)):
        if not usurper.over and not usurper.paused_at:
            send(world)
            world.run(usurper)


def look_around(world: World) -> None:
    """The daemon's sweep marks what nobody marked."""
    if has_file(world.data):
        clock = Clock(lambda: world.now, lambda: 0.0)
        sweep(Client(world.server), world.keys, 0, world.cursors, NeverEnded(), clock)


def break_stream(world: World) -> None:
    """Somebody deletes, trims or restores one run's stream, or its ids begin anew lower."""
    random = world.random
    key = world.keys.run(0, random.choice(world.runs))
    held = [run for actor in world.living() if actor.paused_at for run in actor.views]
    if held and random.random() < 0.6:
        # Between reading a stream and settling it is where most goes wrong.
        key = world.keys.run(0, random.choice(held))
    if is_amid(world):
        world.replaced_amid.add(key.removeprefix(world.keys.run_prefix(0)))
    stream = world.server.keys.streams.get(key)
    happens = random.choice(
        ["delete", "trim", "restore", "restore", "lower", "lower", "unmark", "twin", "twin"]
    )
    world.note(f"stream {happens}", key)
    if happens == "delete":
        world.server.delete(key)
    elif happens == "trim" and stream is not None and stream.items:
        stream.items = stream.items[random.randint(1, len(stream.items)) :]
    elif happens == "restore":
        older = [each.streams[key] for each in world.snapshots if key in each.streams]
        if older:
            world.server.keys.streams[key] = random.choice(older).copy()
    elif happens == "lower":
        ms = max(world.redis_ms() - random.choice([1_000, DAY_MS]), 1)
        world.server.keys.streams[key] = Stream([], (ms, 0))
        world.redis_offset = ms - world.now
    elif happens == "twin":
        put_twin(world, key)
    elif happens == "unmark":
        world.server.keys.sorted_sets.clear()
    for _ in range(random.choice([0, 1, 3, 5])):
        # Before anybody has noticed.
        run = key.removeprefix(world.keys.run_prefix(0))
        world.deliver(run, world.hosts.message(run))


def is_amid(world: World) -> bool:
    """Whether a stream may be read and not trimmed: then nobody can tell its ids from a twin's."""
    return bool(world.fate.window_ms) or any(
        actor.paused_at or (actor.loop is not None and not actor.loop.durable)
        for actor in world.living()
    )


def put_twin(world: World, key: str) -> None:
    """Another stream in the place of one, in which the id that was settled last stands again."""
    account = world.oracle.account(key.removeprefix(world.keys.run_prefix(0)))
    ms, n = place_of(account.cursor)
    if not ms or is_amid(world):
        return
    world.server.delete(key)
    for place in [(ms - 1, at) for at in range(world.random.randint(1, 3))] + [(ms, n)]:
        world.deliver(account.run, world.hosts.message(account.run), f"{place[0]}-{place[1]}")


def break_redis(world: World) -> None:
    """Redis loses everything, its owner key, or its newest part."""
    random, server = world.random, world.server
    happens = random.choice(["flush", "older", "older", "evict owner"])
    if is_amid(world):
        world.replaced_amid.update(world.runs)
    world.note(f"redis {happens}")
    if happens == "flush":
        server.keys = Keyspace()
    elif happens == "evict owner":
        server.keys.strings.clear()
    elif world.snapshots:
        server.restart(random.choice(world.snapshots).copy())


def move_clocks(world: World) -> None:
    """The server's clock leaps, stands still, or is set right; so does the writer's own."""
    random = world.random
    happens = random.choice(["redis", "redis", "freeze", "right", "local"])
    leap = random.choice([-DAY_MS, -1_000, 1_000, DAY_MS, CENTURY_MS])
    world.note(f"clock {happens}", leap)
    if happens == "redis":
        world.redis_offset += leap
    elif happens == "freeze":
        world.frozen_at = world.redis_ms()
    elif happens == "right":
        world.redis_offset, world.frozen_at = 0, None
    else:
        world.local_offset += leap


def back_up_or_restore(world: World) -> None:
    """Copy the data folder; or end all writers and put an older copy back."""
    random = world.random
    if not world.backups or random.random() < 0.5:
        world.backups.append(Backup(world.image(), len(world.oracle.log)))
        return
    backup = random.choice(world.backups)
    whole = not world.fate.archive or random.random() < 0.3
    world.note("restore folder" if whole else "restore file")
    for actor in world.living():
        actor.kill()
    if random.random() < 0.7:
        world.server.keys.strings.clear()
    restored = world.new_folder()
    copy_data(backup.data, restored)
    if not whole:
        shutil.rmtree(restored / "archive", ignore_errors=True)
        if (world.data / "archive").exists():
            shutil.copytree(world.data / "archive", restored / "archive")
    world.folder_restored = world.folder_restored or whole
    world.restored = True
    # What was copied of a time that may be lost now is of no use.
    world.backups = [each for each in world.backups if each.length <= backup.length]
    world.lost = world.oracle.roll_back(backup.length) + world.lost
    world.move_to(restored)


def expire_archive(world: World) -> None:
    """Retention removes what is sealed of the archive; who is just reading it has read it."""
    if not world.fate.archive:
        return
    if world.is_entered():
        keep_segments(world.data)
    if expire(world.archive_folder, 2**62):
        world.note("expire")
        world.archive_whole = False


def operate(world: World) -> None:
    """An operator asks for something, mostly about the right place."""
    random = world.random
    act = random.choice(ACTS)
    known = sorted(world.oracle.runs)
    held = [run for run in known if world.oracle.runs[run].story.held() is not None]
    if not known:
        return
    run = random.choice(held if held and random.random() < 0.8 else known)
    account = world.oracle.account(run)
    message_id = account.cursor
    if act != "break":
        waiting = sorted(world.watch.quarantined.items())
        if waiting and random.random() < 0.9:
            run, message_id = random.choice(waiting)
    incarnation = world.oracle.account(run).incarnation - (random.random() < 0.1)
    world.note(f"act {act}", run, message_id)
    ask(Client(world.server), world.keys, 0, act, run, (incarnation, message_id), "op")
