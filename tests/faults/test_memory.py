"""2,000 messages of 1 MB wait when the daemon starts: it reads them within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from producers.contract.envelope import encode
from tests.support import checks
from tests.support.scene import Scene, scene
from tests.support.traffic import names
from tests.support.wait import poll

MIB = 1024 * 1024
RSS_BYTES_MAX = 256 * MIB


@pytest.mark.slow
@pytest.mark.parametrize(
    "count, runs",
    [
        (200, 40),
        pytest.param(2_000, 1, marks=pytest.mark.soak),
        pytest.param(2_000, 40, marks=pytest.mark.soak),
    ],
)
def test_a_backlog_of_large_messages(tmp_path: Path, count: int, runs: int) -> None:
    with scene(tmp_path) as on:
        fill(on, count, runs)
        on.start()
        poll(lambda: checks.waiting(on.client) == 0, 300, "the backlog to drain")
        _, most = on.running.rss_bytes()
        print(f"{count} of 1 MB in {runs} runs: at most {most / MIB:.0f} MiB resident")
        on.stops()
        assert most < RSS_BYTES_MAX
        assert checks.settled(on.data) == count + runs
        assert checks.rows(on.data, "SELECT count(*) FROM rejections") == [(0,)]
        checks.check_data(on.data)


@pytest.mark.slow
def test_an_archive_of_large_messages(tmp_path: Path) -> None:
    """A lost file is built anew from it within the same bounds."""
    with scene(tmp_path) as on:
        fill(on, 150, 1)
        on.start()
        poll(lambda: checks.waiting(on.client) == 0, 300, "the backlog to drain")
        on.stops()
        for path in on.data.glob("p00.sqlite*"):
            path.unlink()
        on.start()
        ((caught_up,),) = [[line["messages"]] for line in on.running.said("caught_up")]
        _, most = on.running.rss_bytes()
        assert caught_up == 151
        assert most < RSS_BYTES_MAX
        on.stops()
        checks.check_data(on.data)


def fill(on: Scene, count: int, runs: int) -> None:
    """Let messages of 1 MB wait, and as many small ones as there are runs."""
    text = "x" * (MIB - 200)
    body: dict[str, Any]
    for run in names(runs):
        on.client.xadd(on.traffic.keys.run(0, run), create(run))
    for number in range(count):
        run = names(runs)[number % runs]
        seq = number // runs + 2
        kind, body = "session.bind", {"session": run}
        if seq > 2:
            kind, body = "session.entry", {"entry": {"id": f"e{seq}", "text": text}}
        fields = encode(kind, body, producer="big", seq=seq)
        on.client.xadd(on.traffic.keys.run(0, run), fields)
    on.client.zadd("sw:{0}:ready", dict.fromkeys(names(runs), 0))


def create(run: str) -> dict[bytes, bytes]:
    """The first message of a run."""
    return encode("run.create", {"workflow": "big"}, producer="big", seq=1)
