"""One schedule's world: a server, hosts, a data folder, writers, and what befalls them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import apsw
import redis

from producers.contract.keys import Keys
from tests.simulation.actor import Actor, Died, Violation
from tests.simulation.archived import newest_segment
from tests.simulation.client import Client
from tests.simulation.fate import Fate
from tests.simulation.folders import FILE, begin_file, copy_data, forget_expired, has_file
from tests.simulation.hosts import Hosts, run_ids
from tests.simulation.oracle import Entry, Oracle, Settled, parse
from tests.simulation.server import Fields, Item, Keyspace, Server
from tests.simulation.watch import Watch
from writer.clock import Clock
from writer.errors import Fenced, FileBehind, PartitionTaken, Retry
from writer.settings import WriterSettings
from writer.store.cursors import CursorReader

START_MS = 1_700_000_000_000
TTL_MS = 1_000
DEAD_PID = 4_194_999
"""Above any process id."""
SQLITE_ERRORS = (apsw.IOError, apsw.FullError, apsw.BusyError)
IN_TRANSACTION = ("begun", "inserted", "put", "written", "committed")
AMBUSHES = ("decided", "archived", "archived", "written", "committed", "committed", "before settle")
LAY_IN_WAIT = ("stream", "redis", "clock", "restore", "unarchived", "unexpected", "contend", "act")
AFTER_QUARANTINE = ("archived", "committed", "before settle")
BEFORE_SETTLED = ("committed", "before settle")
BEFORE_COMMIT = ("decided", "archived", "inserted", "put")


@cache
def usual_settings() -> WriterSettings:
    """What every schedule's writers have in common; made once, as it is slow to make."""
    return WriterSettings(prefix="s", partitions=2, synchronous="NORMAL", lease_ttl_ms=TTL_MS)


class Strange(Exception):
    """A failure that no table of errors has."""


class Backup:
    """A data folder as it was, and how much of the log it holds."""

    def __init__(self, data: Path, length: int) -> None:
        self.data = data
        self.length = length


Fault = tuple[Callable[[Actor, str], None], float]
"""What happens to a writer, and how often."""


class Faults(dict[str, list[Fault]]):
    """What may happen at each point."""

    def __init__(self, of: Callable[[str], list[Fault]]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, point: str) -> list[Fault]:
        self[point] = self._of(point)
        return self[point]


