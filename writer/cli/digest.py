"""`digest`: what the files hold, as a hash that equal histories share."""

from __future__ import annotations

from typing import Annotated

import typer

from writer.cli import output
from writer.cli.folder import reading, settings_of
from writer.cli.options import AsJson, Data, Redis, examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "digest",
        epilog=examples(
            "statewriter digest", "statewriter digest --runs", "statewriter digest --json"
        ),
    )(digest)


def digest(
    runs: Annotated[bool, typer.Option("--runs", help="Of each run, too.")] = False,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Print the digest of each partition and of the whole.

    The same messages give the same digest, whatever the batches, restarts and
    partitions. With --json: one object.
    """
    settings = settings_of(data, redis)
    with reading(settings) as reader:
        found = reader.digest(runs=runs)
    if as_json:
        output.emit(found)
        return
    rows = [("run", run_id, value) for run_id, value in (found.get("runs") or {}).items()]
    rows += [("partition", name, value) for name, value in found["partitions"].items()]
    for kind, name, value in rows:
        output.write(f"{value}  {kind} {name}")
    output.write(f"{found['digest']}  whole")
