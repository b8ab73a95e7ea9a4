"""Redis is away for ten times a run's lease: honest hosts' commands apply, a stale one's do not."""

from __future__ import annotations

import time
from pathlib import Path

from producers import Producer
from producers.run import Run
from tests.support import checks
from tests.support.proxy import proxy
from tests.support.scene import scene
from tests.support.wait import poll

LEASE_MS = 200
OUTAGE_S = 10 * LEASE_MS / 1000


def speak(run: Run, count: int) -> None:
    """Say some things."""
    for number in range(count):
        run.update("progress", f"k{number}", {"completed": number, "total": count})


def test_an_outage_of_ten_leases(tmp_path: Path) -> None:
    with (
        scene(tmp_path, server={"appendonly": "yes", "appendfsync": "always"}) as on,
        proxy(on.server.folder) as between,
        Producer(on.url) as honest,
        Producer(between.url) as stale,
        Producer(on.url) as successor,
    ):
        on.start()
        kept, lost = honest.create_run("w", run_id="kept"), stale.create_run("w", run_id="lost")
        kept.claim("honest", lease_ms=LEASE_MS)
        lost.claim("stale", lease_ms=LEASE_MS)
        speak(kept, 5)
        speak(lost, 5)
        assert not honest.flush(60).waiting
        assert not stale.flush(60).waiting

        on.server.kill()
        between.refuse()
        speak(kept, 50)
        speak(lost, 50)
        with kept.session("s") as session:
            for number in range(20):
                session.entry({"id": f"e{number}", "text": "x"})
        time.sleep(OUTAGE_S)
        on.server.start()
        # Another host takes the stale one's run over before that can be heard again.
        taken = successor.run("lost")
        taken.claim("successor", lease_ms=LEASE_MS)
        speak(taken, 5)
        assert not successor.flush(60).waiting
        between.allow()
        assert not honest.flush(60).waiting
        assert not stale.flush(60).waiting
        poll(lambda: checks.waiting(on.client) == 0, message="the backlog to drain")
        on.stops()
        names = {each: each.producer_id for each in (honest, stale, successor)}

    applied, refused = checks.sequences(on.data), checks.sequences(on.data, "rejections")
    # create, claim, 5 and 50 updates, bind, 20 entries, capture
    assert applied["kept", names[honest]] == set(range(1, 80))
    assert applied["lost", names[successor]] == set(range(1, 7))
    # What the stale host said before the take-over stands, and nothing of what it said after.
    assert applied["lost", names[stale]] == set(range(1, 8))
    assert refused["lost", names[stale]] == set(range(8, 58))
    reasons = checks.rows(on.data, "SELECT DISTINCT reason FROM rejections")
    assert reasons == [("lease_owner_changed",)]
    checks.check_all(on.data)
