"""The part of `StateReader` that a workflow engine, its dashboards and retention ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from writer.store.reader import engine, retention, states, summaries
from writer.store.reader.files import Files
from writer.store.reader.query import Record
from writer.store.reader.states import Head

T = TypeVar("T")


class EngineReads(ABC):
    """Reads of runs that are saved whole. In other dialects they find what is there by the same
    names.
    """

    _files: Files

    @abstractmethod
    def _of_run(self, run_id: str, read: Callable[[apsw.Connection, Head], T], absent: T) -> T:
        """Read of a run in one transaction; `absent` if it does not exist."""

    def load(self, run_id: str) -> Any:
        """The whole run as it was saved, with its `revision`; None if it does not exist."""
        return self._of_run(
            run_id,
            lambda connection, head: states.state_at(connection, head, head.revision),
            None,
        )

    def scheduling_state(self, run_id: str) -> Record | None:
        """`{queue, pending?}`: what the engine has to do next. Reads nothing else of the state."""
        return self._of_run(run_id, engine.scheduling_state, None)

    def run_detail(self, run_id: str) -> Record | None:
        """A run for people, in the hosts' shape:

        runId, status, workflowId?, startedAt?, finishedAt?, workflowSnapshot?, mutableState?
        slotStates          [{slotNodeId, latestInstanceId?, latestTerminalInstanceId?,
                            latestRunningInstanceId?, status?, invocationCount, runCount}], by node
        executionInstances  [{instanceId, slotNodeId, workflowNodeId, kind, runIndex, batchId,
                            status, itemCount, inputJson?, outputJson?, error?, ...}]: activations
                            by node and runIndex (all of them, not only the newest), then
                            invocations in the order in which they were appended
        iterations          [{iterationId, agentNodeId, activationId?, itemIndex, status,
                            startedAt?, finishedAt?, invocationIds}], by itemIndex and start
        """
        return self._of_run(run_id, engine.run_detail, None)

    def run_summaries(self, *, workflow: str | None = None, limit: int = 50) -> list[Record]:
        """Runs of the `codemation` dialect in the hosts' shape, the newest first.

        `{runId, workflowId, startedAt, status, testCaseStatus?, finishedAt?, parent?,
        executionOptions?}`. `list_runs` has the runs of all dialects, page by page.
        """
        return summaries.newest_summaries(self._files, workflow, limit)

    def binary_storage_keys(self, run_id: str) -> list[str]:
        """Storage keys of the attachments that the run names, each once, in code point order.

        An attachment has the texts `id`, `storageKey`, `mimeType` and the number `size`; it is
        looked for in outputs, pinned data, and inputs and outputs of attempts and invocations, in
        every state that the run has had: what it no longer names is its file all the same.
        """
        return self._of_run(run_id, summaries.binary_storage_keys, [])

    def test_suite(self, suite: str) -> Record:
        """Runs whose tag `testSuiteRunId` is `suite`:

        `{test_suite, total, open, test_case_statuses: {status: count}, cases: [{run_id, status,
        test_case_status, terminal, created_at, finished_at, test_case_index, test_case_label}]}`
        by index. Without a run of it: total 0.
        """
        return summaries.suite_of(self._files, suite)

    def prune_candidates(
        self,
        now: int,
        *,
        default_seconds: int | None = None,
        limit: int = 100,
        kept: list[Record] | None = None,
    ) -> list[Record]:
        """Runs that finished longer ago (as of `now`, ms) than they are to be kept, by their end.

        `{run_id, workflow, status, created_at, finished_at, retention_seconds, revision}`.
        `default_seconds` counts for runs that name none; None: those stay. A run stays, too, while
        a run below it has not finished (`child_live`), its lease is held (`lease_held`), an effect
        is pending (`effect_pending`) or it is `quarantined`: such are added to `kept`, with
        `kept_by`.
        """
        return retention.prune_candidates(self._files, now, default_seconds, limit, kept)

    def silent_runs(self, now: int, silent_ms: int, *, limit: int = 100) -> list[Record]:
        """Runs under way whose last message arrived longer ago than `silent_ms`: abandoned ones.

        `{run_id, workflow, status, created_at, revision, heard_at}`, the longest silent first. Not
        those that wait for somebody, are quarantined, or have a lease that has not expired.
        """
        return retention.silent_runs(self._files, now, silent_ms, limit)
