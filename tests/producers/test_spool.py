"""The spool: what Redis does not take goes to disk, and from there in order to Redis."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest
import redis

from producers import Closed, Producer, ProducerSettings, Sent
from producers.buffer import Buffer
from producers.spool import Place, Spool, list_spool
from tests.producers.reading import NOWHERE, PARTITIONS, first_arrivals, messages, stream_of
from tests.producers.test_lifecycle import TOP, run_script
from tests.support.servers import Kind, RealServer, real_server
from tests.support.wait import poll


def quick() -> ProducerSettings:
    """Made within a test, whose environment names its spool."""
    return ProducerSettings(spool_after_ms=20)


@pytest.fixture(autouse=True)
def adopting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis comes back at another address in most of these tests."""
    monkeypatch.setenv("STATEWRITER_SPOOL_ADOPTS", "all")


def command(n: int, producer: str = "p") -> dict[bytes, bytes]:
    return {
        b"kind": b"run.resume",
        b"producer": producer.encode(),
        b"seq": b"%d" % n,
        b"body": b"\0\xff" * n,
    }


def spool_of(folder: Path, name: str, bytes_max: int = 1 << 20) -> Spool:
    return Spool(folder, name, bytes_max=bytes_max, fsync=False)


# --- the files --------------------------------------------------------------------------------


def test_what_one_spool_leaves_the_next_one_adopts_in_order(spool: Path) -> None:
    first = spool_of(spool, "first")
    first.append([("a", command(1)), ("b", command(1))])
    first.append([("a", command(2))])
    first.close()
    second = spool_of(spool, "second")
    found = second.adopt()
    assert [(sent.run, sent.producer, sent.seq) for sent, _ in found] == [
        ("a", "p", 1),
        ("b", "p", 1),
        ("a", "p", 2),
    ]
    assert [place.read() for _, place in found] == [command(1), command(1), command(2)]
    second.close()


def test_a_living_producers_spool_is_left_alone(spool: Path) -> None:
    alive = spool_of(spool, "alive")
    alive.append([("a", command(1))])
    assert spool_of(spool, "other").adopt() == []
    assert [(each.producer, each.alive, each.commands) for each in list_spool(spool)] == [
        ("alive", True, 1)
    ]
    alive.close()
    assert len(spool_of(spool, "other").adopt()) == 1


def test_folders_that_come_and_go_disturb_nobody_who_looks(spool: Path) -> None:
    ended = Event()

    def come_and_go() -> None:
        while not ended.is_set():
            folders = [spool / f"busy-{number}" for number in range(20)]
            for folder in folders:
                (folder / "below").mkdir(parents=True)
            for folder in folders:
                (folder / "below").rmdir()
                folder.rmdir()

    neighbour = Thread(target=come_and_go)
    neighbour.start()
    try:
        for _ in range(1_000):
            assert list_spool(spool) == []
    finally:
        ended.set()
        neighbour.join()


@pytest.mark.parametrize("cut", [1, 5, 9, 30])
def test_a_torn_tail_is_passed_over(cut: int, spool: Path) -> None:
    torn = spool_of(spool, "torn")
    torn.append([("a", command(n)) for n in range(1, 6)])
    torn.close()
    (path,) = spool.glob("torn/*.spool")
    path.write_bytes(path.read_bytes()[:-cut])
    found = spool_of(spool, "next").adopt()
    assert [sent.seq for sent, _ in found] == [1, 2, 3, 4]


def test_a_segment_goes_when_all_of_it_is_sent_and_the_folder_with_the_last(spool: Path) -> None:
    made = spool_of(spool, "first")
    places = made.append([("a", command(n)) for n in range(1, 4)])
    made.settle(places[:2])
    assert list(spool.glob("first/*.spool"))
    made.settle(places[2:])
    assert not list(spool.glob("first/*.spool"))
    made.close()
    assert not spool.exists()


def test_it_holds_as_much_as_it_may_and_has_room_again_afterwards(spool: Path) -> None:
    made = spool_of(spool, "p", bytes_max=1_200)
    places: list[Place] = made.append([("a", command(100))])
    for _ in range(3):
        places += made.append([("a", command(100))])
    with pytest.raises(OSError, match="spool_bytes_max"):
        made.append([("a", command(100))])
    made.settle(places)
    made.append([("a", command(100))])
    made.close()


def test_only_its_user_can_read_it(spool: Path) -> None:
    made = spool_of(spool, "p")
    made.append([("a", command(1))])
    assert (spool / "p").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in (spool / "p").iterdir())
    made.close()


def test_what_is_on_its_way_to_disk_is_not_put_there_again_by_a_close(spool: Path) -> None:
    producer = Producer(NOWHERE, partitions=PARTITIONS, settings=quick())
    closed: list[Closed] = []
    closing = Thread(target=lambda: closed.append(producer.close(0)))
    disk = producer._outbox._spool
    assert disk is not None
    # The disk is slow: the command is being written while the producer is closed.
    with disk._lock:
        producer.run("r").resume()
        producer._outbox._buffer.pause(200)
        closing.start()
        closing.join(0.2)
    closing.join()
    assert [told[:4] for told in closed] == [(0, 0, 1, 0)]
    assert [(each.alive, each.commands) for each in list_spool(spool)] == [(False, 1)]


