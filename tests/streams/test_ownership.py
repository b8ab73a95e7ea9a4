"""Who writes a partition: a lease in Redis, and a lock beside the file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.streams.conftest import KEYS, Streams
from writer.clock import Clock, now_ms
from writer.errors import Fenced, PartitionTaken
from writer.streams.ownership import FileLock, Ownership, writer_id

TTL_MS = 600_000
"""Also on a machine that stands still for a while a lease outlives its test."""


class Hand:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def clock(self) -> Clock:
        return Clock(now_ms, lambda: self.seconds)


def owner(streams: Streams, nonce: str = "a", hand: Hand | None = None) -> Ownership:
    clock = (hand or Hand()).clock()
    return Ownership(streams.client, KEYS, 0, writer_id(nonce), TTL_MS, clock)


def dead_pid() -> int:
    """Of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_free_partition_is_taken_for_the_ttl(streams: Streams) -> None:
    mine = owner(streams)
    mine.acquire()
    assert streams.client.get(KEYS.owner(0)).decode() == mine.writer
    assert TTL_MS / 2 < streams.client.pttl(KEYS.owner(0)) <= TTL_MS
    assert mine.trusted


def test_what_a_live_writer_has_is_refused(streams: Streams) -> None:
    owner(streams, "a").acquire()
    with pytest.raises(PartitionTaken, match=str(os.getpid())):
        owner(streams, "b").acquire()


def test_it_is_taken_again_by_its_own_name(streams: Streams) -> None:
    owner(streams, "a").acquire()
    owner(streams, "a").acquire()


def test_a_dead_process_of_this_host_is_replaced_at_once(streams: Streams) -> None:
    streams.client.set(KEYS.owner(0), f"{socket.gethostname()}:{dead_pid()}:x")
    owner(streams).acquire()


def test_of_another_host_nothing_is_known(streams: Streams) -> None:
    streams.client.set(KEYS.owner(0), f"elsewhere:{dead_pid()}:x", px=60_000)
    with pytest.raises(PartitionTaken, match="elsewhere"):
        owner(streams).acquire()


@pytest.mark.parametrize("value", ["garbage", ":::", "host", f"{socket.gethostname()}:x:y"])
def test_an_owner_that_makes_no_sense_is_another(streams: Streams, value: str) -> None:
    streams.client.set(KEYS.owner(0), value)
    with pytest.raises(PartitionTaken):
        owner(streams).acquire()


def test_it_is_renewed_in_time_and_not_all_the_time(streams: Streams) -> None:
    hand = Hand()
    mine = owner(streams, hand=hand)
    mine.acquire()
    streams.client.pexpire(KEYS.owner(0), 500)
    hand.seconds += TTL_MS / 1_000 * 0.1
    mine.keep()
    assert streams.client.pttl(KEYS.owner(0)) <= 500
    hand.seconds += TTL_MS / 1_000 * 0.3
    mine.keep()
    assert streams.client.pttl(KEYS.owner(0)) > 500


def test_it_trusts_its_lease_less_long_than_it_is(streams: Streams) -> None:
    hand = Hand()
    mine = owner(streams, hand=hand)
    told = [mine.trusted]
    mine.acquire()
    for part in (0.7, 0.1):
        hand.seconds += TTL_MS / 1_000 * part
        told.append(mine.trusted)
    mine.distrust()
    mine.keep()
    assert [*told, mine.trusted] == [False, True, False, True]


def test_a_lapsed_lease_that_nobody_took_is_taken_again(streams: Streams) -> None:
    mine = owner(streams)
    mine.acquire()
    streams.client.delete(KEYS.owner(0))
    mine.distrust()
    mine.keep()
    assert streams.client.get(KEYS.owner(0)).decode() == mine.writer


def test_a_lease_that_another_took_is_noticed(streams: Streams) -> None:
    mine = owner(streams)
    mine.acquire()
    streams.client.set(KEYS.owner(0), "elsewhere:1:x")
    mine.keep()  # not yet: it is not time to ask
    mine.distrust()
    with pytest.raises(Fenced, match="elsewhere:1:x"):
        mine.keep()


def test_only_its_own_is_given_back(streams: Streams) -> None:
    mine = owner(streams)
    mine.acquire()
    mine.release()
    assert streams.client.get(KEYS.owner(0)) is None
    streams.client.set(KEYS.owner(0), "elsewhere:1:x")
    mine.release()
    assert streams.client.get(KEYS.owner(0)) == b"elsewhere:1:x"


def test_all_of_it_works_in_a_full_server(full_streams: Streams) -> None:
    mine = owner(full_streams)
    mine.acquire()
    mine.distrust()
    mine.keep()
    mine.release()


HOLD = """
import sys
from pathlib import Path
from writer.streams.ownership import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire()
print(flush=True)
sys.stdin.read()
"""


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "p00.lock"
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdout.readline()
        lock = FileLock(path)
        with pytest.raises(PartitionTaken, match=str(child.pid)):
            lock.acquire()
        child.kill()
        child.wait()
        lock.acquire()
        assert path.read_text() == f"{os.getpid()}\n"
        lock.release()
        lock.release()
        assert path.exists()
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
