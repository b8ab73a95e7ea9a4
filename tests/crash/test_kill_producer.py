"""kill -9 to a producer in the middle of its pipelines: acked is applied, applied was attempted."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import checks, producer_main
from tests.support.scene import scene
from tests.support.wait import poll


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_a_killed_producer(tmp_path: Path, kills: int) -> None:
    """Each starts under a new id, as a producer does, and writes to the same runs."""
    chance = random.Random(kills)
    told: list[dict[str, int]] = []
    with scene(tmp_path) as on:
        on.start()
        for number in range(kills):
            given = {"url": on.url, "producer": f"life-{number}"}
            producer = on.started.fork(producer_main.run, given, f"{number}.log")
            poll(producer.lines, 10, "the producer to begin")
            time.sleep(chance.uniform(0, 0.03))
            producer.kill()
            told.append(last_told(producer.lines()))
        poll(lambda: checks.waiting(on.client) == 0, 20, "the backlog to drain")
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


def last_told(lines: list[dict[str, Any]]) -> dict[str, int]:
    """How many commands the producer had confirmed, and how many it had begun to send."""
    found = {"acked": 0, "attempted": 0}
    for line in lines:
        what, _, count = line["text"].partition(" ")
        found[what] = int(count)
    return found
