"""Work items and suspensions of a codemation state: what an engine, or a person, has to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from writer.core.dialect import Document
from writer.core.parts import Change
from writer.core.run import Key, Run, Suspension, WorkItem
from writer.dialects.instant import parse_ms
from writer.dialects.places import base_of, is_touched, text_in, whole_in

T = TypeVar("T", WorkItem, Suspension)
Gone = list[tuple[str, Key]]


def changed_work(run: Run, state: Document, change: Change) -> tuple[list[WorkItem], Gone]:
    """Work items that are new or differ, and those that are gone."""
    if not is_touched(change.parts, "queue", "pending"):
        return [], []
    base = base_of(change.root, "queue")
    items = [_queued(entry, base + index) for index, entry in enumerate(state.get("queue") or [])]
    pending = state.get("pending")
    if isinstance(pending, dict):
        items.append(_claimed(pending))
    return _difference("work_items", run.work_items, items)


def changed_suspensions(run: Run, state: Document, change: Change) -> tuple[list[Suspension], Gone]:
    """Suspensions that are new or differ, and those that are gone."""
    if not is_touched(change.parts, "suspension"):
        return [], []
    base = base_of(change.root, "suspension")
    tasks = [
        _suspension(task, base + index)
        for index, task in enumerate(state.get("suspension") or [])
        if isinstance(task, dict)
    ]
    return _difference("suspensions", run.suspensions, tasks)


def _difference(table: str, known: Mapping[Key, T], rows: Iterable[T]) -> tuple[list[T], Gone]:
    changed = []
    present = set()
    for row in rows:
        present.add(row.key)
        before = known.get(row.key)
        if before is not None:
            row.revision = before.revision
        if row != before:
            changed.append(row)
    return changed, [(table, key) for key in known if key not in present]


def _queued(entry: Any, position: int) -> WorkItem:
    known = entry if isinstance(entry, dict) else {}
    collect = known.get("collect")
    waits = isinstance(collect, dict)
    return WorkItem(
        kind="collect" if waits else "queued",
        position=position,
        node_id=text_in(entry, "nodeId") or "",
        attempt_id=None,
        batch_id=text_in(entry, "batchId"),
        port=text_in(entry, "toInput"),
        items=_count(collect.get("received") if isinstance(collect, dict) else known.get("input")),
        queue=None,
        enqueued_at=None,
    )


def _claimed(pending: Document) -> WorkItem:
    items = whole_in(pending, "itemsIn")
    return WorkItem(
        kind="claimed",
        position=0,
        node_id=text_in(pending, "nodeId") or "",
        attempt_id=text_in(pending, "activationId"),
        batch_id=text_in(pending, "batchId"),
        port=None,
        items=_count(pending.get("inputsByPort")) if items is None else items,
        queue=text_in(pending, "queue"),
        enqueued_at=parse_ms(pending.get("enqueuedAt")),
    )


def _suspension(task: Document, position: int) -> Suspension:
    return Suspension(
        position=position,
        task_id=text_in(task, "taskId") or "",
        node_id=text_in(task, "nodeId") or "",
        attempt_id=text_in(task, "activationId"),
        item_index=whole_in(task, "itemIndex"),
        on_timeout=text_in(task, "onTimeout"),
        timeout_at=parse_ms(task.get("timeoutAt")),
    )


def _count(given: Any) -> int:
    """Items of one port, or of all."""
    if isinstance(given, list):
        return len(given)
    ports = given.values() if isinstance(given, dict) else ()
    return sum(len(items) for items in ports if isinstance(items, list))
