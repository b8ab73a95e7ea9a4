"""The transcript of a session under a run: bound, appended to, captured."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import RLock
from types import TracebackType
from typing import Any, Protocol, Self

from producers.clock import iso, now_ms
from producers.contract.commands import Auth, CaptureStatus
from producers.contract.reasons import Reason
from producers.errors import InvalidCommand, ProducerError
from producers.handle import Sent

logger = logging.getLogger("statewriter.producer")


class Speaker(Protocol):
    """The run that a session belongs to, as far as a session needs it."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def auth(self) -> Auth | None:
        """The authority that its commands carry now."""
        ...

    def send(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        auth: Auth | None = None,
        confirm: bool = False,
    ) -> Sent:
        """Say a command about it."""
        ...


class Session:
    """Appends to one segment. Errors as Producer says; a call that raised used up no event `seq`.

    In a `with` it is bound at the start; at the end its capture is complete, with the counts of
    what this object appended, or failed if the block raised. Else it is bound at first use.
    """

    def __init__(
        self,
        run: Speaker,
        session_id: str,
        capture_key: str | None = None,
        binding: Mapping[str, Any] | None = None,
    ) -> None:
        self._run = run
        self._id = session_id
        self._place = {} if capture_key is None else {"capture_key": capture_key}
        self._binding = binding
        # Held from stamping an event to buffering it, so that `seq` rises in the order of sending.
        self._lock = RLock()
        self._bound = False
        self._bound_auth: Auth | None = None
        self._ended = False
        self._entry_ids: set[str] = set()
        self._entries_unnamed = 0
        self._last_seq = 0

    @property
    def id(self) -> str:
        """The session's id."""
        return self._id

    @property
    def last_seq(self) -> int:
        """The `seq` of the last event appended, 0 before the first."""
        return self._last_seq

    @property
    def entry_count(self) -> int:
        """How many entries were appended; those with the same id count once, as in the store."""
        return len(self._entry_ids) + self._entries_unnamed

    def bind(self) -> Sent:
        """Open the segment."""
        body: dict[str, Any] = {"session": self._id, **self._place}
        if self._binding is not None:
            body["binding"] = self._binding
        auth = self._run.auth
        sent = self._run.send("session.bind", body, auth=auth)
        self._bound_auth = auth
        self._bound = True
        return sent

    def entry(
        self, entry: Mapping[str, Any], entry_id: str | None = None, *, confirm: bool = False
    ) -> Sent:
        """Append a settled entry; it is known by `entry_id`, else by its own `id`."""
        body: dict[str, Any] = {**self._place, "entry": entry}
        if entry_id is not None:
            body["entry_id"] = entry_id
        with self._lock:
            sent = self._append("session.entry", body, confirm)
            name = entry.get("id") if entry_id is None else entry_id
            if isinstance(name, str):
                self._entry_ids.add(name)
            else:
                self._entries_unnamed += 1
        return sent

    def event(  # noqa: PLR0913  # all but two are optional and named
        self,
        type: str,
        payload: Mapping[str, Any],
        *,
        node: str | None = None,
        attempt: str | None = None,
        turn: str | None = None,
        message: str | None = None,
        tool_call: str | None = None,
        at: str | None = None,
    ) -> Sent:
        """Append a temporal event; its `seq` is the next one, `at` (ISO, UTC) is now by default."""
        named = {
            "at": at,
            "nodeId": node,
            "attemptId": attempt,
            "turnId": turn,
            "messageId": message,
            "toolCallId": tool_call,
        }
        document = {name: value for name, value in named.items() if value is not None}
        return self.events([{**document, "type": type, "payload": payload}])

    def events(self, documents: Sequence[Mapping[str, Any]], *, confirm: bool = False) -> Sent:
        """Append a batch of event documents. `seq` and `at` are stamped where they are absent."""
        at = iso(now_ms())
        stamped: list[dict[str, Any]] = []
        with self._lock:
            seq = self._last_seq
            for index, document in enumerate(documents):
                if not isinstance(document, Mapping):
                    raise InvalidCommand(Reason.FIELD_INVALID, f"events.{index}")
                event = {"seq": seq + 1, "at": at, **document}
                stamped.append(event)
                if type(event["seq"]) is int:
                    seq = event["seq"]
            sent = self._append("session.events", {**self._place, "events": stamped}, confirm)
            # Events that are sent again do not turn the counter back.
            self._last_seq = max(self._last_seq, seq)
        return sent

    def capture(
        self,
        status: CaptureStatus,
        *,
        entry_count: int | None = None,
        event_count: int | None = None,
        last_event_seq: int | None = None,
        failure: Mapping[str, Any] | None = None,
        confirm: bool = False,
    ) -> Sent:
        """Say how the recording stands; counts that are given are checked against the store's."""
        named = {
            "entry_count": entry_count,
            "event_count": event_count,
            "last_event_seq": last_event_seq,
            "failure": failure,
        }
        given = {name: value for name, value in named.items() if value is not None}
        with self._lock:
            body = {**self._place, "status": status, **given}
            sent = self._append("session.capture", body, confirm)
            self._ended = status != "recording"
        return sent

    def __enter__(self) -> Self:
        self.bind()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if kind is None:
            self.capture(
                "complete",
                entry_count=self.entry_count,
                event_count=self._last_seq,
                last_event_seq=self._last_seq,
            )
            return
        try:
            self.capture("failed", failure={"code": "host_error", "message": kind.__name__})
        except ProducerError as refused:
            # The block's own error is what the caller must see.
            logger.warning("action=capture_unsent run=%s: %s", self._run.id, refused)

    def _append(self, kind: str, body: dict[str, Any], confirm: bool = False) -> Sent:
        if not self._bound:
            self.bind()
        # A segment keeps the authority that bound it, also after the run's lease was released.
        auth = self._run.auth or self._bound_auth
        return self._run.send(kind, body, auth=auth, confirm=confirm)
