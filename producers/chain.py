"""The states of one run that this producer says: each as what changed since the one before.

A patch builds on the state before it and asks for a receipt. If the writer had another state by
then, it refuses the patch and all that build on it: they are said again, upon a whole state.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final, Protocol

import orjson

from producers.contract.commands import Auth
from producers.contract.limits import BODY_BYTES_MAX
from producers.contract.reasons import Reason
from producers.errors import InvalidCommand, ProducerError
from producers.handle import Receipt, Sent
from producers.stated import Obj, Step, Unfit, difference, size_of, text_of, tree_of
from producers.validation import encode_body

logger = logging.getLogger("statewriter.producer")

PENDING_MAX: Final = 1_000
"""Patches without an answer; beyond these states are said whole."""
PENDING_BYTES_MAX: Final = 16 * 1024 * 1024
HEALS_MAX: Final = 3
"""How often in a row what is said again may have been in vain: others write this run, too."""

STATE_KINDS: Final = frozenset(
    (
        "run.create",
        "run.snapshot",
        "run.patch",
        "run.resume",
        "run.reset",
        "run.interrupt",
        "run.delete",
    )
)
"""What may change a run's state."""
AS_SENT: Final = ("generic", "pi_workflows")
"""Dialects that keep the state of a create just as it came."""


class Voice(Protocol):
    """How commands leave."""

    def publish(  # a command and how it is sent
        self,
        run: str,
        kind: str,
        body: Mapping[str, Any] | bytes,
        auth: Auth | None = None,
        *,
        ask: bool = False,
        wait: bool = True,
        trace: str | None = None,
    ) -> tuple[Sent, bytes]:
        """Say a command; returns its handle and the JSON text of its body.

        A text was judged already. Without `wait` it does not wait for room. The trace is the
        current span unless one is given. Raises as Producer says.
        """
        ...

    def keep(self, chain: Chain, busy: bool) -> None:
        """Keep the chain alive while it is busy, whoever else forgets it."""
        ...


class Speaker(Protocol):
    """Who says a state, as far as it may have to be said again."""

    @property
    def auth(self) -> Auth | None:
        """The authority that commands carry now."""
        ...

    @property
    def lost(self) -> Receipt | None:
        """The refusal that showed that the lease is lost."""
        ...


@dataclass(slots=True, eq=False)
class _Pending:
    """A state that was said as a patch, or again as a whole, and is not yet answered."""

    speaker: Speaker
    root: Obj
    edits: bytes
    event: bytes
    link: int
    is_whole: bool = False
    trace: str | None = None
    handles: list[Sent] = field(default_factory=list)
    """The last one is the command's; those before it stand for it."""

    @property
    def size_bytes(self) -> int:
        return len(self.edits) + len(self.event)

    @property
    def name(self) -> tuple[str, int]:
        return self.handles[-1].producer, self.handles[-1].seq


