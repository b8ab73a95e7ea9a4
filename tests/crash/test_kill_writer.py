"""kill -9 to the writer at random moments, under load: it goes on, and no reader sees a thing."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from threading import Event, Thread

import apsw
import pytest

from tests.support import checks
from tests.support.scene import scene
from tests.support.traffic import names
from tests.support.wait import poll
from writer.store.reader import StateReader

KILLS = [pytest.param(30, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.soak)]


@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_writer_goes_on_where_it_was(tmp_path: Path, kills: int) -> None:
    chance = random.Random(kills)
    with scene(tmp_path, batch_messages_max=60) as on:
        on.start()
        on.opens()
        with reading(on.data / "p00.sqlite") as reads:
            for _ in range(kills):
                on.send(300)
                time.sleep(chance.uniform(0, 0.12))
                before = list(reads)
                on.running.kill()
                on.start()
                poll(partial(each_has_read, reads, before), message="each reader to read")
            on.drained()
        on.all_is_well()
        ((commits,),) = checks.rows(on.data, "SELECT sum(commits) FROM commits")
        print(f"{kills} kills, {commits} commits, {on.traffic.total} commands, {sum(reads)} reads")


def each_has_read(reads: list[int], before: list[int]) -> bool:
    """Whether each reader has begun one more read since."""
    return all(now > then for now, then in zip(reads, before, strict=True))


@contextmanager
def reading(path: Path) -> Iterator[list[int]]:
    """Dashboards that read all the time; each read must see whole revisions. Counts the reads."""
    ended, reads, wrong = Event(), [0, 0, 0], list[str]()
    looks = (look, look, look_as_a_dashboard)
    threads = [
        Thread(target=each, args=(path, ended, reads, place, wrong))
        for place, each in enumerate(looks)
    ]
    for thread in threads:
        thread.start()
    try:
        yield reads
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:3]


TORN = """
SELECT run_id, r.revision, count(*), max(e.revision), c.applied,
  (SELECT count(*) FROM events a WHERE a.run_key = r.run_key),
  r.state_revision, (SELECT max(revision) FROM state_parts p WHERE p.run_key = r.run_key)
FROM runs r JOIN cursors c USING (run_id) JOIN events e ON e.run_key = r.run_key AND e.segment = 0
GROUP BY r.run_key
HAVING r.revision <> count(*) OR r.revision <> max(e.revision)
  OR applied <> (SELECT count(*) FROM events a WHERE a.run_key = r.run_key)
  OR r.state_revision <> (SELECT max(revision) FROM state_parts p WHERE p.run_key = r.run_key)
"""


def look(path: Path, ended: Event, reads: list[int], place: int, wrong: list[str]) -> None:
    """Read on a connection of its own, and a new one now and then, until told to end."""
    while not ended.is_set():
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(60_000)
        with closing(connection):
            for _ in range(20):
                reads[place] += 1
                wrong += [str(row) for row in connection.execute(TORN)]
                if ended.wait(0.01):
                    return


def look_as_a_dashboard(
    path: Path, ended: Event, reads: list[int], place: int, wrong: list[str]
) -> None:
    """Our own reader: state, trace and transcript of a run are of one moment, and the feed of
    changes has each event once, over all deaths of the writer.
    """
    token, seen = None, 0
    runs = cycle(names(20))
    with StateReader(path.parent) as reader:
        last = False
        while not last:
            last = ended.is_set()
            reads[place] += 1
            name = next(runs)
            run = reader.read_run(name)
            if run is None:
                wrong.append(f"{name} is not there")
                return
            steps = [each["payload"]["n"] for each in run["traceEvents"] if each["type"] == "step"]
            if run["state"]["n"] != (steps[-1] if steps else 1):
                wrong.append(f"{name} shows the state of {run['state']['n']} after {steps[-3:]}")
            if run["sessionIntegrity"]["diagnostics"]:
                wrong.append(str(run["sessionIntegrity"]))
            page = reader.changes(token, limit=10_000)
            seen, token = len(page.events) + (0 if page.reset else seen), page.token
        while (page := reader.changes(token, limit=10_000)).events:
            seen, token = seen + len(page.events), page.token
    counted = checks.rows_of(path, "SELECT count(*) FROM events")
    if counted != [(seen,)]:
        wrong.append(f"the feed had {seen} events, the file has {counted}")
