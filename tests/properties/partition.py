"""One partition file under test, fed in batches as a daemon would feed it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.properties.histories import START_MS
from tests.properties.tables import Tables, dump
from writer.apply import Aggregates, Applier, Message, Settled
from writer.core.decide import RULES_VERSION
from writer.core.outcome import Held
from writer.store.commit import Hook, no_hook
from writer.store.partition import PartitionFile, partition_path
from writer.store.reader import StateReader


class Partition:
    """A file, and what applies to it. Runs that wait at a message are passed over."""

    def __init__(self, folder: Path) -> None:
        self.path = partition_path(folder, 0)
        self._file = PartitionFile.open(
            self.path, partition=0, partitions=1, lineage="test", now=START_MS, synchronous="OFF"
        )
        self._file.take("test", rules_version=RULES_VERSION, now=START_MS)
        self._applier = Applier(self._file, 0, 1, Aggregates(self._file))
        self._waiting: set[str] = set()

    def apply(
        self,
        messages: Iterable[Message],
        restarts: Sequence[str] = (),
        *,
        reload: bool = False,
        hook: Hook = no_hook,
    ) -> list[Settled]:
        """Settle one batch; with `reload`, forget all aggregates after it."""
        batch = [message for message in messages if message.run not in self._waiting]
        settled, _ = self._applier.apply(batch, now=START_MS, restarts=restarts, hook=hook)
        self._waiting |= {each.message.run for each in settled if isinstance(each.outcome, Held)}
        if reload:
            self._applier.aggregates.drop({message.run for message in batch})
        return [each for each in settled if not isinstance(each.outcome, Held)]

    def apply_all(
        self, messages: Sequence[Message], size: int | None = None, *, reload: bool = False
    ) -> list[Settled]:
        """Settle all, in batches of `size` (None: in one)."""
        step = size or max(len(messages), 1)
        settled = []
        for start in range(0, len(messages), step):
            settled += self.apply(messages[start : start + step], reload=reload)
        return settled

    def tables(self) -> Tables:
        """All that is stored."""
        return dump(self.path)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of the file."""
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def digest(self) -> dict[str, Any]:
        """The digest of each run, and of the whole."""
        with StateReader(self.path.parent) as reader:
            return reader.digest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def partition() -> Iterator[Partition]:
    """A partition in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        made = Partition(Path(folder))
        try:
            yield made
        finally:
            made.close()
