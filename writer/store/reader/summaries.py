"""Runs of a workflow engine in lists, the cases of a test suite, and the files that a run names."""

from __future__ import annotations

from collections import Counter
from typing import Any

import apsw
import orjson

from writer.core.parts import key_of
from writer.dialects.instant import iso
from writer.store.reader.engine import ABSENT, CALLS, NODES, part_at, rows_of
from writer.store.reader.files import Files
from writer.store.reader.query import ROWS_MAX, Record, check_limit
from writer.store.reader.states import Head

ANY = ""
WITH_ATTACHMENTS = (
    ("outputsByNode",),
    ("mutableState",),
    (NODES, ANY, "inputsByPort"),
    (NODES, ANY, "outputs"),
    (CALLS, ANY, "managedInput"),
    (CALLS, ANY, "managedOutput"),
)
"""Places in a state whose attachments belong to the run."""


def newest_summaries(files: Files, workflow: str | None, limit: int) -> list[Record]:
    """The keys are described at `StateReader.run_summaries`."""
    check_limit(limit)
    found: list[tuple[tuple[int, str], Record]] = []
    query = "summaries" if workflow is None else "summaries_of_workflow"
    bindings: Record = {"limit": limit} | ({} if workflow is None else {"workflow": workflow})
    for _, file in files.all():
        with file.read() as connection:
            found += [
                ((row["created_at"], row["run_id"]), _summary(connection, row))
                for row in rows_of(connection, query, **bindings)
            ]
    found.sort(key=lambda each: each[0], reverse=True)
    return [summary for _, summary in found[:limit]]


def _summary(connection: apsw.Connection, row: Record) -> Record:
    where = (connection, row["run_key"], row["revision"])
    shown: Record = {
        "runId": row["run_id"],
        "workflowId": row["workflow"],
        "status": row["status"],
        "testCaseStatus": row["test_case_status"],
    }
    shown = {name: value for name, value in shown.items() if value is not None}
    for name in ("startedAt", "parent", "executionOptions"):
        value = part_at(*where, name)
        if value is not ABSENT:
            shown[name] = value
    if row["finished_at"] is not None:
        shown["finishedAt"] = iso(row["finished_at"])
    return shown


def suite_of(files: Files, suite: str) -> Record:
    """The keys are described at `StateReader.test_suite`."""
    cases: list[Record] = []
    for _, file in files.all():
        with file.read() as connection:
            cases += rows_of(connection, "suite", suite=suite, limit=ROWS_MAX)
    cases.sort(key=lambda case: (case["test_case_index"] or 0, case["created_at"], case["run_id"]))
    for case in cases:
        case["terminal"] = bool(case["terminal"])
    counts = Counter(case["test_case_status"] or "none" for case in cases)
    return {
        "test_suite": suite,
        "total": len(cases),
        "open": sum(not case["terminal"] for case in cases),
        "test_case_statuses": dict(sorted(counts.items())),
        "cases": cases,
    }


def binary_storage_keys(connection: apsw.Connection, head: Head) -> list[str]:
    """Storage keys of all attachments in outputs, pinned data, and inputs and outputs of attempts
    and invocations, in every state that the run has had; in code point order.
    """
    found: set[str] = set()
    for row in rows_of(connection, "parts_with_keys", run_key=head.run_key):
        keys = [key_of(token) for token in row["pointer"].split("/")[1:]]
        if not row["pointer"].endswith("/storageKey"):
            _collect_at(keys, orjson.loads(row["value"]), found)
            continue
        # An attachment that is in parts itself.
        whole = part_at(connection, head.run_key, row["revision"], *keys[:-1])
        _collect_at(keys[:-1], whole, found)
    return sorted(found)


def _collect_at(keys: list[str], value: Any, found: set[str]) -> None:
    """From a value at a place in the state, or from what is in it where attachments count."""
    fits = [
        place
        for place in WITH_ATTACHMENTS
        if all(known in (ANY, key) for known, key in zip(place, keys, strict=False))
    ]
    if any(len(place) <= len(keys) for place in fits):
        _collect(value, found)
    elif fits and isinstance(value, dict | list):
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for key, member in members:
            _collect_at([*keys, str(key)], member, found)


def _collect(value: Any, found: set[str]) -> None:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            if _is_attachment(value):
                found.add(value["storageKey"])
            else:
                waiting += value.values()
    found.discard("")


def _is_attachment(value: Record) -> bool:
    texts = all(isinstance(value.get(name), str) for name in ("id", "storageKey", "mimeType"))
    size = value.get("size")
    return texts and isinstance(size, int | float) and not isinstance(size, bool)
