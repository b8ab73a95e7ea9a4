"""Producers, a server and a writer: the database has what the calls reported, in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from producers import Producer, ProducerSettings, Sent
from tests.producers.test_lifecycle import TOP, run_script
from tests.producers.writing import applied, await_applied, numbers, say, writing
from tests.support.proxy import proxy
from tests.support.servers import Kind, RealServer, real_server
from tests.support.wait import poll
from writer.store.reader import StateReader

DURABLE = {"appendonly": "yes", "appendfsync": "always"}


def await_order(reader: StateReader, run: str, wanted: int) -> None:
    """Wait until the run has so many steps, and these in order."""
    poll(lambda: in_order(reader, run, wanted))


def in_order(reader: StateReader, run: str, wanted: int) -> bool:
    """Whether the run has so many steps, and these in order."""
    return numbers(reader, run) == list(range(wanted))


def stopped_under_load(
    server: RealServer, data: Path, seconds: float, buffer_bytes_max: int | None = None
) -> None:
    """Six threads go on talking while the server is stopped; everything is applied afterwards."""
    with (
        writing(data, server.url) as reader,
        Producer(server.url, buffer_bytes_max=buffer_bytes_max) as producer,
    ):
        ended = Event()
        said = {f"r{n}": 0 for n in range(6)}

        def talk(name: str) -> None:
            run = producer.create_run("w", run_id=name)
            while not ended.is_set():
                say(run, said[name])
                said[name] += 1
                ended.wait(0.002)

        threads = [Thread(target=talk, args=(name,)) for name in said]
        for thread in threads:
            thread.start()
        poll(lambda: producer.status().accepted > 100)
        server.stop()
        before = dict(said)
        ended.wait(seconds)
        poll(lambda: producer.status().spooled > 0)
        # No agent is held up by the outage.
        poll(lambda: all(said[name] >= before[name] + 100 for name in said))
        server.start()
        # Some more on top, while the spool is being sent.
        ended.wait(0.5)
        ended.set()
        for thread in threads:
            thread.join()
        assert producer.flush(60).waiting == 0
        for name, count in said.items():
            await_order(reader, name, count)
            assert reader.rejections(run=name).rejections == []


def test_redis_stopped_for_two_seconds_under_load(server_kind: Kind, tmp_path: Path) -> None:
    with real_server(server_kind, DURABLE) as server:
        stopped_under_load(server, tmp_path / "data", 2, 8 << 20)


@pytest.mark.soak
def test_redis_stopped_for_half_a_minute_under_load(server_kind: Kind, tmp_path: Path) -> None:
    with real_server(server_kind, DURABLE) as server:
        stopped_under_load(server, tmp_path / "data", 30)


def test_a_proxy_that_eats_replies_makes_duplicates_and_changes_nothing(
    redis_server: RealServer, tmp_path: Path
) -> None:
    settings = ProducerSettings(pipeline_commands_max=20)
    with (
        writing(tmp_path / "data", redis_server.url) as reader,
        proxy(redis_server.folder) as between,
        Producer(between.url, settings=settings) as producer,
    ):
        run = producer.create_run("w", run_id="r")
        for n in range(999):
            if n % 50 == 0:
                producer.flush(60)
                between.eat_replies(1)
            say(run, n)
        assert producer.flush(60).waiting == 0
        await_applied(reader, "r", 1_000)
        poll(lambda: (reader.run("r") or {})["cursor"]["duplicates"] >= between.eaten)
        assert between.eaten >= 10
        assert applied(reader, "r") == 1_000
        assert in_order(reader, "r", 999)


def test_fifty_threads_on_shared_runs(redis_server: RealServer, tmp_path: Path) -> None:
    with (
        writing(tmp_path / "data", redis_server.url) as reader,
        Producer(redis_server.url) as producer,
    ):
        runs = [producer.create_run("w", run_id=f"r{n}") for n in range(5)]
        handles: dict[str, list[Sent]] = defaultdict(list)

        def talk(number: int) -> None:
            for n in range(40):
                run = runs[(number + n) % 5]
                handles[run.id].append(run.update("progress", f"k{number}.{n}", {"n": n}))

        threads = [Thread(target=talk, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush(60).waiting == 0
        for run in runs:
            await_applied(reader, run.id, 401)
            events = reader.trace(run.id, limit=1_000)
            assert [event["revision"] for event in events] == list(range(1, 402))
            assert len({handle.seq for handle in handles[run.id]}) == 400


KILLED = """
import sys, time
from producers import Producer, ProducerSettings
from tests.producers.writing import say
producer = Producer(settings=ProducerSettings(spool_after_ms=50))
run = producer.create_run("w", run_id="r")
handles = []
while True:
    handles.append(say(run, len(handles)))
    if len(handles) % 50 == 0:
        # What is safe now: in Redis, or on disk.
        safe = sum(handle.state in ("accepted", "spooled") for handle in handles)
        sys.stdout.write(f"{safe}\\n")
        sys.stdout.flush()
        time.sleep(0.001)
