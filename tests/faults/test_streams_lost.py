"""Streams that were flushed, deleted, replaced or trimmed by others: it goes on by itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from producers.contract.envelope import encode
from tests.support import checks
from tests.support.scene import Scene, scene
from tests.support.traffic import Traffic, names
from tests.support.wait import poll

WINDOW_MS = 3_600_000
GOES_ON_S = 30.0
"""Sooner than the next sweep, which finds all that waits."""


def key(on: Scene, run: str) -> str:
    """A run's stream."""
    return on.traffic.keys.run(0, run)


def test_flushall(on: Scene) -> None:
    for _ in range(3):
        on.send(200)
        on.client.flushall()
        on.send(200)
        on.drained(GOES_ON_S)
    on.client.flushall()
    on.is_quiet()
    on.send(100)
    on.drained(GOES_ON_S)
    on.was_quiet()
    on.all_is_well(may_be_lost=True)


def test_hosts_are_told_the_number_of_partitions_again_after_a_flush(on: Scene) -> None:
    on.client.flushall()
    poll(lambda: on.client.hget("sw:meta", "partitions"), GOES_ON_S, "sw:meta")
    assert on.client.hget("sw:meta", "partitions") == b"1"
    on.all_is_well()


def test_streams_are_deleted(on: Scene) -> None:
    for _ in range(3):
        on.send(200)
        on.client.delete(*(key(on, run) for run in on.traffic.runs))
        on.send(200)
        on.drained(GOES_ON_S)
    on.is_quiet()
    on.was_quiet()
    on.all_is_well(may_be_lost=True)


def put_at(on: Scene, run: str, seq: int, message_id: str) -> None:
    """The next update of the run, under an id that is not Redis' own."""
    body = {"type": "progress", "key": f"late-{seq}", "data": {"n": seq}}
    fields = encode("run.update", body, producer="traffic", seq=seq)
    on.client.xadd(key(on, run), fields, id=message_id)
    on.traffic.attempted[run] = seq


def test_a_stream_is_recreated_with_lower_ids(on: Scene) -> None:
    """As after a restored Redis, or a clock that was set back."""
    for run in on.traffic.runs:
        on.client.delete(key(on, run))
        for seq in range(4, 9):
            put_at(on, run, seq, f"1000-{seq}")
        on.client.zadd("sw:{0}:ready", {run: 0})
    expected = {(run, "traffic"): set(range(1, 9)) for run in on.traffic.runs}
    poll(lambda: checks.sequences(on.data) == expected, GOES_ON_S, "all to be applied")
    on.was_quiet()
    on.stops()
    checks.check_all(on.data)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_recreated_stream_has_ids_on_both_sides_of_the_cursor(on: Scene, restarted: bool) -> None:
    """The lower ones are new all the same, and no read from the cursor would ever yield them.

    After a restart the daemon does not know any more how far it had trimmed.
    """
    if restarted:
        on.stops()
    high = 10**15
    for run in on.traffic.runs:
        on.client.delete(key(on, run))
        put_at(on, run, 4, "1000-1")
        put_at(on, run, 5, "1000-2")
        put_at(on, run, 6, f"{high}-0")
        on.client.zadd("sw:{0}:ready", {run: 0})
    if restarted:
        on.start()
    expected = {(run, "traffic"): set(range(1, 7)) for run in on.traffic.runs}
    poll(lambda: checks.sequences(on.data) == expected, GOES_ON_S, "all to be applied")
    on.was_quiet()
    on.stops()
    checks.check_all(on.data)


def test_a_new_producers_only_message_lies_below_the_cursor(on: Scene) -> None:
    """No gap tells of it: only that the stream begins below what was trimmed."""
    on.stops()
    for run in on.traffic.runs:
        on.client.delete(key(on, run))
        fields = encode("run.annotate", {"title": "x"}, producer="other", seq=1)
        on.client.xadd(key(on, run), fields, id="1000-1")
        put_at(on, run, 4, f"{10**15}-0")
        on.client.zadd("sw:{0}:ready", {run: 0})
    on.start()
    expected = {(run, "traffic"): set(range(1, 5)) for run in on.traffic.runs} | {
        (run, "other"): {1} for run in on.traffic.runs
    }
    poll(lambda: checks.sequences(on.data) == expected, GOES_ON_S, "all to be applied")
    on.stops()
    checks.check_all(on.data)


def test_others_trim_and_delete_what_was_not_read(on: Scene) -> None:
    on.stops()
    on.send(400)
    for run in on.traffic.runs:
        on.client.xtrim(key(on, run), maxlen=10, approximate=False)
        kept = on.client.xrange(key(on, run))
        on.client.xdel(key(on, run), kept[4][0])
    on.start()
    on.send(200)
    on.drained(GOES_ON_S)
    on.was_quiet()
    assert on.all_is_well(may_be_lost=True) == len(on.traffic.runs) * 11


