"""Aggregates in memory are bounded by their weight, whatever they were loaded for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producers.contract.envelope import encode, seal
from writer.apply import Aggregates, Applier, Message
from writer.core.decide import RULES_VERSION
from writer.store.partition import PartitionFile, Place, partition_path

RUNS = [f"run-{number}" for number in range(8)]
STATE = {"parts": [f"{number} " + "x" * 900 for number in range(20)]}
ROOM_BYTES = 80_000
"""For the aggregates of two or three such runs."""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[PartitionFile]:
    path = partition_path(tmp_path, 0)
    opened = PartitionFile.open(path, partition=0, partitions=1, lineage="first", now=0)
    opened.take("test", rules_version=RULES_VERSION, now=0)
    applier = Applier(opened, 0, 1, Aggregates(opened))
    for run in RUNS:
        applier.apply([message(run, 1, "run.create", {"state": STATE})], now=0)
    yield opened
    opened.close()


def message(run: str, seq: int, kind: str, body: dict[str, Any]) -> Message:
    return Message(run, f"{seq}-0", seal(encode(kind, body, producer="p", seq=seq)))


def known(aggregates: Aggregates) -> list[str]:
    return [run for run in RUNS if aggregates.known(run) is not None]


def test_what_was_only_looked_at_goes_too(file: PartitionFile) -> None:
    aggregates = Aggregates(file, ROOM_BYTES)
    for run in RUNS:
        aggregates.get(run)
    assert known(aggregates) == RUNS, "in the middle of a batch nothing may go"
    aggregates.weigh(())
    assert 1 <= len(known(aggregates)) <= 3
    assert known(aggregates)[-1] == RUNS[-1]


def test_a_portion_is_as_many_as_fit(file: PartitionFile) -> None:
    aggregates = Aggregates(file, ROOM_BYTES)
    count = aggregates.portion(RUNS)
    assert 2 <= count <= 3
    assert len(known(aggregates)) <= count + 1
    assert Aggregates(file).portion(RUNS) == len(RUNS)
    assert Aggregates(file, 1).portion(RUNS) == 1


def test_a_place_is_known_without_the_aggregate(file: PartitionFile) -> None:
    assert file.place("run-0") == Place("1-0", ended=False)
    assert file.place("nobody") == Place("0-0", ended=False)
    applier = Applier(file, 0, 1, Aggregates(file))
    done = {"state": {**STATE, "status": "completed"}}
    applier.apply([message("run-0", 2, "run.snapshot", done)], now=0)
    applier.apply([message("run-1", 5, "run.delete", {})], now=0)
    assert file.place("run-0") == Place("2-0", ended=True)
    assert file.place("run-1") == Place("5-0", ended=True)
    assert file.open_gaps("run-1") == [("p", 2, 4)]
    assert file.open_gaps("run-2") == []
