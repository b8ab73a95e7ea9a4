"""A daemon in a process of its own, which a test may kill, stop and starve.

`run` is the whole life of that process. It logs a JSON object a line to stderr, and ends with the
exit code of the error that ended it. As a program, `python -m tests.support.daemon_main SETTINGS`,
it takes the same settings as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from typing import Any

from writer.daemon import Daemon
from writer.errors import Retry, WriterError
from writer.settings import WriterSettings


class LineLog:
    """One line an action, in one write, so that a killed process leaves whole lines."""

    def info(self, event: str, **fields: Any) -> None:
        """A thing that happened."""
        line = {"event": event, "at": time.time(), **fields}
        os.write(2, json.dumps(line).encode() + b"\n")

    warning = info


def run(
    *,
    standby: bool = False,
    accept_loss: bool = False,
    file_bytes_max: int | None = None,
    **given: Any,
) -> int:
    """Write until a signal comes or the daemon can not go on; returns the exit code.

    `given` are settings of the writer; no file may grow past `file_bytes_max`, as with a quota.
    """
    if file_bytes_max is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))
    log = LineLog()
    settings = WriterSettings(**given)
    assert settings.redis is not None
    daemon = Daemon(settings, settings.redis, log, standby=standby, accept_loss=accept_loss)
    heard = []

    def heed(number: int, _: object) -> None:
        heard.append(number)
        daemon.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, heed)
    try:
        daemon.start()
        daemon.wait()
    except WriterError as error:
        log.info("ended", error=type(error).__name__, cause=str(error), hint=error.hint)
        return 0 if heard and isinstance(error, Retry) else error.exit_code
    log.info("ended", error=None)
    return 0


if __name__ == "__main__":
    sys.exit(run(**json.loads(sys.argv[1])))
