"""Digests of runs, partitions and all of them, over the files of a folder."""

from __future__ import annotations

from writer.store.digest import NOTHING, combine, digests
from writer.store.reader.files import Files
from writer.store.reader.query import Record


def digests_of(files: Files, *, runs: bool) -> Record:
    """In hexadecimal; the keys are described at `StateReader.digest`."""
    by_run: dict[str, bytes] = {}
    by_partition: dict[str, bytes] = {}
    for identity, file in files.all():
        total = NOTHING
        with file.read() as connection:
            for run_id, found in digests(connection):
                total = combine((total, found))
                if runs:
                    # A message that went to a wrong partition's stream left its mark there.
                    by_run[run_id] = combine((by_run.get(run_id, NOTHING), found))
        by_partition[str(identity.partition)] = total
    shown: Record = {
        "partitions": {name: total.hex() for name, total in by_partition.items()},
        "digest": combine(by_partition.values()).hex(),
    }
    if runs:
        shown["runs"] = {name: by_run[name].hex() for name in sorted(by_run)}
    return shown