class World:
    """Owns all state. Everything that happens by chance is drawn from `random`."""

    def __init__(self, random: Random, fate: Fate, root: Path) -> None:
        self.random = random
        self.fate = fate
        self.root = root
        self.now = START_MS
        self.redis_offset = 0
        self.frozen_at: int | None = None
        self.local_offset = 0
        self.calm = False
        self.keys = Keys("s")
        self.server = Server(self.redis_ms, self.trimmed)
        self.hosts = Hosts(random, fate.kinds, fate.damage, fate.newer)
        self.runs = run_ids(fate.runs)
        self.oracle = Oracle()
        self.sent: dict[tuple[str, str], list[Item]] = {}
        self.held_back: list[tuple[str, Fields]] = []
        self.actors: list[Actor] = []
        self.fallen: Path | None = None
        self.poison, self.poisoned = 0, ""
        self.ambush = ""
        self.accept_loss = False
        self.restored = False
        self.folder_restored = self.time_lost = False
        self.lost: list[Entry] = []
        self.replaced_amid: set[str] = set()
        self.archive_whole = fate.archive
        self.backups: list[Backup] = []
        self.snapshots: list[Keyspace] = []
        self.trimmed_keys: set[tuple[str, str, bytes]] = set()
        self.faults: Counter[str] = Counter()
        self.trace: list[str] = []
        self._folders = 0
        self._faults = Faults(self._faults_at)
        self.data = self.new_folder()
        self.watch = Watch(self.data, self.oracle, self.sent)
        self.cursors = CursorReader(self.data / FILE)
        self._settings = usual_settings().model_copy(
            update={
                "batch_messages_max": fate.batch_messages,
                "batch_bytes_max": fate.batch_bytes,
                "cache_bytes_max": fate.cache_bytes,
                "archive": fate.archive,
                "replay_window_ms": fate.window_ms,
            }
        )

    # --- time ----------------------------------------------------------------------------------

    def redis_ms(self) -> int:
        """What the server's clock says."""
        return max(self.frozen_at or self.now + self.redis_offset, 1)

    def clock(self) -> Clock:
        """What the writer's host says: a wall clock that may leap, and one that may not."""
        return Clock(
            lambda: max(self.now + self.local_offset, 1), lambda: (self.now - START_MS) / 1000
        )

    # --- hosts ---------------------------------------------------------------------------------

    def deliver(self, run: str, fields: Fields, at: str = "*") -> None:
        """XADD, and mostly the mark."""
        item = self.server.xadd(self.keys.run(0, run), fields, at)
        self.sent.setdefault((run, item.id), []).append(item)
        self.trace.append(
            f"{run} {item.id} {parse(run, fields).kind} {fields.get(b'producer', b'').decode()}"
            f"{fields.get(b'seq', b'').decode()}"
        )
        if self.random.random() >= self.fate.unmarked or self.calm:
            self.server.zadd_lt(self.keys.ready(0), float(self.now), run.encode())

    # --- what a writer meets ---------------------------------------------------------------------

    def connect(self, actor: Actor) -> Client:
        """A connection for a writer."""

        def seen(key: str, items: list[Item]) -> None:
            actor.views[key.removeprefix(self.keys.run_prefix(0))] = items

        return Client(self.server, actor.hook, seen)

    def reached(self, actor: Actor, point: str) -> None:
        """A named point, or a call to Redis: where faults happen."""
        if point == "committed":
            self.watch.committed(actor)
        if point in ("decided", "committed"):
            actor.archive_bytes = actor.segment_bytes
        if self.calm:
            return
        if self.poison and point == self.poisoned:
            self.poison -= 1
            raise Strange
        if self.ambush == point:
            self.ambush = ""
            happens = self.random.choice([self._crash, self._crash, self._stand_still])
            happens(actor, point)
            return
        chance = self.random.random()
        for happens, rate in self._faults[point]:
            if chance < rate:
                happens(actor, point)
                return
            chance -= rate

    def _faults_at(self, point: str) -> list[Fault]:
        fate = self.fate
        crash = fate.crash * (4 if point in BEFORE_SETTLED else 1)
        faults: list[Fault] = [(self._crash, crash), (self._stand_still, fate.pause)]
        if point.startswith(("before", "after")):
            faults.append((self._cut, fate.cut))
        if point in IN_TRANSACTION:
            faults.append((self._sqlite_fails, fate.sqlite))
        if point in BEFORE_COMMIT:
            faults.append((self._fail_strangely, fate.unexpected))
        return faults

    def _stand_still(self, actor: Actor, point: str) -> None:
        self.note("pause", actor.name, point)
        actor.stand_still(point)

    def _cut(self, actor: Actor, point: str) -> None:
        self.note("cut", actor.name, point)
        raise redis.ConnectionError("cut")

    def _sqlite_fails(self, actor: Actor, point: str) -> None:
        error = self.random.choice(SQLITE_ERRORS)
        self.note("sqlite", actor.name, point)
        raise error("injected")

    def _fail_strangely(self, actor: Actor, point: str) -> None:
        self.note("unexpected", actor.name, point)
        # At points that what quarantines a run does not pass.
        self.poison = self.random.choice([0, 3, 8])
        self.poisoned = self.random.choice(["decided", "archived", "archived"])
        if self.random.random() < 0.5:
            self.ambush = self.random.choice(AFTER_QUARANTINE)
        raise Strange

    def _crash(self, actor: Actor, point: str) -> None:
        """The writer's process dies, or its host does: then files stay as they are right now."""
        self.note("crash", actor.name, point)
        if self.random.random() < 0.7:
            self._owner_is_dead()
        alone = all(other is actor or other.over for other in self.actors)
        if alone or self.random.random() < 0.5:
            torn = point == "archived" and self.fate.torn and self.random.random() < 0.6
            self.fallen = self.image()
            if torn:
                self._tear(self.fallen, actor)
        actor.die()

    def _owner_is_dead(self) -> None:
        key = self.keys.owner(0)
        owner, expires = self.server.keys.strings.get(key, (b"", 0))
        dead = owner.replace(b":%d:" % os.getpid(), b":%d:" % DEAD_PID)
        if owner:
            self.server.keys.strings[key] = (dead, expires)

    def _tear(self, data: Path, actor: Actor) -> None:
        segment = newest_segment(data / "archive" / "p00", actor.epoch)
        size = segment.stat().st_size if segment is not None else 0
        if segment is not None and size > actor.archive_bytes:
            self.note("torn")
            with segment.open("r+b") as file:
                file.truncate(self.random.randrange(actor.archive_bytes, size))

    def trimmed(self, key: str, items: list[Item]) -> None:
        """I7: what settling removes from a stream is settled."""
        run = key.removeprefix(self.keys.run_prefix(0))
        account = self.oracle.account(run)
        settled = self.oracle.settled.get(run, {})
        unknown = []
        for item in items:
            body = item.fields.get(b"body", b"")
            self.trimmed_keys.add((run, item.id, body))
            if body not in settled.get(item.id, ()) and not account.knows(item.fields):
                unknown.append(item)
        again = any(item.id in settled for item in unknown)
        if again and (unknown == items[:1] or run in self.replaced_amid):
            # Another stream that gave out an id again, under a clock that stood still. If it is the
            # one at which the writer stands, or came between its reading and trimming, who compares
            # ids can not tell.
            self.note("same id again", run)
        elif unknown:
            raise Violation(f"I7: {run} {unknown[0].id} was trimmed, never settled: {unknown[0]}")

    # --- folders ---------------------------------------------------------------------------------

    @property
    def archive_folder(self) -> Path:
        """The partition's archive."""
        return self.data / "archive" / "p00"

    def new_folder(self) -> Path:
        """An empty data folder."""
        self._folders += 1
        folder = self.root / f"d{self._folders}"
        folder.mkdir()
        return folder

    def image(self) -> Path:
        """A copy of the data folder as it is on disk at this instant."""
        folder = self.new_folder()
        copy_data(self.data, folder)
        return folder

    def move_to(self, data: Path) -> None:
        """Go on in another data folder, once no writer is left in the old one."""
        assert all(actor.over for actor in self.actors)
        self.close()
        shutil.rmtree(self.data)
        self.data = data
        self.watch = Watch(data, self.oracle, self.sent)
        self.cursors = CursorReader(data / FILE)

    def close(self) -> None:
        """Close what only looks at the file."""
        self.watch.close()
        self.cursors.close()

    # --- writers ---------------------------------------------------------------------------------

    def start(self) -> Actor:
        """Start a writer; it takes the partition on its first go."""
        changed: dict[str, Any] = {"data": self.data}
        if self.random.random() < self.fate.unarchived and not self.calm:
            self.note("unarchived")
            changed["archive"] = self.archive_whole = False
        if not has_file(self.data):
            begin_file(self.data)
        if not self.is_entered():
            forget_expired(self.data)
        actor = Actor(
            f"w{len(self.actors)}",
            self,
            self.connect,
            self._settings.model_copy(update=changed),
            self.clock(),
            self,
            accept_loss=self.accept_loss,
            signs_as=self._signature(),
            restored=self.restored,
        )
        self.actors.append(actor)
        self.run(actor)
        return actor

    def _signature(self) -> str:
        """A daemon whose writer met an error tries again under the same name."""
        last = self.actors[-1] if self.actors else None
        if last is None or not isinstance(last.error, Retry) or self.random.random() < 0.3:
            return ""
        return last.signs_as

    def run(self, actor: Actor) -> None:
        """Let a writer go on, and see to what became of it."""
        before, taking = self.watch.stand.commit_seq, actor.loop is None
        mark = int(self.server.keys.hashes.get(self.keys.mark(0), {}).get(b"commit_seq", b"0"))
        actor.go()
        if taking and actor.loop is not None:
            self._taken(actor, ahead=mark > before)
        if self.fallen is not None:
            for other in self.living():
                other.kill()
            data, self.fallen = self.fallen, None
            self.move_to(data)
        if actor.over:
            self._ended(actor)

    def is_entered(self) -> bool:
        """Whether somebody is just taking the partition, and may be reading the archive."""
        return any(actor.loop is None for actor in self.living())

    def living(self) -> list[Actor]:
        """Writers that have not ended."""
        return [actor for actor in self.actors if not actor.over]

    def _taken(self, actor: Actor, *, ahead: bool) -> None:
        """It has the partition: what a restored file lacked is there again, or was accepted."""
        settled = set(map(str, self.oracle.log)) if self.lost else set()
        missing = [
            entry
            for entry in self.lost
            if isinstance(entry, Settled)
            and str(entry) not in settled
            and (entry.run, entry.id, entry.fields.get(b"body", b"")) in self.trimmed_keys
        ]
        if missing and ahead and not self.accept_loss:
            raise Violation(f"{len(missing)} messages were lost in silence, first {missing[0]}")
        self.lost = []
        self.time_lost = self.time_lost or self.accept_loss
        self.accept_loss = self.restored = False

    def _ended(self, actor: Actor) -> None:
        error = actor.error
        self.trace.append(f"{actor.name} ended: {type(error).__name__} {error}")
        if isinstance(error, FileBehind):
            time_lost = self.folder_restored or self.time_lost
            # What Redis had forgotten when the file was put back, it may remember later.
            reminded = self.faults["restore file"] and self.faults["redis older"]
            behind = (actor.restored or reminded) and not self.archive_whole
            if not time_lost and not behind:
                raise Violation(f"{error}, though nobody restored one")
            self.accept_loss = True
        elif error is not None and not isinstance(
            error, Died | Strange | Retry | Fenced | PartitionTaken
        ):
            raise error

    def note(self, fault: str, *about: Any) -> None:
        """Count a fault. Some faults are laid in wait for by another."""
        self.faults[fault] += 1
        if fault.startswith(LAY_IN_WAIT) and self.random.random() < self.fate.ambush:
            self.ambush = self.random.choice(AMBUSHES)
        self.trace.append(" ".join(("!", fault, *map(str, about))))

    def info(self, event: str, **fields: Any) -> None:
        """The writers' log."""
        self.trace.append(f"  {event} {fields}")

    warning = info