def test_a_flush_waits_for_what_is_adopted_meanwhile(spool: Path) -> None:
    left = spool_of(spool, "left")
    left.append([("b", command(1))])
    left.close()
    buffer = Buffer("p", bytes_max=1 << 20, when_full="block", block_timeout_ms=0)
    buffer.put("a", "run.resume", {})
    flushed: list[int] = []
    flushing = Thread(target=lambda: flushed.append(buffer.flush(60)))
    flushing.start()
    poll(lambda: buffer._moved._waiters)  # type: ignore[attr-defined]
    mine = spool_of(spool, "mine")
    buffer.adopt(mine.adopt())
    buffer.accept("a", ["1-0"])
    flushing.join(0.2)
    buffer.accept("b", ["2-0"])
    flushing.join()
    mine.close()
    assert flushed == [0]


# --- producers --------------------------------------------------------------------------------


def test_what_waits_goes_to_disk_and_arrives_in_order_when_redis_is_back(
    server_kind: Kind, spool: Path
) -> None:
    with real_server(server_kind) as server:
        server.stop()
        with Producer(server.url, partitions=PARTITIONS, settings=quick()) as producer:
            handles = [producer.run("r").snapshot({"n": n}) for n in range(500)]
            poll(lambda: producer.status().spooled == 500)
            assert {handle.state for handle in handles} == {"spooled"}
            late = [producer.run("r").snapshot({"n": n}) for n in range(500, 600)]
            server.start()
            assert producer.flush(60).waiting == 0
        with server.client() as client:
            arrived = first_arrivals(messages(client, "r"))
            assert [message.seq for message in arrived] == list(range(1, 601))
            assert {handle.state for handle in [*handles, *late]} == {"accepted"}
    assert not list(spool.rglob("*.spool"))


def test_memory_stays_bounded_while_much_more_is_said(server_kind: Kind) -> None:
    with real_server(server_kind) as server:
        server.stop()
        with Producer(
            server.url,
            partitions=PARTITIONS,
            settings=quick(),
            buffer_bytes_max=400_000,
            block_timeout_ms=60_000,
        ) as producer:
            run = producer.run("r")
            for n in range(500):
                run.snapshot({"n": n, "text": "x" * 20_000})
                assert producer.status().waiting_bytes <= 400_000
            server.start()
            assert producer.flush(60).waiting == 0
        with server.client() as client:
            arrived = first_arrivals(messages(client, "r"))
            assert [message.seq for message in arrived] == list(range(1, 501))


def test_the_next_process_sends_what_the_last_one_left_before_its_own(
    redis_server: RealServer, redis_client: redis.Redis, spool: Path
) -> None:
    left = Producer(NOWHERE, partitions=PARTITIONS)
    for run in ("r", "other"):
        for n in range(50):
            left.run(run).snapshot({"n": n})
    closed = left.close()
    assert closed[:4] == (0, 0, 100, 0)

    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        mine = producer.run("r").snapshot({"n": 50})
        assert producer.flush(60).waiting == 0
        assert mine.seq == 1
        assert producer.status().accepted == 101
    arrived = messages(redis_client, "r")
    assert [(m.producer, m.seq) for m in arrived] == [
        *((left.producer_id, n) for n in range(1, 51)),
        (producer.producer_id, 1),
    ]
    assert len(messages(redis_client, "other")) == 50
    assert not list(spool.rglob("*.spool"))