def test_an_older_redis_is_restored(tmp_path: Path) -> None:
    """Its streams hold what was settled long ago, and it knows nothing of what came since."""
    with scene(tmp_path, server={"appendonly": "yes", "appendfsync": "always"}) as on:
        on.start()
        on.opens()
        # Messages that the copy holds, and that are settled before it is put back.
        on.running.kill()
        on.send(200)
        on.server.stop()
        shutil.copytree(on.server.folder / "appendonlydir", tmp_path / "copy")
        on.server.start()
        on.start()
        on.send(400)
        on.drained()
        on.server.stop()
        shutil.rmtree(on.server.folder / "appendonlydir")
        shutil.copytree(tmp_path / "copy", on.server.folder / "appendonlydir")
        on.server.start()
        on.send(400)
        on.drained()
        on.was_quiet()
        on.all_is_well()


def test_a_stream_that_is_no_stream(on: Scene) -> None:
    """Another program's key under a run's name stops nobody."""
    on.client.set("sw:{0}:run:odd", "a string")
    on.client.zadd("sw:{0}:ready", {"odd": 0, b"\xff\xfe": 0, "": 0})
    on.client.xadd(b"sw:{0}:run:\xff\xfe", {"a": "b"})
    on.send(200)
    poll(lambda: checks.settled(on.data) == on.traffic.total, GOES_ON_S, "all to end")
    on.was_quiet()
    on.stops()
    checks.accounted(on.data, on.traffic)
    checks.check_all(on.data)


def test_all_of_it_is_sent_three_times(on: Scene) -> None:
    on.send(400)
    on.drained()
    before = checks.digests_of(on.data / "p00.sqlite")
    sent = {run: max(acked) for run, acked in on.traffic.acked.items()}
    for _ in range(2):
        again = Traffic(on.traffic.runs)
        again.send(on.client, sum(sent.values()))
        checks.drained(on.client, on.data, again)
    assert checks.digests_of(on.data / "p00.sqlite") == before
    ((duplicates,),) = checks.rows(on.data, "SELECT sum(duplicates) FROM cursors")
    assert duplicates == 2 * sum(sent.values())
    on.all_is_well()


def test_ids_of_a_future_are_followed(on: Scene) -> None:
    """A host's own id is one of Redis' from then on: order is the stream's, and nothing is lost."""
    for run in on.traffic.runs:
        put_at(on, run, 4, f"{2**53}-5")
        on.client.zadd("sw:{0}:ready", {run: 0})
    on.traffic.next(len(on.traffic.runs))
    on.send(200)
    on.drained(GOES_ON_S)
    on.all_is_well()


def finish(on: Scene, runs: list[str], producer: str) -> None:
    """Create runs and complete them, all under one producer."""
    pipeline = on.client.pipeline(transaction=False)
    for run in runs:
        state = {"status": "completed"}
        create = encode("run.create", {"workflow": "w"}, producer=producer, seq=1)
        pipeline.xadd(key(on, run), create)
        pipeline.xadd(
            key(on, run), encode("run.snapshot", {"state": state}, producer=producer, seq=2)
        )
        pipeline.zadd("sw:{0}:ready", {run: 0})
    pipeline.execute()


def test_streams_of_finished_runs_go_away(on: Scene) -> None:
    """And what comes late is a duplicate, in a stream that goes away as well."""
    on.stops()
    on.start(sweep_ms=300)
    runs = names(100, "short")
    for times in (1, 2, 3):
        finish(on, runs, "host")
        poll(
            lambda: not list(on.client.scan_iter(match="*:run:short-*")),
            message="the streams to go",
        )
        ended = "SELECT sum(applied), sum(duplicates) FROM cursors WHERE run_id LIKE 'short-%'"
        assert checks.rows(on.data, ended) == [(200, 200 * (times - 1))]
    on.all_is_well()


def test_a_replay_window_keeps_what_is_settled(tmp_path: Path) -> None:
    """And none of it is applied, or counted, again by the next daemon."""
    with scene(tmp_path) as made:
        made.start(replay_window_ms=WINDOW_MS)
        made.send(300)
        for end in (made.dies, made.stops):
            poll(lambda: checks.settled(made.data) == made.traffic.total, message="all to end")
            assert checks.waiting(made.client) == made.traffic.total
            end()
            made.start(replay_window_ms=WINDOW_MS)
            made.send(100)
        made.stops()
        made.start(replay_window_ms=0)
        made.all_is_well()
        counted = "SELECT sum(duplicates), max(incarnation) FROM cursors"
        assert checks.rows(made.data, counted) == [(0, 1)]
