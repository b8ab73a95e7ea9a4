"""The process: a thread per partition, one for checkpoints, one for the sweep."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from typing import Any
from weakref import WeakSet

from producers.contract.keys import Keys
from writer.clock import monotonic, sleep
from writer.errors import (
    Defect,
    Fenced,
    Misconfigured,
    PartitionTaken,
    Retry,
    Stop,
    StoreUnavailable,
    WriterError,
)
from writer.health import BEAT_S, Health
from writer.loop import place_of
from writer.notes import Log
from writer.settings import DEFAULT_PARTITIONS, WriterSettings
from writer.store.checkpoint import Checkpointer
from writer.store.partition import partition_path, stored_partitions
from writer.streams.link import Client, connect, hang_up
from writer.streams.ownership import FileLock, writer_id
from writer.streams.publish import agree
from writer.streams.risks import risks
from writer.sweeping import Sweeping
from writer.tenure import Outside, Tenure

RETRY_MS_MIN = 50
STANDBY_S = 0.25
"""How often a stand-by asks whether the partition is free."""
STOP_S = 2.5
"""How long a stop waits for what is in hand, before it cuts the connections to Redis."""
LOOK_S = 0.1
"""How often the main thread looks whether it is to stop."""
ROUND_S_MAX = 60.0
"""A partition whose round takes longer hangs: the daemon is silent then, which shows."""


class Daemon:
    """Writes some or all partitions of a data folder, until it is stopped or can not go on.

    `partitions` names those that this process writes; all by default. Call `start`, then `wait`;
    `stop` may be called from any thread or signal handler.
    """

    def __init__(
        self,
        settings: WriterSettings,
        url: str,
        log: Log,
        *,
        partitions: Sequence[int] | None = None,
        accept_loss: bool = False,
        standby: bool = False,
    ) -> None:
        self.settings = settings
        self.url = url
        self.log = log
        self.keys = Keys(settings.prefix)
        self.error: Stop | None = None
        # The same for the process's life: after a Retry error it finds its own lease again.
        self._writer = writer_id(secrets.token_hex(8))
        self.accept_loss = accept_loss
        self.standby = standby
        self._wanted = partitions
        self._stopping = False
        self._cut = False
        self._ended = Event()
        self._waiting: dict[int, str] = {}
        self._told: dict[int, str] = {}
        self._threads: list[Thread] = []
        self._locks: list[FileLock] = []
        self._checkpointer: Checkpointer | None = None
        self._health: Health | None = None
        self._rounds: dict[int, float] = {}
        self._clients: WeakSet[Client] = WeakSet()
        self.total = 0
        self._sweeping = Sweeping(settings, log, self._connect, self._tell_hosts, self._waiting)

    def start(self) -> None:
        """Lock the files, agree with Redis on the partitions, start the threads.

        Waits while Redis is away or the folder can not be written. Raises PartitionTaken,
        Misconfigured, and the Retry error that it waits for when it is stopped meanwhile: then
        nothing was started.
        """
        data = self.settings.data
        own = self._prepare_in_time()
        self._health = self._health or Health(data, self.url)
        self._health.waits_for("")
        paths = [partition_path(data, partition) for partition in own]
        self._checkpointer = Checkpointer(paths, self.settings.checkpoint_ms)
        self._checkpointer.start()
        self._threads = [
            Thread(
                target=self._guarded,
                args=(partial(self._write, partition), partition),
                name=f"p{partition:02d}",
            )
            for partition in own
        ]
        for name, work in (("sweep", self._sweeping.run), ("beat", self._beat)):
            self._threads.append(Thread(target=self._guarded, args=(work, None), name=name))
        # Before the first thread: nobody may see one that runs, and nothing of the others.
        for partition in own:
            self._tell(partition, "starting")
        for thread in self._threads:
            thread.start()

    def _lock(self, own: Sequence[int]) -> None:
        """Lock the files, so that a second daemon fails early. A stand-by goes by Redis instead."""
        for partition in own:
            lock = FileLock(self._lock_path(partition))
            try:
                lock.acquire()
            except PartitionTaken:
                if self.standby:
                    continue
                raise
            self._locks.append(lock)

    def stop(self) -> None:
        """Ask all threads to finish what they have in hand. Returns at once."""
        self._stopping = True
        # A signal handler must take no lock: what it interrupted may hold it. Then `wait` does.
        if current_thread() is not main_thread():
            self._wake()

    def _goes_on(self) -> bool:
        return not self._stopping

    def _wake(self) -> None:
        self._ended.set()
        self._sweeping.stop()

    def wait(self) -> None:
        """Return when all has ended; raises the Stop error that ended it, if one did."""
        while not self._stopping:
            sleep(LOOK_S)
        self._wake()
        deadline = monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        while any(thread.is_alive() for thread in self._threads):
            # A server that does not answer: what is in hand is settled when it is read again.
            self._cut = True
            for client in list(self._clients):
                hang_up(client)
            for thread in self._threads:
                thread.join(RETRY_MS_MIN / 1000)
        if self._checkpointer is not None:
            self._checkpointer.stop()
        self._release_locks()
        self._health_ends()
        if self.error is not None:
            raise self.error

    def sweep_soon(self, partition: int) -> None:
        """Look at a partition's streams, as when it is taken."""
        self._sweeping.soon(partition)

    def _release_locks(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def _tell_risks(self) -> None:
        """Say what Redis may lose by its settings."""
        with closing(connect(self.url)) as client:
            for risk in risks(client):
                say = self.log.warning if risk.severe else self.log.info
                say("redis_risk", setting=risk.setting, value=risk.value, risk=risk.sentence)

    def _prepare(self) -> list[int]:
        """Agree with Redis on the partitions and lock ours; returns them."""
        data = self.settings.data
        try:
            data.mkdir(parents=True, exist_ok=True)
            self.total = self._agree(connect(self.url))
            own = self._choose()
            self._lock(own)
        except OSError as error:
            self._release_locks()
            raise StoreUnavailable(
                f"{data}: {error.strerror or error}",
                hint="make room or give the right to write; the writer goes on by itself",
            ) from error
        except BaseException:
            self._release_locks()
            raise
        return own

    def _choose(self) -> list[int]:
        own = sorted(set(range(self.total) if self._wanted is None else self._wanted))
        if not own or not 0 <= own[0] <= own[-1] < self.total:
            raise Misconfigured(
                f"partitions {own} are not all among 0 to {self.total - 1}",
                hint="name partitions that exist, or none for all",
            )
        return own

    def _prepare_in_time(self) -> list[int]:
        """Prepare as soon as it is possible: a daemon may be started before its Redis."""
        wait_ms = RETRY_MS_MIN
        while True:
            try:
                own = self._prepare()
                self._tell_risks()
                return own
            except Retry as error:
                self._release_locks()
                if wait_ms == RETRY_MS_MIN:
                    self.log.warning("waiting", cause=str(error), hint=error.hint)
                    self._health = Health(self.settings.data, self.url)
                    self._health.waits_for(str(error))
                until = monotonic() + wait_ms / 1000
                while monotonic() < until:
                    if self._stopping:
                        self._health_ends()
                        raise
                    sleep(RETRY_MS_MIN / 1000)
                wait_ms = min(wait_ms * 2, self.settings.retry_ms_max)
            except BaseException:
                self._health_ends()
                raise

    def _health_ends(self) -> None:
        if self._health is not None:
            self._health.end(*((str(self.error), self.error.hint) if self.error else ()))

    def _agree(self, client: Client) -> int:
        """The number of partitions: what the data folder has, what Redis has, what is set, or
        two.
        """
        stored = stored_partitions(self.settings.data)
        wanted = stored or self.settings.partitions or DEFAULT_PARTITIONS
        if self.settings.partitions not in (None, wanted):
            raise Misconfigured(
                f"the data folder has {stored} partitions, not {self.settings.partitions}",
                hint="leave --partitions out, or use another data folder",
            )
        with closing(client):
            found = agree(client, self.keys, wanted)
        if found == wanted:
            return wanted
        if stored is None and self.settings.partitions is None:
            return found
        raise Misconfigured(
            f"Redis has {found} partitions under {self.keys.meta}, here they are {wanted}",
            hint="use the data folder that belongs to this Redis, or another --prefix",
        )

    def _tell_hosts(self, client: Client) -> int:
        return agree(client, self.keys, self.total)

    def _write(self, partition: int) -> None:
        """A partition's thread: take it, loop, and after a Retry error take it again.

        It has recovered when a round went well: that it could be taken says little.
        """
        wait_ms = RETRY_MS_MIN
        while self._goes_on():
            try:
                with self._tenure(partition) as loop:
                    self.sweep_soon(partition)
                    if partition not in self._waiting:
                        self._tell(partition, "running", event="taken", epoch=loop.file.epoch)
                    while self._goes_on():
                        self._rounds[partition] = monotonic()
                        loop.step()
                        wait_ms = RETRY_MS_MIN
                        if partition in self._waiting:
                            del self._waiting[partition]
                            self._tell(
                                partition, "running", event="recovered", epoch=loop.file.epoch
                            )
                    loop.step_down()
            except Retry as error:
                self._rounds.pop(partition, None)
                # The same trouble has many texts in brackets: it is told once.
                trouble = str(error).partition(" (")[0]
                if self._waiting.get(partition) != trouble:
                    self._waiting[partition] = trouble
                    self._name_holder(partition, error)
                    self._tell(partition, "waiting", error, event="waiting")
                self._ended.wait(wait_ms / 1000)
                wait_ms = min(wait_ms * 2, self.settings.retry_ms_max)
            except (PartitionTaken, Fenced) as error:
                self._rounds.pop(partition, None)
                self._waiting.pop(partition, None)
                if not self.standby:
                    self._give_up(partition, error)
                elif self._told.get(partition) != "standby":
                    self._tell(partition, "standby", error, event="standing_by")
                self._ended.wait(STANDBY_S)
            except Stop as error:
                self._give_up(partition, error)
        self._tell(partition, "stopped")

    def _name_holder(self, partition: int, error: Retry) -> None:
        """A stand-by may wait for a writer that stands still inside a transaction: say which."""
        if self.standby and isinstance(error, StoreUnavailable):
            path = self._lock_path(partition)
            if holder := FileLock(path).holder():
                error.hint += f"; {path.stem} was locked by process {holder} last"

    def _lock_path(self, partition: int) -> Path:
        return partition_path(self.settings.data, partition).with_suffix(".lock")

    def _tell(
        self,
        partition: int,
        state: str,
        error: WriterError | None = None,
        *,
        event: str = "",
        **fields: Any,
    ) -> None:
        """Say in the health file, and in the log if there is an `event`, how a partition is."""
        cause, hint = ("", "") if error is None else (str(error), error.hint)
        self._told[partition] = state
        if event:
            if error is not None:
                fields |= {"cause": cause, "hint": hint}
            (self.log.warning if event == "waiting" else self.log.info)(
                event, partition=partition, **fields
            )
        assert self._health is not None
        self._health.tell(partition, state, cause, hint)

    def _tenure(self, partition: int) -> Tenure:
        outside = Outside(self._connect)
        return Tenure(
            self.settings,
            outside,
            self.log,
            partition,
            self.total,
            accept_loss=self.accept_loss,
            writer=self._writer,
        )

    def _connect(self) -> Client:
        client = connect(self.url)
        self._clients.add(client)
        return client

    def _guarded(self, work: Callable[[], None], partition: int | None) -> None:
        """A thread that dies of a defect ends the daemon: it must not look alive without it."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - nothing may end a thread unseen
            if self._cut:
                # A connection that is cut between two of its calls fails in ways of its own.
                return
            self.log.warning("defect", partition=partition, error=repr(error)[:500])
            self._give_up(partition, Defect(f"{type(error).__name__} in {place_of(error)}"))

    def _give_up(self, partition: int | None, error: Stop) -> None:
        self.log.warning(
            "stopping",
            partition=partition,
            cause=str(error),
            hint=error.hint,
            exit_code=error.exit_code,
        )
        self.error = self.error or error
        self.stop()

    def _beat(self) -> None:
        """Say all the time that the process is alive and no partition hangs."""
        assert self._health is not None
        while not self._ended.wait(BEAT_S):
            now = monotonic()
            if all(now - began < ROUND_S_MAX for began in list(self._rounds.values())):
                self._health.beat()
