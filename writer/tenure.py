"""Owning a partition: its file open and caught up, its epoch raised, its Redis lease held."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from producers.contract.keys import Keys
from writer.apply import Aggregates, Applier, order_of
from writer.clock import SYSTEM, Clock
from writer.core.decide import RULES_VERSION
from writer.errors import FileBehind, WriterError
from writer.loop import PartitionLoop
from writer.notes import Log
from writer.replay import catch_up
from writer.settings import WriterSettings
from writer.store.commit import ActRow, Batch, Hook, no_hook
from writer.store.database import BUSY_MS
from writer.store.partition import Identity, PartitionFile, partition_path
from writer.streams.archive import Act, Archive, Position, archive_folder, segments
from writer.streams.control import Control
from writer.streams.link import Client
from writer.streams.ownership import Ownership, writer_id
from writer.streams.reach import interrupt, last_epoch, reaches_back_to, reaches_up_to
from writer.streams.read import Reader
from writer.streams.receipts import send_receipts
from writer.streams.settle import Mark, Settler


@dataclass(frozen=True, slots=True)
class Outside:
    """What a writer needs of the world around it; a simulation brings its own.

    `hook` is called at each named crash point; `busy_ms` is how long SQLite waits for a lock.
    """

    connect: Callable[[], Client]
    clock: Clock = SYSTEM
    hook: Hook = no_hook
    busy_ms: int = BUSY_MS


class Tenure:
    """One writer's time as the owner of one partition: `with Tenure(...) as loop`.

    Entering raises PartitionTaken, FileBehind and the other errors of what it opens; then nothing
    is left open.
    """

    def __init__(
        self,
        settings: WriterSettings,
        outside: Outside,
        log: Log,
        partition: int,
        partitions: int,
        *,
        accept_loss: bool = False,
        writer: str | None = None,
    ) -> None:
        self._settings = settings
        self._outside = outside
        self._log = log
        self._partition = partition
        self._partitions = partitions
        self._accept_loss = accept_loss
        self._writer = writer or writer_id(secrets.token_hex(8))
        self._keys = Keys(settings.prefix)
        self._client = outside.connect()
        self._ownership = Ownership(
            self._client,
            self._keys,
            partition,
            self._writer,
            settings.lease_ttl_ms,
            outside.clock,
        )
        self.file: PartitionFile | None = None
        self.archive: Archive | None = None

    def __enter__(self) -> PartitionLoop:
        try:
            return self._take()
        except BaseException as error:
            if isinstance(error, WriterError):
                # Another host need not wait for the lease to run out.
                with suppress(WriterError):
                    self._ownership.release()
            self._close()
            raise

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self.archive is not None:
            self.archive.close()
        if self.file is not None:
            self.file.close()
        self._client.close()

    def _take(self) -> PartitionLoop:
        settings, clock, hook = self._settings, self._outside.clock, self._outside.hook
        client, keys, partition = self._client, self._keys, self._partition
        ownership = self._ownership
        ownership.acquire()
        self.file = PartitionFile.open(
            partition_path(settings.data, partition),
            partition=partition,
            partitions=self._partitions,
            lineage=secrets.token_hex(8),
            now=clock.now_ms(),
            synchronous=settings.synchronous,
            busy_ms=self._outside.busy_ms,
        )
        settler = Settler(client, keys, partition, self._writer)
        applier = Applier(
            self.file,
            partition,
            self._partitions,
            Aggregates(self.file, settings.cache_bytes_max),
        )
        folder = archive_folder(settings.data, partition)
        self._take_file(settler, applier, ownership, folder)
        identity = self.file.identity()
        if settings.archive:
            about = {"partition": partition, "partitions": self._partitions, "rules": RULES_VERSION}
            after = Position.parse(identity.archived)
            fence = self.file.while_owner
            self.archive = applier.archive = Archive(
                folder, self.file.epoch, about, after=after, fence=fence
            )
            if self.file.has_settled() and not segments(folder):
                interrupt(folder, self.file.epoch - 1)
            self._archive_skips(self.archive)
        elif segments(folder):
            interrupt(folder, self.file.epoch)
        loop = PartitionLoop(
            partition=partition,
            file=self.file,
            applier=applier,
            reader=Reader(
                client, keys, partition, settings.batch_bytes_max, settings.batch_messages_max
            ),
            settler=settler,
            ownership=ownership,
            send_receipts=partial(send_receipts, client, keys, partition),
            log=_bound(self._log, partition),
            control=Control(client, keys, partition, identity.control_cursor, clock),
            lineage=identity.lineage,
            replay_window_ms=settings.replay_window_ms,
            durable=settings.archive or settings.synchronous == "FULL",
            hook=hook,
            clock=clock,
        )
        loop.begin()
        return loop

    def _take_file(
        self, settler: Settler, applier: Applier, ownership: Ownership, folder: Path
    ) -> None:
        """Raise the epoch above all that was ever taken, and catch up with the archive.

        A file that is behind Redis' mark is an older copy: it catches up and takes a new identity,
        or, where the archive does not reach back to it, stops.
        """
        assert self.file is not None
        file, clock = self.file, self._outside.clock
        mark, _, _ = self._compare(settler, folder)
        epoch = max(mark.epoch, last_epoch(folder))
        file.take(settler.writer, rules_version=RULES_VERSION, now=clock.now_ms(), at_least=epoch)
        # Only from here on is nobody else at work: what was there just now may have expired.
        mark, identity, complete = self._compare(settler, folder)
        behind = mark.commit_seq > identity.commit_seq
        caught_up = catch_up(
            applier,
            folder,
            now=clock.now_ms(),
            beat=ownership.keep,
            hook=self._outside.hook,
        )
        if caught_up:
            self._log.warning("caught_up", partition=self._partition, messages=caught_up)
        if behind:
            loss = None
            if not complete:
                loss = ActRow(
                    f"epoch-{file.epoch}",
                    "accept_loss",
                    run_id="",
                    incarnation=0,
                    message_id="0-0",
                    operator=settler.writer,
                    outcome="done",
                    detail=f"file at commit {identity.commit_seq}, Redis at {mark.commit_seq}",
                    recorded_at=clock.now_ms(),
                )
            file.replace_lineage(secrets.token_hex(8), mark.commit_seq + 1, loss)
            self._log.warning(
                "older_copy",
                partition=self._partition,
                file_commit=identity.commit_seq,
                redis_commit=mark.commit_seq,
                loss_accepted=not complete,
            )

    def _archive_skips(self, archive: Archive) -> None:
        """Archive skips whose messages are still to be read: an act that was carried out while
        nothing was archived must not come after its message, which can not be decided without it.
        """
        assert self.file is not None
        ahead = [
            Act(*act) for *act, cursor in self.file.skips() if order_of(act[4]) > order_of(cursor)
        ]
        if ahead:
            batch = Batch(to_archive=lambda: archive.append((), ahead).text())
            self.file.commit(batch, self._outside.hook)

    def _compare(self, settler: Settler, folder: Path) -> tuple[Mark, Identity, bool]:
        """What Redis and the file say of themselves, and whether the archive holds all between.

        Raises FileBehind if it does not, and that is not accepted.
        """
        assert self.file is not None
        mark, identity = settler.mark(), self.file.identity()
        since = Position.parse(identity.archived)
        complete = reaches_back_to(folder, since) and reaches_up_to(folder, mark.archived)
        if mark.commit_seq > identity.commit_seq and not complete and not self._accept_loss:
            raise FileBehind(
                f"{self.file.path.name} is at commit {identity.commit_seq}, but Redis has seen "
                f"commit {mark.commit_seq} settled: the file is an older copy, or new, and the "
                "archive does not hold what it lacks",
                hint="put the right file or archive back; or go on with --accept-loss, which is "
                "recorded",
            )
        return mark, identity, complete


def _bound(log: Log, partition: int) -> Log:
    bind: Any = getattr(log, "bind", None)
    bound: Log = bind(partition=partition) if bind is not None else log
    return bound
