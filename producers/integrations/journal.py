"""A list of JSON documents that is only ever appended to: the transcript of a run of its own.

What was appended is read back through a reader of the writer's files (`StateReader`), which the
caller brings: this package knows nothing of the writer. A read waits for what this journal has
said before, so it sees its own appends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from threading import RLock
from typing import Any, Protocol

import orjson

from producers.client import Producer
from producers.handle import Sent
from producers.run import Run
from producers.session import Session

PART_CHARS = 1_000_000
"""A larger document travels in parts: an entry has a limit."""
PAGE = 1_000
WAIT_S = 30.0

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")

Document = dict[str, Any]


class Reader(Protocol):
    """What is used of the writer's `StateReader`."""

    def run(self, run_id: str) -> Mapping[str, Any] | None:
        """The run; `deleted` is in it if it was."""
        ...

    def transcript(
        self, run_id: str, *, capture_key: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Entries past a seq."""
        ...

    def list_runs(self, *, workflow: str | None, after: str | None, limit: int) -> Any:
        """A page of runs."""
        ...


def run_id_of(kind: str, key: str, generation: int) -> str:
    """`<kind>-<key, made plain>-<16 hex>-<generation>`: any text can be a key."""
    digest = sha256(key.encode(errors="surrogatepass")).hexdigest()[:16]
    plain = _NOT_PLAIN.sub("-", key).strip("-._")[:60]
    return "-".join(part for part in (kind, plain, digest, str(generation)) if part)


class Journal:
    """One list. Thread-safe. A key that was cleared begins a new run: ids are never used again."""

    def __init__(self, producer: Producer, reader: Reader, kind: str, key: str) -> None:
        self._producer = producer
        self._reader = reader
        self._kind = kind
        self._key = key
        self._lock = RLock()
        self._generation = 1
        while "deleted" in (reader.run(self.run_id) or {}):
            self._generation += 1
        self._begin()

    def _begin(self) -> None:
        self._session: Session | None = None
        self._last: Sent | None = None
        self._seen = 0
        self._documents: list[Document] = []
        self._parts: list[str] = []

    @property
    def run_id(self) -> str:
        """The run that holds it now."""
        return run_id_of(self._kind, self._key, self._generation)

    def append(self, document: Mapping[str, Any]) -> Sent:
        """Add a document; never waits."""
        text = orjson.dumps(document).decode()
        with self._lock:
            session = self._session or self._open()
            pieces: list[Document] = [{"document": document}]
            if len(text) > PART_CHARS:
                starts = range(0, len(text), PART_CHARS)
                pieces = [{"part": text[start : start + PART_CHARS]} for start in starts]
                pieces[-1]["last"] = True
            for piece in pieces:
                sent = self._last = session.entry(piece)
            return sent

    def read(self) -> list[Document]:
        """All documents, our own included. Raises CommandRejected or NotConfirmed."""
        with self._lock:
            if self._session is None:
                # Order does the rest: what any process said of it before is applied by then.
                self._open()
            self.settle()
            while entries := self._reader.transcript(self.run_id, after=self._seen, limit=PAGE):
                for entry in entries:
                    self._take(entry["entry"])
                self._seen = entries[-1]["seq"]
            return list(self._documents)

    def settle(self) -> None:
        """Wait until what was said is applied."""
        with self._lock:
            last, self._last = self._last, None
            if last is not None:
                try:
                    self._producer.wait_applied(last, WAIT_S)
                except BaseException:
                    self._last = last
                    raise

    def clear(self) -> None:
        """Remove it all; the next append begins anew."""
        with self._lock:
            if self._session is None and self._reader.run(self.run_id) is None:
                return
            self._run().delete()
            self._generation += 1
            self._begin()

    def _run(self) -> Run:
        return self._producer.run(self.run_id)

    def _open(self) -> Session:
        # The same again, from whatever process, is a duplicate and changes nothing.
        run = self._producer.create_run(self._kind, run_id=self.run_id, title=self._key[:1000])
        self._session = run.session(self._kind)
        self._last = self._session.bind()
        return self._session

    def _take(self, entry: Document) -> None:
        if "document" in entry:
            self._documents.append(entry["document"])
            return
        self._parts.append(entry["part"])
        if entry.get("last"):
            self._documents.append(orjson.loads("".join(self._parts)))
            self._parts = []


def keys_of(reader: Reader, kind: str) -> Iterator[str]:
    """The keys of all journals of a kind that are there, the newest first."""
    after: str | None = None
    while True:
        page = reader.list_runs(workflow=kind, after=after, limit=PAGE)
        yield from (run["title"] for run in page.runs)
        after = page.next
        if after is None:
            return