"""


def test_a_process_killed_amid_its_buffer_with_redis_gone_has_all_that_it_was_told(
    server_kind: Kind, tmp_path: Path
) -> None:
    with real_server(server_kind, DURABLE) as server:  # noqa: SIM117  # nested as in life
        with writing(tmp_path / "data", server.url) as reader:
            host = subprocess.Popen(
                [sys.executable, "-c", KILLED],
                env={**os.environ, "PYTHONPATH": str(TOP), "STATEWRITER_REDIS": server.url},
                stdout=subprocess.PIPE,
                text=True,
            )
            assert host.stdout is not None
            with host, host.stdout:
                while int(host.stdout.readline()) < 500:
                    pass
                server.stop()
                told = before = int(host.stdout.readline())
                while told < before + 2_000:
                    told = int(host.stdout.readline())
                host.send_signal(signal.SIGKILL)
                rest = [int(line) for line in host.stdout if line.endswith("\n")]
            server.start()
            with Producer(server.url):
                poll(lambda: len(numbers(reader, "r")) >= max([told, *rest]))
                found = numbers(reader, "r")
            assert found == list(range(len(found)))
            assert reader.rejections(run="r").rejections == []


FORK = """
import os
from producers import Producer
from tests.producers.writing import say
producer = Producer()
run = producer.create_run("w", run_id="parent")
for n in range(200):
    say(run, n)
child = os.fork()
mine = producer.create_run("w", run_id="child") if child == 0 else run
for n in range(0 if child == 0 else 200, 400):
    say(mine, n)
if child == 0:
    assert producer.close(60)[1:3] == (0, 0)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_in_the_middle(redis_server: RealServer, tmp_path: Path) -> None:
    with writing(tmp_path / "data", redis_server.url) as reader:
        done = run_script(FORK, redis_server.url)
        assert (done.returncode, done.stderr) == (0, "")
        for run in ("parent", "child"):
            await_order(reader, run, 400)


def work(url: str, number: int) -> str:
    """What a worker of a pool does: it speaks, and is not asked to close."""
    producer = Producer(url)
    run = producer.create_run("w", run_id=f"job-{number}")
    for n in range(50):
        say(run, n)
    return run.id


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_workers_of_a_process_pool_say_all(
    method: str, redis_server: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker that ends puts on disk what Redis does not take in time.
    monkeypatch.setenv("STATEWRITER_EXIT_TIMEOUT_MS", "60000")
    context: Any = multiprocessing.get_context(method)
    with writing(tmp_path / "data", redis_server.url) as reader:
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            runs = list(pool.map(work, [redis_server.url] * 6, range(6)))
        for run in runs:
            await_order(reader, run, 50)


def test_a_gap_shows_what_was_dropped(redis_server: RealServer, tmp_path: Path) -> None:
    with writing(tmp_path / "data", redis_server.url) as reader:
        redis_server.pause()
        try:
            producer = Producer(
                redis_server.url, when_full="drop", buffer_bytes_max=50_000, partitions=2
            )
            run = producer.create_run("w", run_id="r")
            handles = [run.snapshot({"text": "x" * 5_000}) for _ in range(20)]
        finally:
            redis_server.resume()
        assert producer.flush(60).waiting == 0
        last = run.resume()
        closed = producer.close()
        dropped = [handle.seq for handle in handles if handle.state == "dropped"]
        assert closed.dropped == len(dropped) > 0
        await_applied(reader, "r", closed.accepted)
        (told,) = (reader.run("r") or {})["producers"]
        missing = [n for first, end in told["gaps"] for n in range(first, end + 1)]
        assert (missing, told["last_seq"]) == (dropped, last.seq)
