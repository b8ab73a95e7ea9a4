"""Other processes, whose hashes have other seeds, make the same of an archive: in any batches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from producers.contract.envelope import decode, seal
from tests.faults.test_rubbish import Sent, messages
from tests.support import checks
from tests.support.console import statewriter
from tests.support.rebuilds import digests_differ
from tests.support.scene import Scene, scene
from tests.support.wait import poll

SEEDS = ("0", "1", "4711")
SIZES = (1, 7, 200, None)


def says_all_kinds_of_things(on: Scene, count: int) -> None:
    """Good commands, and rubbish among them; none of it claims a newer version."""
    chance = random.Random(count)
    sent = Sent(on)
    for _ in range(count // 500):
        rubbish = [
            (chance.choice(on.traffic.runs), fields)
            for fields in messages(chance, 25)
            if decode("r", "1-1", seal(fields)).newer_version is None
        ]
        sent.send(rubbish)
        on.send(450)
    poll(lambda: checks.waiting(on.client) == 0, 120, "all to end")


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_replay_elsewhere_is_the_same(tmp_path: Path, count: int) -> None:
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        says_all_kinds_of_things(on, count)
        on.stops()
        data = on.data
    live = statewriter("digest", "--json", data=data).ok().json()["digest"]
    for seed in SEEDS:
        into, env = tmp_path / seed, {"PYTHONHASHSEED": seed}
        told = statewriter(
            "replay", "--into", into, "--archive-only", "--json", data=data, env=env
        ).ok()
        assert told.json()["digest"] == live
        again = statewriter("digest", "--json", data=into, env=env).ok().json()["digest"]
        assert again == live
    for size in SIZES:
        into = tmp_path / f"by-{size}"
        into.mkdir()
        assert digests_differ(data, into, size, 1) == []
    checks.check_data(data)
