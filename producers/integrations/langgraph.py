"""A LangGraph checkpoint saver: a thread is a run, a checkpoint an entry of its transcript.

Needs the extra `langgraph`. Writing never waits. Reading waits until what this saver has written to
the thread is applied, so a graph reads its own writes. A channel's value travels and is stored only
when its version is new: the cost follows the change.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from math import isfinite
from random import random
from threading import RLock
from typing import Any, cast

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from producers.client import Producer
from producers.contract.limits import INTEGER_MAX, INTEGER_MIN
from producers.integrations.journal import Document, Journal, Reader, keys_of

KIND = "langgraph"
JOURNALS_MAX = 256
"""Threads that are kept in memory; another one is read again."""
_PLAIN_DEPTH_MAX = 64


class Thread:
    """What the journal of a thread comes to."""

    def __init__(self) -> None:
        self.checkpoints: dict[tuple[str, str], Document] = {}
        self.writes: dict[tuple[str, str], dict[tuple[str, int], Document]] = {}
        self.values: dict[tuple[str, str, str], Document] = {}
        self.taken = 0

    def take(self, document: Document) -> None:
        """Follow one document of the journal."""
        self.taken += 1
        if "forget" in document:
            for ns, checkpoint_id in document["forget"]:
                self.checkpoints.pop((ns, checkpoint_id), None)
                self.writes.pop((ns, checkpoint_id), None)
            return
        place = (document["ns"], document["id"])
        if "task" in document:
            self._take_writes(place, document)
            return
        self.checkpoints[place] = document
        for channel, version, value in document["values"]:
            self.values[document["ns"], channel, repr(version)] = value

    def _take_writes(self, place: tuple[str, str], document: Document) -> None:
        found = self.writes.setdefault(place, {})
        replaces = all(write["channel"] in WRITES_IDX_MAP for write in document["writes"])
        for write in document["writes"]:
            name = (document["task"], write["idx"])
            if replaces or name not in found:
                found[name] = {**write, "path": document["path"]}

    def value(self, document: Document, channel: str, version: Any) -> Document | None:
        """A channel's stored value as of a checkpoint."""
        for own, own_version, value in document["values"]:
            if own == channel and own_version == version:
                return dict(value)
        return self.values.get((document["ns"], channel, repr(version)))


