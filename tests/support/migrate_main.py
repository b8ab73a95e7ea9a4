"""Brings a partition file's schema up to date, and dies before one of the statements."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from writer.store.database import migrate, open_writer


def run(path: str, statement: int) -> int:
    """SIGKILL before the nth statement (1, 2, ...) of all migrations; 0 if there are fewer."""
    connection = open_writer(Path(path))
    left = statement

    def before(*_: Any) -> bool:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    connection.exec_trace = before
    migrate(Path(path), connection, 0)
    connection.exec_trace = None
    connection.close()
    return 0