class Chain:
    """What was said last, what that may be patched upon, and what is not yet answered.

    Thread-safe: a difference and its publication are one, since the base is the state before.
    """

    def __init__(self, run: str, voice: Voice, delta_bytes_min: int) -> None:
        self._run = run
        self._voice = voice
        self._bytes_min = delta_bytes_min
        # The body that brought the last state, until its tree is needed.
        self._said: bytes | Obj = b"{}"
        self._patching = delta_bytes_min > 0
        self._heals = 0
        self._link = 0
        self.begin()

    def begin(self) -> None:
        """Know of no state that could be patched. Also for a forked child, whose locks are new."""
        # Reentrant: a signal handler may speak.
        self._lock = RLock()
        self._base: int | None = None
        self._patched_bytes = 0
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        # Said again before their refusals came: names, in order.
        self._replaced: deque[tuple[str, int]] = deque()

    def last_state(self) -> dict[str, Any]:
        """The last state that was said; empty if none was."""
        with self._lock:
            said = self._said
        text = said if isinstance(said, bytes) else b'{"state":%b}' % text_of(said)
        return dict(orjson.loads(text).get("state", {}))

    def say(
        self, kind: str, body: Mapping[str, Any], auth: Auth | None, *, ask: bool = False
    ) -> Sent:
        """Say a command that may change the state, as it is."""
        with self._lock:
            sent, text = self._voice.publish(self._run, kind, body, auth, ask=ask)
            self._break()
            if kind == "run.snapshot" or (kind == "run.create" and body.get("state") is not None):
                self._said = text
                is_as_sent = body.get("on_conflict", "reject") == "reject"
                if kind == "run.create":
                    is_as_sent = body.get("dialect", AS_SENT[0]) in AS_SENT
                if is_as_sent and not sent.dropped:
                    self._base = sent.seq
            return sent

    def snapshot(
        self,
        state: Mapping[str, Any],
        draft: Mapping[str, Any],
        speaker: Speaker,
        *,
        ask: bool = False,
    ) -> Sent:
        """Replace the state: by what has changed if that is less, else whole."""
        with self._lock:
            step = self._step(state)
            if step is None:
                body = {"state": state, "event": draft} if draft else {"state": state}
                return self.say("run.snapshot", body, speaker.auth, ask=ask)
            said = _Pending(speaker, step.root, step.edits, _event(draft), self._link)
            if self._is_less(said):
                self._publish(said)
                return said.handles[-1]
            text = _whole(said)
            if len(text) > BODY_BYTES_MAX:
                raise InvalidCommand(Reason.BODY_TOO_LARGE, "body")
            sent, _ = self._voice.publish(self._run, "run.snapshot", text, speaker.auth, ask=ask)
            self._break()
            self._said = step.root
            self._base = None if sent.dropped else sent.seq
            return sent

    def end(self) -> None:
        """Nothing is said again from now on: the run has ended."""
        with self._lock:
            self._await([])
            self._base = None
            self._voice.keep(self, bool(self._replaced))

    def answer(self, receipt: Receipt) -> bool:
        """Take an answer of the writer's; whether it was a refusal that was made good."""
        with self._lock:
            name = (receipt.producer, receipt.seq)
            found = self._take(name)
            is_good = name in self._replaced if found is None else self._settle(found, receipt)
            while self._replaced and self._replaced[0][1] <= receipt.seq:
                self._replaced.popleft()
            self._voice.keep(self, bool(self._pending or self._replaced))
            return is_good

    # with the lock held

    def _settle(self, found: _Pending, receipt: Receipt) -> bool:
        """Whether it is a refusal that was made good."""
        if receipt.outcome == "rejected":
            if receipt.reason == Reason.BASE_CHANGED and self._heal(found):
                return True
            if found.link == self._link:
                self._base = None
        elif not found.is_whole:
            self._heals = 0
        for handle in found.handles:
            handle.receipt = receipt
        return False

    def _break(self) -> None:
        """What is said next builds on nothing that was said before."""
        self._base = None
        self._patched_bytes = 0
        self._link += 1

    def _step(self, state: Mapping[str, Any]) -> Step | None:
        """What leads to a state from the one before; None if it is to be said whole."""
        if self._base is None or not self._patching:
            return None
        said = self._said
        if isinstance(said, bytes):
            if len(said) < self._bytes_min:
                return None
            said = self._said = tree_of(orjson.loads(said)["state"])
        try:
            step = difference(said, state)
        except Unfit:
            return None
        return step if size_of(step.root) >= self._bytes_min else None

    def _is_less(self, said: _Pending) -> bool:
        """Whether a patch is worth it: whoever reads the stream must get a whole one in time."""
        size_bytes = size_of(said.root)
        return (
            2 * said.size_bytes < size_bytes < BODY_BYTES_MAX - 100 - len(said.event)
            and self._patched_bytes + said.size_bytes <= size_bytes
            and len(self._pending) < PENDING_MAX
            and self._pending_bytes < PENDING_BYTES_MAX
        )

    def _publish(self, said: _Pending) -> None:
        """Say a state upon the last one, or whole, and expect the answer."""
        is_first = not said.handles
        kind, text = "run.snapshot", b""
        if said.is_whole:
            text = _whole(said)
        else:
            assert self._base is not None
            kind, text = "run.patch", _patch(self._base, said)
        auth, trace = said.speaker.auth, said.trace
        sent, _ = self._voice.publish(
            self._run, kind, text, auth, ask=True, wait=is_first, trace=trace
        )
        if is_first and sent.fields is not None:
            said.trace = sent.fields.get(b"trace", b"").decode() or None
        for handle in said.handles:
            handle.successor = sent
        said.handles.append(sent)
        self._said = said.root
        self._base = None if sent.dropped else sent.seq
        self._patched_bytes = 0 if said.is_whole else self._patched_bytes + said.size_bytes
        if not sent.dropped:
            self._pending.append(said)
            self._pending_bytes += said.size_bytes
            self._voice.keep(self, True)

    def _take(self, name: tuple[str, int]) -> _Pending | None:
        """What has this name. What was said before it has been settled, too."""
        for place, pending in enumerate(self._pending):
            if pending.name == name:
                for _ in range(place + 1):
                    self._pending_bytes -= self._pending.popleft().size_bytes
                return pending
        return None

    def _await(self, pending: Iterable[_Pending]) -> None:
        """Expect the answers to these and no others."""
        self._pending = deque(pending)
        self._pending_bytes = sum(each.size_bytes for each in self._pending)

    def _heal(self, refused: _Pending) -> bool:
        """Say again what was refused, and what builds on it and will be; whether that went."""
        if refused.speaker.lost is not None:
            return False
        behind = list(self._pending)
        again = [refused, *(each for each in behind if each.link == refused.link)]
        is_latest = refused.link == self._link
        if not is_latest and self._base is None:
            # The state has gone on in a way that only the writer knows.
            return False
        self._heals += 1
        self._patching = self._patching and self._heals < HEALS_MAX
        self._await(each for each in behind if each.link != refused.link)
        self._link += is_latest
        for number, each in enumerate(again):
            each.link = self._link
            each.is_whole = is_latest and (number == 0 or not self._patching)
            if not is_latest:
                # A whole state was said since: what is missing are the events.
                each.root, each.edits = self._tree(), b""
            name = each.name
            try:
                self._publish(each)
            except ProducerError as error:
                self._give_up(again[number:], str(error))
                return number > 0
            if number:
                self._replaced.append(name)
            if self._base is None:
                self._give_up(again[number + 1 :], "the buffer is full")
                return True
        logger.info(
            "action=state_resent run=%s states=%d whole=%s", self._run, len(again), is_latest
        )
        return True

    def _give_up(self, rest: list[_Pending], why: str) -> None:
        """Of these nothing could be said again: the next state is whole, and they stay refused."""
        self._base = None
        logger.warning("action=state_unsent run=%s states=%d: %s", self._run, len(rest), why)

    def _tree(self) -> Obj:
        if isinstance(self._said, bytes):
            self._said = tree_of(orjson.loads(self._said)["state"])
        return self._said


def _event(draft: Mapping[str, Any]) -> bytes:
    """The event's members of a body, after the contract's judgement. Raises InvalidCommand."""
    if not draft:
        return b""
    text = encode_body("run.patch", {"base": 1, "event": draft})
    return text[text.index(b",") : -1]


def _patch(base: int, said: _Pending) -> bytes:
    edits = b",%b" % said.edits if said.edits else b""
    return b'{"base":%d%b%b}' % (base, edits, said.event)


def _whole(said: _Pending) -> bytes:
    return b'{"state":%b%b}' % (text_of(said.root), said.event)
