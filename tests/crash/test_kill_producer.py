"""kill -9 to a producer in the middle of its pipelines: acked is applied, applied was attempted."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from producers import Producer, ProducerSettings
from tests.support import checks, producer_main
from tests.support.processes import Process
from tests.support.proxy import proxy
from tests.support.scene import Scene, scene
from tests.support.wait import poll


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_a_killed_producer(tmp_path: Path, kills: int) -> None:
    """Each starts under a new id, as a producer does, and writes to the same runs."""
    chance = random.Random(kills)
    told: list[dict[str, int]] = []
    with scene(tmp_path) as on:
        # One that dies in the middle of a pipeline leaves messages without a mark.
        on.start(sweep_ms=500)
        for number in range(kills):
            given = {"url": on.url, "producer": f"life-{number}"}
            producer = on.started.fork(producer_main.run, given, f"{number}.log")
            # Half of them early: perhaps before anything is confirmed.
            begun = producer.lines if number % 2 else partial(is_heard, producer)
            poll(begun, message="the producer to begin")
            time.sleep(chance.uniform(0, 0.03))
            producer.kill()
            told.append(last_told(producer.lines()))
        poll(lambda: checks.waiting(on.client) == 0, 240, "the backlog to drain")
        on.stops()
    applied = checks.sequences(on.data)
    refused = checks.sequences(on.data, "rejections")
    assert sum(each["acked"] for each in told)
    for number, each in enumerate(told):
        have = {
            (run, seq)
            for (run, producer), seqs in applied.items()
            for seq in seqs
            if producer == f"life-{number}"
        }
        acked = {(f"run-{seq % 5}", seq // 5 + 1) for seq in range(each["acked"])}
        attempted = {(f"run-{seq % 5}", seq // 5 + 1) for seq in range(each["attempted"])}
        assert acked <= have <= attempted
    assert not any(refused.values())
    assert not checks.gaps(on.data)
    checks.check_all(on.data)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.soak)])
def test_a_killed_producer_of_ours(tmp_path: Path, kills: int) -> None:
    """Redis being away now and then. The next life sends what the spool of the last one holds."""
    chance = random.Random(kills)
    told: list[dict[str, int]] = []
    with scene(tmp_path) as on, proxy(on.server.folder) as between:
        on.start()
        # So that each life knows the number of partitions.
        on.opens()
        for number in range(kills):
            given = {"url": between.url, "spool": str(tmp_path / "spool"), "life": number}
            producer = on.started.fork(producer_main.run_ours, given, f"ours-{number}.log")
            poll(partial(is_heard, producer), message="the producer to be heard")
            if number % 3:
                between.refuse()
            time.sleep(chance.uniform(0, 0.2))
            producer.kill()
            between.allow()
            told.append(last_told(producer.lines()))
        settings = ProducerSettings(spool=tmp_path / "spool")
        with Producer(between.url, settings=settings) as last:
            poll(lambda: not last.flush(5).waiting, 240, "the spool to be sent")
            wanted = {f"life-{number}": each["acked"] for number, each in enumerate(told)}
            poll(lambda: updates(on, wanted), 240, "what is safe to be applied")
        on.stops()
    for number, each in enumerate(told):
        ((_, have),) = [
            (run, seqs)
            for (run, _), seqs in checks.sequences(on.data).items()
            if run == f"life-{number}"
        ]
        # Without a hole: its create, and updates from 1 on.
        assert have == set(range(1, len(have) + 1))
        assert each["acked"] <= len(have) - 1 <= each["attempted"]
    assert not any(checks.sequences(on.data, "rejections").values())
    assert not checks.gaps(on.data)
    checks.check_all(on.data)


def is_heard(producer: Process) -> bool:
    """Whether it had anything confirmed."""
    return last_told(producer.lines())["acked"] > 0


def updates(on: Scene, wanted: dict[str, int]) -> bool:
    """Whether so many updates of each run are applied."""
    applied = checks.sequences(on.data)
    counts = {run: len(seqs) - 1 for (run, _), seqs in applied.items()}
    return all(counts.get(run, 0) >= count for run, count in wanted.items())


def last_told(lines: list[dict[str, Any]]) -> dict[str, int]:
    """How many commands the producer had confirmed, and how many it had begun to send."""
    found = {"acked": 0, "attempted": 0}
    for line in lines:
        what, _, count = line["text"].partition(" ")
        if what in found:
            found[what] = int(count)
    return found
