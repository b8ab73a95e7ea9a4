"""Applies a fixed list of batches to a partition file, without Redis, and tells of each commit.

    python -m tests.support.apply_main        then, on stdin: DATA TOLD, a line each

For each line it forks a child that stops itself, and prints the child's pid: whoever asked may
attach to it and then let it go on (SIGCONT). The child applies all batches to the folder DATA and
writes the number of each that is committed to the file TOLD, `retry` where a Retry error made it
begin again. When it has ended, a second line has its exit code, negative for a signal.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from producers.contract.envelope import encode, seal
from tests.support.traffic import body_of, names, opening
from writer.apply import Aggregates, Applier, Message
from writer.core.decide import RULES_VERSION
from writer.errors import Retry
from writer.replay import catch_up
from writer.store.partition import PartitionFile, partition_path
from writer.streams.archive import Archive, Position, archive_folder
from writer.streams.reach import last_epoch

BATCHES = 6
RUNS = names(3)
PER_RUN = 4
MESSAGES = BATCHES * len(RUNS) * PER_RUN
TRIES = 5

Tell = Callable[[str], object]


def batches() -> Iterator[list[Message]]:
    """The same messages every time."""
    for batch in range(BATCHES):
        messages = []
        for run in RUNS:
            first = opening(run)
            for seq in range(batch * PER_RUN + 1, (batch + 1) * PER_RUN + 1):
                kind, body = first[seq - 1] if seq <= len(first) else body_of(seq, 400)
                fields = seal(encode(kind, body, producer="traffic", seq=seq))
                messages.append(Message(run, f"{1_700_000_000_000 + seq}-0", fields))
        yield messages


def apply_all(data: Path, tell: Tell) -> None:
    """Open the file, catch up, apply what is not settled yet, close it. As a daemon would."""
    folder = archive_folder(data, 0)
    archive = None
    file = PartitionFile.open(
        partition_path(data, 0), partition=0, partitions=1, lineage="fixed", now=0
    )
    try:
        file.take("apply", rules_version=RULES_VERSION, now=0, at_least=last_epoch(folder))
        applier = Applier(file, 0, 1, Aggregates(file))
        catch_up(applier, folder, now=0)
        after = Position.parse(file.identity().archived)
        archive = applier.archive = Archive(folder, file.epoch, {"partition": 0}, after=after)
        for number, messages in enumerate(batches()):
            settled, _ = applier.apply(messages, now=0)
            if settled:
                tell(f"{number}\n")
            if number % 4 == 3:
                file.sync()
    finally:
        with suppress(OSError):
            if archive is not None:
                archive.close()
        file.close()


def apply_with_patience(data: Path, tell: Tell) -> int:
    """Apply all, beginning again after a Retry error up to `TRIES` times; returns an exit code."""
    for _ in range(TRIES):
        try:
            apply_all(data, tell)
        except Retry as error:
            tell(f"retry {error}\n")
        else:
            return 0
    return Retry.exit_code


def serve() -> None:
    """Fork a child for each line of stdin."""
    for line in sys.stdin:
        data, told = line.split()
        child = os.fork()
        if child == 0:
            os._exit(_work(Path(data), told))
        os.write(1, b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))


def _work(data: Path, told: str) -> int:
    handle = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.kill(os.getpid(), signal.SIGSTOP)
    return apply_with_patience(data, lambda text: os.write(handle, text.encode()))


if __name__ == "__main__":
    serve()
