"""OpenAI Agents SDK: a session that is kept, and a trace processor. Needs the extra `agents`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from threading import RLock
from typing import Any, cast

import orjson
from agents import TResponseInputItem
from agents.memory import SessionABC, SessionSettings
from agents.tracing import Span, Trace, TracingProcessor

from producers.client import Producer
from producers.errors import ProducerError
from producers.integrations.journal import Journal, Reader, run_id_of
from producers.run import Run
from producers.session import Session

logger = logging.getLogger("statewriter.producer")

SESSION_KIND = "openai-agents-session"
TRACE_KIND = "openai-agents-trace"


class StatewriterSession(SessionABC):
    """A conversation as the transcript of a run. It reads its own writes.

    Producer and reader (a `StateReader` of the writer's files) stay the caller's to close. Methods
    that read raise NotConfirmed while no writer runs.
    """

    def __init__(
        self,
        session_id: str,
        producer: Producer,
        reader: Reader,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self._journal = Journal(producer, reader, SESSION_KIND, session_id)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The last items, the oldest first; all without a limit."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        items = await asyncio.to_thread(self._items)
        if limit is None:
            return items
        return items[-limit:] if limit > 0 else []

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append; never waits."""
        for item in items:
            self._journal.append({"item": item})

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item away."""
        items = await asyncio.to_thread(self._items)
        if not items:
            return None
        self._journal.append({"pop": 1})
        return items[-1]

    async def clear_session(self) -> None:
        """Delete the conversation; the next item begins a new one."""
        await asyncio.to_thread(self._journal.clear)

    def _items(self) -> list[TResponseInputItem]:
        items: list[Any] = []
        for document in self._journal.read():
            if "item" in document:
                items.append(document["item"])
            elif items:
                items.pop()
        return cast("list[TResponseInputItem]", items)


class StatewriterTraceProcessor(TracingProcessor):
    """Each trace is a run; its spans are events of the run's transcript.

    Add it with `agents.add_trace_processor`. It never raises, and never waits but for a flush.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._lock = RLock()
        self._open: dict[str, tuple[Run, Session]] = {}

    def on_trace_start(self, trace: Trace) -> None:
        """Create the run."""
        run_id = run_id_of("trace", trace.trace_id, 1)
        try:
            run = self._producer.create_run(
                TRACE_KIND, run_id=run_id, title=trace.name, input=_json(trace.export())
            )
            session = run.session("spans")
            session.bind()
        except ProducerError as refused:
            logger.warning("action=trace_unsent trace=%s: %s", trace.trace_id, refused)
            return
        with self._lock:
            self._open[trace.trace_id] = (run, session)

    def on_trace_end(self, trace: Trace) -> None:
        """Complete the run."""
        with self._lock:
            found = self._open.pop(trace.trace_id, None)
        if found is None:
            return
        run, session = found
        try:
            session.capture("complete", event_count=session.last_seq)
            run.complete()
        except ProducerError as refused:
            logger.warning("action=trace_unsent trace=%s: %s", trace.trace_id, refused)

    def on_span_start(self, span: Span[Any]) -> None:
        """An event of the transcript."""
        self._tell(span, "span_started")

    def on_span_end(self, span: Span[Any]) -> None:
        """An event of the transcript."""
        self._tell(span, "span_ended")

    def shutdown(self) -> None:
        """Send what waits. The producer stays open: it is the caller's."""
        self.force_flush()

    def force_flush(self) -> None:
        """Wait until Redis has what was said."""
        self._producer.flush()

    def _tell(self, span: Span[Any], type_: str) -> None:
        with self._lock:
            found = self._open.get(span.trace_id)
        if found is None:
            return
        try:
            found[1].event(type_, _json(span.export()) or {}, message=span.span_id)
        except ProducerError as refused:
            logger.warning("action=span_unsent span=%s: %s", span.span_id, refused)


def _json(value: Any) -> Any:
    """The value as JSON can say it; what it can not is told by its repr."""
    return orjson.loads(orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS))


__all__: Sequence[str] = ("StatewriterSession", "StatewriterTraceProcessor")