def test_what_was_meant_for_another_server_or_prefix_is_left_alone(
    redis_server: RealServer,
    redis_client: redis.Redis,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STATEWRITER_SPOOL_ADOPTS", "own")
    for prefix in ("sw", "other"):
        left = Producer(NOWHERE, partitions=PARTITIONS, prefix=prefix)
        left.run("r").resume()
        left.close()
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        producer.run("r").resume()
        assert producer.flush(60).waiting == 0
    assert len(messages(redis_client, "r")) == 1
    assert [each.commands for each in list_spool(spool)] == [1, 1]


def test_a_producer_that_says_nothing_sends_what_was_left(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    left = Producer(NOWHERE, partitions=PARTITIONS)
    left.run("r").resume()
    left.close()
    with Producer(redis_server.url, partitions=PARTITIONS):
        poll(lambda: redis_client.xlen(stream_of("r")) == 1)


HOST = """
import os, sys, time
from producers import Producer, ProducerSettings
producer = Producer(settings=ProducerSettings(spool_after_ms=20))
run = producer.run("r")
for n in range(2000):
    run.snapshot({"n": n})
while producer.status().spooled < 2000:
    time.sleep(0.005)
print("ready", flush=True)
for n in range(2000, 2100):
    run.snapshot({"n": n})
time.sleep(60)
"""


def test_a_process_that_is_killed_leaves_its_spool_to_the_next(
    redis_server: RealServer, redis_client: redis.Redis, spool: Path
) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", HOST],
        env={
            **os.environ,
            "PYTHONPATH": str(TOP),
            "STATEWRITER_REDIS": NOWHERE,
            "STATEWRITER_PARTITIONS": str(PARTITIONS),
        },
        stdout=subprocess.PIPE,
    )
    assert host.stdout is not None
    with host, host.stdout:
        assert host.stdout.readline() == b"ready\n"
        host.send_signal(signal.SIGKILL)
        host.wait()
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        poll(lambda: producer.status().accepted >= 2_000)
        assert producer.flush(60).waiting == 0
    arrived = messages(redis_client, "r")
    # What was in memory only is lost; nothing is lost before it, and nothing out of order.
    assert [m.seq for m in arrived] == list(range(1, len(arrived) + 1))
    assert [(m.body or {})["state"]["n"] for m in arrived] == list(range(len(arrived)))
    assert 2_000 <= len(arrived) <= 2_100
    assert not list(spool.rglob("*.spool"))


def test_a_script_that_ends_right_after_its_last_call_loses_nothing_without_redis(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    script = """
from producers import Producer
run = Producer().run("r")
for n in range(500):
    run.snapshot({"n": n})
"""
    done = run_script(script, NOWHERE, STATEWRITER_PARTITIONS=str(PARTITIONS))
    assert (done.returncode, done.stderr.count("action=closed_spooled")) == (0, 1)
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        poll(lambda: producer.status().accepted == 500)
    assert [m.seq for m in messages(redis_client, "r")] == list(range(1, 501))


def test_a_full_spool_is_an_error_at_the_call_once_memory_is_full_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from producers import BufferFull

    settings = ProducerSettings(spool_after_ms=1, spool_bytes_max=20_000, block_timeout_ms=60_000)
    producer = Producer(NOWHERE, partitions=1, settings=settings, buffer_bytes_max=50_000)
    run, handles = producer.run("r"), []
    with pytest.raises(BufferFull, match="spool_bytes_max"):  # noqa: PT012
        for n in range(1_000):
            handles.append(run.snapshot({"n": n, "text": "x" * 1_000}))  # noqa: PERF401
    closed = producer.close(0.1)
    assert closed.spooled + closed.undelivered == len(handles)
    assert closed.undelivered > 0
    assert len([r for r in caplog.records if "spool_refuses" in r.getMessage()]) == 1


def test_what_is_dropped_is_counted_logged_once_and_uses_up_its_sequence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    producer = Producer(NOWHERE, partitions=1, when_full="drop", buffer_bytes_max=50_000)
    run = producer.run("r")
    handles: list[Sent] = [run.snapshot({"text": "x" * 5_000}) for _ in range(20)]
    dropped = [handle for handle in handles if handle.state == "dropped"]
    assert 0 < len(dropped) < 20
    assert [handle.seq for handle in handles] == list(range(1, 21))
    assert producer.status().dropped == len(dropped)
    closed = producer.close(0.1)
    assert (closed.undelivered, closed.dropped) == (20 - len(dropped), len(dropped))
    assert len([r for r in caplog.records if "command_dropped" in r.getMessage()]) == 1
    assert f"dropped={len(dropped)}" in caplog.text


def test_a_stream_takes_no_more_than_it_may_hold(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    settings = ProducerSettings(stream_messages_max=10, spool_after_ms=20)
    with Producer(redis_server.url, partitions=PARTITIONS, settings=settings) as producer:
        for _ in range(25):
            producer.run("r").resume()
            producer.run("other").resume() if _ < 5 else None
        poll(lambda: "STREAMFULL" in (producer.status().error or ""))
        assert redis_client.xlen(stream_of("r")) == 10
        assert redis_client.xlen(stream_of("other")) == 5
        arrived = [message.seq for message in messages(redis_client, "r")]
        redis_client.xtrim(stream_of("r"), maxlen=0)
        poll(lambda: redis_client.xlen(stream_of("r")) == 10)
        arrived += [message.seq for message in messages(redis_client, "r")]
        redis_client.xtrim(stream_of("r"), maxlen=0)
        assert producer.flush(60).waiting == 0
        arrived += [message.seq for message in messages(redis_client, "r")]
    assert arrived == list(range(1, 26))


def test_a_spool_file_that_disappears_is_counted_and_holds_up_nobody(
    redis_server: RealServer, redis_client: redis.Redis, spool: Path
) -> None:
    left = Producer(NOWHERE, partitions=PARTITIONS, settings=quick())
    left.run("r").resume()
    poll(lambda: left.status().spooled == 1)
    for path in spool.rglob("*.spool"):
        path.unlink()
    redis_client.hset("sw:meta", "partitions", PARTITIONS)
    left.close(0.1)
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        producer.run("r").resume()
        assert producer.flush(60).waiting == 0
