"""A producer in a process of its own, that sends pipelines until it is killed.

It writes a line to stderr before and after each pipeline: `attempted N`, `acked N`, counted over
its five runs, to which it writes in turn.
"""

from __future__ import annotations

import os
from typing import Any

import redis

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