class StatewriterSaver(BaseCheckpointSaver[str]):
    """Checkpoints through a producer, read back through a `StateReader` of the writer's files.

    Both stay the caller's to close. Methods that read raise NotConfirmed while no writer runs.
    """

    def __init__(
        self, producer: Producer, reader: Reader, *, serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(serde=serde)
        self._producer = producer
        self._reader = reader
        self._lock = RLock()
        self._threads: OrderedDict[str, tuple[Journal, Thread]] = OrderedDict()

    # writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint; never waits."""
        place = config["configurable"]
        bare: dict[str, Any] = {**checkpoint}
        values: dict[str, Any] = bare.pop("channel_values")
        document = {
            "ns": place.get("checkpoint_ns", ""),
            "id": checkpoint["id"],
            "parent": place.get("checkpoint_id"),
            "checkpoint": self._encode(bare),
            "metadata": self._encode(get_checkpoint_metadata(config, metadata)),
            "values": [
                [channel, version, self._encode(values[channel]) if channel in values else {}]
                for channel, version in new_versions.items()
            ],
        }
        self._journal(str(place["thread_id"]))[0].append(document)
        return _config(place["thread_id"], document["ns"], checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save the writes of a task; never waits."""
        place = config["configurable"]
        document = {
            "ns": place.get("checkpoint_ns", ""),
            "id": place["checkpoint_id"],
            "task": task_id,
            "path": task_path,
            "writes": [
                {
                    "idx": WRITES_IDX_MAP.get(channel, index),
                    "channel": channel,
                    "value": self._encode(value),
                }
                for index, (channel, value) in enumerate(writes)
            ],
        }
        self._journal(str(place["thread_id"]))[0].append(document)

    def delete_thread(self, thread_id: str) -> None:
        """Delete all that a thread has; never waits."""
        self._journal(str(thread_id))[0].clear()
        with self._lock:
            journal, _ = self._threads[str(thread_id)]
            self._threads[str(thread_id)] = (journal, Thread())

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Forget the checkpoints of LangGraph runs. They are not read any more, but stored."""
        wanted = set(run_ids)
        for thread_id in self._thread_ids():
            self._forget(
                thread_id,
                lambda _, document: self._decode(document["metadata"]).get("run_id") in wanted,
            )

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all that a thread has into another one."""
        target = self._journal(str(target_thread_id))[0]
        for document in self._journal(str(source_thread_id))[0].read():
            target.append(document)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete threads (`delete`), or forget all but the last checkpoint of each namespace."""
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            thread = self._read(str(thread_id))
            last: dict[str, str] = {}
            for ns, checkpoint_id in thread.checkpoints:
                last[ns] = max(last.get(ns, ""), checkpoint_id)
            self._forget(str(thread_id), lambda place, _, last=last: last[place[0]] != place[1])

    # reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that is named, else the last one."""
        place = config["configurable"]
        ns = place.get("checkpoint_ns", "")
        thread = self._read(str(place["thread_id"]))
        checkpoint_id = get_checkpoint_id(config) or max(
            (found for of, found in thread.checkpoints if of == ns), default=None
        )
        if checkpoint_id is None or (ns, checkpoint_id) not in thread.checkpoints:
            return None
        made = self._tuple(place["thread_id"], thread, (ns, checkpoint_id))
        return made._replace(config=config) if get_checkpoint_id(config) else made

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints of a thread or of all, the newest first."""
        place = {} if config is None else config["configurable"]
        threads = self._thread_ids() if config is None else [str(place["thread_id"])]
        ns, wanted = place.get("checkpoint_ns"), get_checkpoint_id(config) if config else None
        end = get_checkpoint_id(before) if before else None
        found = [
            (checkpoint_id, of, thread_id)
            for thread_id in threads
            for of, checkpoint_id in self._read(thread_id).checkpoints
            if ns in (None, of)
            and wanted in (None, checkpoint_id)
            and (end is None or checkpoint_id < end)
        ]
        count = 0
        for checkpoint_id, of, thread_id in sorted(found, reverse=True):
            if limit is not None and count >= limit:
                return
            thread = self._journal(thread_id)[1]
            metadata = self._decode(thread.checkpoints[of, checkpoint_id]["metadata"])
            if all(metadata.get(key) == value for key, value in (filter or {}).items()):
                count += 1
                yield self._tuple(thread_id, thread, (of, checkpoint_id))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A version that no other branch of the thread makes."""
        number = 0 if current is None else int(str(current).split(".", maxsplit=1)[0])
        # Uniqueness, no secrecy.
        return f"{number + 1:032}.{random():016}"  # noqa: S311

    # asyncio

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        for each in await asyncio.to_thread(
            lambda: [*self.list(config, filter=filter, before=before, limit=limit)]
        ):
            yield each

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await asyncio.to_thread(lambda: self.prune(thread_ids, strategy=strategy))

    # within

    def _journal(self, thread_id: str) -> tuple[Journal, Thread]:
        with self._lock:
            found = self._threads.get(thread_id)
            if found is None:
                found = (Journal(self._producer, self._reader, KIND, thread_id), Thread())
                self._threads[thread_id] = found
            self._threads.move_to_end(thread_id)
            while len(self._threads) > JOURNALS_MAX:
                _, (oldest, _) = self._threads.popitem(last=False)
                oldest.settle()
            return found

    def _read(self, thread_id: str) -> Thread:
        journal, thread = self._journal(thread_id)
        with self._lock:
            for document in journal.read()[thread.taken :]:
                thread.take(document)
        return thread

    def _thread_ids(self) -> Sequence[str]:
        with self._lock:
            ours = {**self._threads}
        for journal, _ in ours.values():
            journal.settle()
        return sorted({*ours, *keys_of(self._reader, KIND)})

    def _forget(self, thread_id: str, chosen: Any) -> None:
        thread = self._read(thread_id)
        gone = [place for place, document in thread.checkpoints.items() if chosen(place, document)]
        if gone:
            self._journal(thread_id)[0].append({"forget": gone})

    def _tuple(self, thread_id: str, thread: Thread, place: tuple[str, str]) -> CheckpointTuple:
        document = thread.checkpoints[place]
        checkpoint = self._decode(document["checkpoint"])
        values = {}
        for channel, version in checkpoint["channel_versions"].items():
            if value := thread.value(document, channel, version):
                values[channel] = self._decode(value)
        writes = thread.writes.get(place, {})
        in_order = sorted(
            writes.items(), key=lambda item: writes_sort_key(item[1]["path"], *item[0])
        )
        parent = document["parent"]
        return CheckpointTuple(
            config=_config(thread_id, *place),
            checkpoint=cast("Checkpoint", {**checkpoint, "channel_values": values}),
            metadata=self._decode(document["metadata"]),
            parent_config=_config(thread_id, place[0], parent) if parent else None,
            pending_writes=[
                (task, write["channel"], self._decode(write["value"]))
                for (task, _), write in in_order
            ],
        )

    def _encode(self, value: Any) -> Document:
        """JSON as it is, so that people can read it; all else by the serializer."""
        if _is_plain(value):
            return {"json": value}
        kind, data = self.serde.dumps_typed(value)
        return {"type": kind, "base64": b64encode(data).decode()}

    def _decode(self, stored: Mapping[str, Any]) -> Any:
        if "json" in stored:
            # A copy: a graph may change what it was given.
            return orjson.loads(orjson.dumps(stored["json"]))
        return self.serde.loads_typed((stored["type"], b64decode(stored["base64"])))


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether JSON gives back exactly this value."""
    kind = type(value)
    if kind is str:
        return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)
    if kind is int:
        return bool(INTEGER_MIN <= value <= INTEGER_MAX)
    if kind is float:
        return isfinite(value)
    if depth > _PLAIN_DEPTH_MAX:
        return False
    if kind is list:
        return all(_is_plain(member, depth + 1) for member in value)
    if kind is dict:
        return all(
            type(key) is str and _is_plain(key) and _is_plain(member, depth + 1)
            for key, member in value.items()
        )
    return bool(value is None or kind is bool)
