"""Settings, closing, forks, and the end of the interpreter."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest
import redis

import producers
from producers import (
    InvalidSettings,
    Producer,
    ProducerClosed,
    ProducerError,
    ProducerSettings,
    errors,
)
from producers.settings import hide_password
from tests.producers.reading import NOWHERE, PARTITIONS, messages
from tests.support.servers import RealServer
from tests.support.wait import poll

TOP = Path(producers.__file__).parent.parent
BOUNDED_S = 30
"""More than the machine stands still, less than whoever waits for what does not come."""


def run_script(script: str, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A host of its own process, found by its environment."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={
            **os.environ,
            "PYTHONPATH": str(TOP),
            "STATEWRITER_REDIS": url,
            "STATEWRITER_EXIT_TIMEOUT_MS": "60000",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_script_that_ends_right_after_its_last_call_has_said_everything(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    done = run_script(
        """
from producers import Producer
def work():
    run = Producer().create_run("w", run_id="r", state={"n": 0})
    for n in range(1, 2000):
        run.snapshot({"n": n})
work()
""",
        redis_server.url,
        STATEWRITER_PARTITIONS=str(PARTITIONS),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [message.seq for message in messages(redis_client, "r")] == list(range(1, 2_001))


def test_its_threads_import_nothing_so_that_a_fork_can_not_tear_an_import(
    redis_server: RealServer,
) -> None:
    done = run_script(
        """
import os, sys
from producers import Producer
known = set(sys.modules)
for url in (os.environ["STATEWRITER_REDIS"], "redis://localhost:1"):
    producer = Producer(url, partitions=1, on_rejected=print)
    with producer.create_run("w").hold("host", confirm=False):
        producer.flush(1)
    producer.close(0)
print(sorted(set(sys.modules) - known))
""",
        redis_server.url,
    )
    assert done.stdout == "[]\n"


def test_a_script_whose_redis_is_away_ends_in_time_and_says_where_it_all_is() -> None:
    done = run_script(
        """
from producers import Producer
Producer(partitions=1).run("a").resume()
Producer(partitions=1).run("b").resume()
""",
        NOWHERE,
        STATEWRITER_EXIT_TIMEOUT_MS="300",
    )
    assert done.returncode == 0
    assert done.stderr.count("action=closed_spooled") == 2


def test_after_a_fork_the_child_begins_anew_under_another_id_and_both_arrive(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    done = run_script(
        """
import json, os, threading
from producers import Producer
producer = Producer()
run = producer.create_run("w", run_id="r")
noise = threading.Thread(target=lambda: [producer.run("noise").resume() for _ in range(3000)])
noise.start()
for n in range(50):
    run.update("parent", f"k{n}", {})
parent = producer.producer_id
if os.fork() == 0:
    inherited = producer.status().waiting
    for n in range(50):
        run.update("child", f"k{n}", {})
    closed = producer.close(60)
    print(json.dumps([parent, producer.producer_id, inherited, closed]), flush=True)
    os._exit(0)
run.update("parent", "last", {})
assert os.wait()[1] == 0
noise.join()
assert producer.producer_id == parent
assert producer.close(60)[1:3] == (0, 0)
""",
        redis_server.url,
        STATEWRITER_PARTITIONS=str(PARTITIONS),
    )
    assert (done.returncode, done.stderr) == (0, "")
    parent, child, inherited, closed = orjson.loads(done.stdout)
    assert parent != child
    assert (inherited, closed) == (0, [50, 0, 0, 0, None])
    arrived = messages(redis_client, "r")
    for producer_id, count in ((parent, 52), (child, 50)):
        seqs = [message.seq for message in arrived if message.producer == producer_id]
        assert seqs == list(range(1, count + 1))
    assert [m.seq for m in messages(redis_client, "noise")] == list(range(1, 3_001))


def test_a_closed_producer_takes_nothing_and_stays_closed(redis_server: RealServer) -> None:
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        run = producer.create_run("w")
        assert producer.flush(60).waiting == 0
    assert producer.close() == (1, 0, 0, 0, None)
    assert producer.status().closed
    with pytest.raises(ProducerClosed):
        run.resume()
    assert producer.flush(0) == (1, 0, None)


def test_closing_without_redis_is_bounded_in_time() -> None:
    producer = Producer(NOWHERE, partitions=1)
    producer.run("r").resume()
    started = time.monotonic()
    assert producer.close(timeout_s=0.2).spooled == 1
    assert time.monotonic() - started < BOUNDED_S


def test_closing_is_bounded_when_redis_accepts_connections_and_does_not_answer(
    redis_server: RealServer,
) -> None:
    producer = Producer(redis_server.url, partitions=PARTITIONS)
    producer.run("r").resume()
    producer.flush(60)
    redis_server.pause()
    try:
        producer.run("r").resume()
        started = time.monotonic()
        assert producer.close(timeout_s=0.2)[:3] == (1, 0, 1)
        # It does not wait for the answer, for which the sender has a minute.
        assert time.monotonic() - started < BOUNDED_S
    finally:
        redis_server.resume()


def test_a_producer_that_said_nothing_opens_no_connection() -> None:
    with Producer(NOWHERE) as producer:
        assert producer.status().redis is None
    assert producer.close() == (0, 0, 0, 0, None)


def test_arguments_go_before_settings_and_these_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STATEWRITER_REDIS", "redis://from-environment")
    monkeypatch.setenv("STATEWRITER_PARTITIONS", "5")
    monkeypatch.setenv("STATEWRITER_PREFIX", "")
    monkeypatch.setenv("STATEWRITER_BUFFER_BYTES_MAX", "1234")
    monkeypatch.chdir(tmp_path)
    by_environment = Producer().settings
    assert by_environment.redis == "redis://from-environment"
    assert by_environment.partitions == 5
    assert by_environment.prefix == "sw"
    assert by_environment.buffer_bytes_max == 1_234
    assert by_environment.data == tmp_path / "statewriter-data"
    assert by_environment.block_timeout_ms == 5_000

    given = Producer(settings=ProducerSettings(redis=None, partitions=6), prefix="x").settings
    assert (given.redis, given.partitions, given.prefix) == (None, 6, "x")


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"redis": "http://user:hunter2@host"}, "redis"),
        ({"redis": "hunter2"}, "redis"),
        ({"partitions": 0}, "partitions"),
        ({"partitions": 1_025}, "partitions"),
        ({"prefix": "a{b"}, "prefix"),
        ({"when_full": "wait"}, "when_full"),
        ({"buffer_bytes_max": 0}, "buffer_bytes_max"),
        ({"block_timeout_ms": -1}, "block_timeout_ms"),
    ],
)
def test_a_setting_that_is_not_usable_is_named_and_never_shown(
    arguments: dict[str, object], name: str
) -> None:
    with pytest.raises(InvalidSettings, match=f"^{name}: ") as caught:
        Producer(**arguments)  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_password_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    producer = Producer("redis://user:hunter2@127.0.0.1:1/0?password=hunter2", partitions=1)
    producer.run("r").resume()
    poll(lambda: "redis_lost" in caplog.text)
    producer.close(0.1)
    shown = caplog.text + repr(producer.status()) + repr(producer.settings)
    assert "hunter2" not in shown
    assert hide_password("rediss://u:p@h:1/0?x=y") == "rediss://h:1/0"


def test_every_error_says_by_itself_what_to_do() -> None:
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, ProducerError):
            if error is errors.InvalidCommand:
                continue
            assert len(str(error())) > 40, name
            assert "\n" not in str(error())
