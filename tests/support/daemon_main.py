"""A daemon in a process of its own, which a test may kill, stop and starve.

    python -m tests.support.daemon_main '{"data": "...", "redis": "unix://..."}'

The argument holds settings of the writer; beside them `standby`, `accept_loss`, and
`file_bytes_max` (no file may grow past it, as on a disk with a quota). It logs a JSON object a line
to stderr, and ends with the exit code of the error that ended it.
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
from writer.errors import WriterError
from writer.settings import WriterSettings


class LineLog:
    """One line an action, in one write, so that a killed process leaves whole lines."""

    def info(self, event: str, **fields: Any) -> None:
        """A thing that happened."""
        line = {"event": event, "at": time.time(), **fields}
        os.write(2, json.dumps(line).encode() + b"\n")

    warning = info


def main() -> int:
    """Run until a signal comes or the daemon can not go on."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    standby = given.pop("standby", False)
    accept_loss = given.pop("accept_loss", False)
    file_bytes_max = given.pop("file_bytes_max", None)
    if file_bytes_max is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))
    log = LineLog()
    settings = WriterSettings(**given)
    assert settings.redis is not None
    daemon = Daemon(settings, settings.redis, log, standby=standby, accept_loss=accept_loss)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.stop())
    try:
        daemon.start()
        daemon.wait()
    except WriterError as error:
        log.info("ended", error=type(error).__name__, cause=str(error), hint=error.hint)
        return error.exit_code
    log.info("ended", error=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
