"""Producers in processes of their own, that send until they are killed.

`run` sends pipelines by itself, and writes a line to stderr before and after each: `attempted N`,
`acked N`, counted over its five runs, to which it writes in turn. `run_ours` is our client's user,
and says of one run what was called and what was `accepted` or `spooled`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import redis

from producers import Producer, ProducerSettings, Sent
from producers.contract.envelope import encode
from producers.contract.keys import Keys

RUNS = [f"run-{number}" for number in range(5)]
PIPELINE = 30


def run(url: str, producer: str) -> int:
    """Send for ever."""
    keys = Keys()
    client: Any = redis.Redis.from_url(url, retry=None)
    for run in RUNS:
        # Another life's create is equal, so this one is a duplicate. It has a producer of its own.
        fields = encode("run.create", {"workflow": "w"}, producer=f"{producer}-create", seq=1)
        client.xadd(keys.run(0, run), fields)
    sent = 0
    while True:
        pipeline = client.pipeline(transaction=False)
        for place in range(sent, sent + PIPELINE):
            body = {"type": "progress", "key": "k", "data": {"n": place // len(RUNS) + 1}}
            run, seq = RUNS[place % len(RUNS)], place // len(RUNS) + 1
            fields = encode("run.update", body, producer=producer, seq=seq)
            pipeline.xadd(keys.run(0, run), fields)
        pipeline.zadd(keys.ready(0), dict.fromkeys(RUNS, 0), lt=True)
        sent += PIPELINE
        os.write(2, b"attempted %d\n" % sent)
        pipeline.execute()
        os.write(2, b"acked %d\n" % sent)


def run_ours(url: str, spool: str, life: int) -> int:
    """Call for ever, pausing now and then so that the sender keeps pace."""
    settings = ProducerSettings(spool=Path(spool), spool_after_ms=30)
    producer = Producer(url, settings=settings)
    run = producer.create_run("w", run_id=f"life-{life}")
    said, safe = 0, 0
    handles: list[Sent] = []
    while True:
        os.write(2, b"attempted %d\n" % (said + 5))
        for _ in range(5):
            said += 1
            handles.append(run.update("progress", f"k{said % 500}", {"n": said + 1}))
        while handles and handles[0].state in ("accepted", "spooled"):
            handles.pop(0)
            safe += 1
        os.write(2, b"acked %d\n" % safe)
        time.sleep(0.003)
