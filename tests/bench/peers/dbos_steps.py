"""Workflows of DBOS Transact on SQLite, as shipped; a program of its own, since DBOS is one per
process.

    python -m tests.bench.peers.dbos_steps FILE WORKFLOWS STEPS CHARS

Prints the seconds of each workflow, as JSON; one runs before the clock starts. Each step returns
a text of so many characters, which DBOS keeps, in a transaction, before the next one begins.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter
from typing import Any

from dbos import DBOS

from tests.support.workload import text


def main(file: str, workflows: int, steps: int, chars: int) -> list[float]:
    """Seconds of each workflow."""
    config: Any = {
        "name": "bench",
        "system_database_url": f"sqlite:///{file}",
        "run_admin_server": False,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    texts = [text(number, chars) for number in range(steps)]

    @DBOS.step()
    def step(number: int) -> dict[str, Any]:
        return {"index": number, "reply": texts[number]}

    @DBOS.workflow()
    def workflow() -> int:
        return sum(step(number)["index"] for number in range(steps))

    DBOS.launch()
    try:
        workflow()
        took = []
        for _ in range(workflows):
            started = perf_counter()
            workflow()
            took.append(perf_counter() - started)
        return took
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    path, *numbers = sys.argv[1:]
    print(json.dumps(main(path, *map(int, numbers))))
