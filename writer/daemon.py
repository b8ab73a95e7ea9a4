"""The process: a thread per partition, one for checkpoints, one for the sweep."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from threading import Event, Thread

from producers.contract.keys import Keys
from producers.contract.limits import CONTRACT_VERSION
from writer.clock import now_ms
from writer.errors import Defect, Fenced, Misconfigured, PartitionTaken, Retry, Stop
from writer.health import Health
from writer.loop import Log, place_of
from writer.settings import DEFAULT_PARTITIONS, WriterSettings
from writer.store.checkpoint import Checkpointer
from writer.store.cursors import CursorReader
from writer.store.partition import partition_path, stored_partitions
from writer.streams.archive import archive_folder, expire
from writer.streams.link import Client, connect, lua, translated
from writer.streams.ownership import FileLock, writer_id
from writer.streams.sweep import sweep
from writer.tenure import Outside, Tenure

RETRY_MS_MIN = 50
STANDBY_S = 0.25
"""How often a stand-by asks whether the partition is free."""


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
        self._ended = Event()
        self._stopped = Event()
        self._sweep_now = Event()
        self._running: set[int] = set()
        self._threads: list[Thread] = []
        self._locks: list[FileLock] = []
        self._checkpointer: Checkpointer | None = None
        self._health: Health | None = None
        self.total = 0

    def start(self) -> None:
        """Lock the files, agree with Redis on the partitions, start the threads.

        Waits while Redis is away. Raises PartitionTaken, Misconfigured, and RedisUnavailable when
        it is stopped meanwhile: then nothing was started.
        """
        data = self.settings.data
        data.mkdir(parents=True, exist_ok=True)
        self.total = self._agree_in_time()
        own = sorted(set(range(self.total) if self._wanted is None else self._wanted))
        if not own or not 0 <= own[0] <= own[-1] < self.total:
            raise Misconfigured(
                f"partitions {own} are not all among 0 to {self.total - 1}",
                hint="name partitions that exist, or none for all",
            )
        self._lock(own)
        self._health = Health(data, _without_password(self.url))
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
        self._threads.append(Thread(target=self._guarded, args=(self._sweep, None), name="sweep"))
        for thread in self._threads:
            thread.start()

    def _lock(self, own: Sequence[int]) -> None:
        """Lock the files, so that a second daemon fails early. A stand-by goes by Redis instead."""
        for partition in own:
            lock = FileLock(partition_path(self.settings.data, partition).with_suffix(".lock"))
            try:
                lock.acquire()
            except PartitionTaken:
                if self.standby:
                    continue
                self._release_locks()
                raise
            self._locks.append(lock)

    def stop(self) -> None:
        """Ask all threads to finish what they have in hand. Returns at once."""
        self._ended.set()
        self._sweep_now.set()

    def wait(self) -> None:
        """Return when all has ended; raises the Stop error that ended it, if one did."""
        for thread in self._threads:
            thread.join()
        if self._checkpointer is not None:
            self._checkpointer.stop()
        self._release_locks()
        if self._health is not None:
            self._health.remove()
        if self.error is not None:
            raise self.error

    def sweep_soon(self, partition: int) -> None:
        """A partition was taken: look at its streams."""
        self._running.add(partition)
        self._sweep_now.set()

    def _release_locks(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def _agree_in_time(self) -> int:
        """Agree with Redis on the partitions; started before its Redis, a daemon waits for it."""
        wait_ms = RETRY_MS_MIN
        while True:
            try:
                return self._agree(connect(self.url))
            except Retry as error:
                if wait_ms == RETRY_MS_MIN:
                    self.log.warning("waiting", cause=str(error), hint=error.hint)
                if self._ended.wait(wait_ms / 1000):
                    raise
                wait_ms = min(wait_ms * 2, self.settings.retry_ms_max)

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
            found = self._meta(client, wanted)
        if found == wanted:
            return wanted
        if stored is None and self.settings.partitions is None:
            return found
        raise Misconfigured(
            f"Redis has {found} partitions under {self.keys.meta}, here they are {wanted}",
            hint="use the data folder that belongs to this Redis, or another --prefix",
        )

    def _meta(self, client: Client, wanted: int) -> int:
        """Tell hosts the number of partitions, unless a writer has; returns what they are told."""
        with translated():
            meta = client.register_script(lua("meta.lua"))
            return int(meta(keys=[self.keys.meta], args=[wanted, CONTRACT_VERSION]))

    def _write(self, partition: int) -> None:
        """A partition's thread: take it, loop, and after a Retry error take it again."""
        wait_ms = RETRY_MS_MIN
        waiting = ""
        assert self._health is not None
        self._health.tell(partition, "starting")
        while not self._ended.is_set():
            try:
                with self._tenure(partition) as loop:
                    self.sweep_soon(partition)
                    if waiting:
                        self.log.info("recovered", partition=partition)
                    waiting = ""
                    self._health.tell(partition, "running")
                    while not self._ended.is_set():
                        loop.step()
                        wait_ms = RETRY_MS_MIN
                    loop.step_down()
            except Retry as error:
                if str(error) != waiting:
                    self.log.warning(
                        "waiting", partition=partition, cause=str(error), hint=error.hint
                    )
                    self._health.tell(partition, "waiting", str(error), error.hint)
                waiting = str(error)
                self._ended.wait(wait_ms / 1000)
                wait_ms = min(wait_ms * 2, self.settings.retry_ms_max)
            except (PartitionTaken, Fenced) as error:
                if not self.standby:
                    self._give_up(partition, error)
                elif not waiting:
                    waiting = str(error)
                    self.log.info("standing_by", partition=partition, cause=waiting)
                    self._health.tell(partition, "standby", waiting)
                self._ended.wait(STANDBY_S)
            except Stop as error:
                self._give_up(partition, error)
        self._health.tell(partition, "stopped")

    def _tenure(self, partition: int) -> Tenure:
        outside = Outside(partial(connect, self.url))
        return Tenure(
            self.settings,
            outside,
            self.log,
            partition,
            self.total,
            accept_loss=self.accept_loss,
            writer=self._writer,
        )

    def _expire(self, partition: int) -> None:
        hours = self.settings.archive_keep_hours
        if hours is None:
            return
        before = now_ms() - hours * 3_600_000
        removed = expire(archive_folder(self.settings.data, partition), before)
        if removed:
            self.log.info("archive_expired", partition=partition, segments=removed)

    def _guarded(self, work: Callable[[], None], partition: int | None) -> None:
        """A thread that dies of a defect ends the daemon: it must not look alive without it."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - nothing may end a thread unseen
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

    def _sweep(self) -> None:
        """The sweep's thread: when a partition is taken, after each reconnect, every `sweep_ms`."""
        while not self._ended.is_set():
            self._sweep_now.wait(self.settings.sweep_ms / 1000)
            self._sweep_now.clear()
            client = connect(self.url)
            try:
                self._meta(client, self.total)
                for partition in sorted(self._running):
                    path = partition_path(self.settings.data, partition)
                    self._expire(partition)
                    with closing(CursorReader(path)) as cursors:
                        marked = sweep(client, self.keys, partition, cursors, self._ended)
                    if marked:
                        self.log.info("swept", partition=partition, marked=marked)
            except Retry:
                # The loops meet the same fault and say so; their next reconnect sweeps again.
                continue
            finally:
                client.close()


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]
