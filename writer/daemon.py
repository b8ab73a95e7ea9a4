"""The process: a thread per partition, one for checkpoints, one for the sweep."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from producers.contract.keys import Keys
from producers.contract.limits import CONTRACT_VERSION
from writer.apply import Aggregates, Applier
from writer.clock import now_ms
from writer.core.decide import RULES_VERSION
from writer.errors import Fenced, FileBehind, Misconfigured, PartitionTaken, Retry, Stop
from writer.health import Health
from writer.loop import Log, PartitionLoop
from writer.replay import catch_up
from writer.settings import DEFAULT_PARTITIONS, WriterSettings
from writer.store.checkpoint import Checkpointer
from writer.store.cursors import CursorReader
from writer.store.partition import PartitionFile, partition_path, stored_partitions
from writer.streams.archive import (
    Archive,
    Position,
    archive_folder,
    expire,
    last_epoch,
    reaches_back_to,
)
from writer.streams.control import Control
from writer.streams.link import Client, connect, lua, translated
from writer.streams.ownership import FileLock, Ownership, writer_id
from writer.streams.read import Reader
from writer.streams.receipts import send_receipts
from writer.streams.settle import Settler
from writer.streams.sweep import sweep

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

        Raises PartitionTaken, Misconfigured, RedisUnavailable: then nothing was started.
        """
        data = self.settings.data
        data.mkdir(parents=True, exist_ok=True)
        self.total = self._agree(connect(self.url))
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
            Thread(target=self._write, args=(partition,), name=f"p{partition:02d}")
            for partition in own
        ]
        self._threads.append(Thread(target=self._sweep, name="sweep"))
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
                with _taken(self, partition) as loop:
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

    def _expire(self, partition: int) -> None:
        hours = self.settings.archive_keep_hours
        if hours is None:
            return
        before = now_ms() - hours * 3_600_000
        removed = expire(archive_folder(self.settings.data, partition), before)
        if removed:
            self.log.info("archive_expired", partition=partition, segments=removed)

    def _give_up(self, partition: int, error: Stop) -> None:
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


class _taken:  # noqa: N801 - reads as a verb: with _taken(...)
    """Own a partition: its file open, its epoch raised, its Redis lease held."""

    def __init__(self, daemon: Daemon, partition: int) -> None:
        self.daemon = daemon
        self.partition = partition
        self.client = connect(daemon.url)
        self.file: PartitionFile | None = None
        self.archive: Archive | None = None

    def __enter__(self) -> PartitionLoop:
        try:
            return self._take()
        except BaseException:
            self._close()
            raise

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self.archive is not None:
            self.archive.close()
        if self.file is not None:
            self.file.close()
        self.client.close()

    def _take(self) -> PartitionLoop:
        daemon, partition, settings = self.daemon, self.partition, self.daemon.settings
        writer = writer_id(secrets.token_hex(8))
        ownership = Ownership(self.client, daemon.keys, partition, writer, settings.lease_ttl_ms)
        ownership.acquire()
        self.file = PartitionFile.open(
            partition_path(settings.data, partition),
            partition=partition,
            partitions=daemon.total,
            lineage=secrets.token_hex(8),
            now=now_ms(),
            synchronous=settings.synchronous,
        )
        settler = Settler(self.client, daemon.keys, partition, writer)
        applier = Applier(
            self.file, partition, daemon.total, Aggregates(self.file, settings.cache_bytes_max)
        )
        folder = archive_folder(settings.data, partition)
        self._take_file(settler, applier, folder)
        if settings.archive:
            about = {"partition": partition, "partitions": daemon.total, "rules": RULES_VERSION}
            self.archive = applier.archive = Archive(folder, self.file.epoch, about)
        loop = PartitionLoop(
            partition=partition,
            file=self.file,
            applier=applier,
            reader=Reader(
                self.client,
                daemon.keys,
                partition,
                settings.batch_bytes_max,
                settings.batch_messages_max,
            ),
            settler=settler,
            ownership=ownership,
            send_receipts=partial(send_receipts, self.client, daemon.keys, partition),
            log=_bound(daemon.log, partition),
            control=Control(
                self.client, daemon.keys, partition, self.file.identity().control_cursor
            ),
            lineage=self.file.identity().lineage,
            replay_window_ms=settings.replay_window_ms,
        )
        loop.begin()
        daemon.log.info(
            "taken", partition=partition, epoch=self.file.epoch, file=self.file.path.name
        )
        daemon.sweep_soon(partition)
        return loop

    def _take_file(self, settler: Settler, applier: Applier, folder: Path) -> None:
        """Raise the epoch above all that was ever taken, and catch up with the archive.

        A file that is behind Redis' mark is an older copy: it catches up and takes a new identity,
        or, where the archive does not reach back to it, stops.
        """
        assert self.file is not None
        daemon, file = self.daemon, self.file
        mark, identity = settler.mark(), file.identity()
        behind = mark.commit_seq > identity.commit_seq
        since = Position.parse(identity.archived)
        complete = reaches_back_to(folder, since)
        if behind and not complete and not daemon.accept_loss:
            raise FileBehind(
                f"{file.path.name} is at commit {identity.commit_seq}, but Redis has seen commit "
                f"{mark.commit_seq} settled: the file is an older copy, or new, and the archive "
                "does not hold what it lacks",
                hint="put the right file or archive back; or go on with --accept-loss, which is "
                "recorded",
            )
        epoch = max(mark.epoch, last_epoch(folder))
        file.take(settler.writer, rules_version=RULES_VERSION, now=now_ms(), at_least=epoch)
        caught_up = catch_up(applier, folder, now=now_ms())
        if caught_up:
            daemon.log.warning("caught_up", partition=self.partition, messages=caught_up)
        if behind:
            file.replace_lineage(secrets.token_hex(8), mark.commit_seq + 1)
            daemon.log.warning(
                "older_copy",
                partition=self.partition,
                file_commit=identity.commit_seq,
                redis_commit=mark.commit_seq,
                loss_accepted=not complete,
            )


def _bound(log: Log, partition: int) -> Log:
    bind: Any = getattr(log, "bind", None)
    bound: Log = bind(partition=partition) if bind is not None else log
    return bound


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]
