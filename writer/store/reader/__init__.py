"""Reading what the writer wrote: `StateReader` over all partition files of a data folder."""

from __future__ import annotations

from writer.store.reader.changes import Changes
from writer.store.reader.rejections import RejectionPage
from writer.store.reader.runs import RunPage
from writer.store.reader.state_reader import StateReader

__all__ = ["Changes", "RejectionPage", "RunPage", "StateReader"]
