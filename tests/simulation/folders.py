"""Data folders: new ones, and copies of one as it is at an instant."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw

from writer.store.database import migrate

FILE = "p00.sqlite"
EXPIRED = "expired"
"""Where the simulation keeps what retention removed of the archive."""
PAGE_BYTES = 1024
"""Small pages: of a file that is copied, checked and summed up all the time."""


def has_file(data: Path) -> bool:
    """Whether there is a partition file."""
    return (data / FILE).exists()


def begin_file(data: Path) -> None:
    """Put a partition file that has its schema and nothing else into a folder: far cheaper than
    making one.
    """
    (data / FILE).write_bytes(_empty())


@cache
def _empty() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        connection = apsw.Connection(str(path))
        for pragma in (f"page_size = {PAGE_BYTES}", "auto_vacuum = INCREMENTAL"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        migrate(path, connection, 0)
        connection.close()
        return path.read_bytes()


def keep_segments(data: Path) -> None:
    """Keep the archive's segments aside, before retention removes some."""
    (data / EXPIRED).mkdir(exist_ok=True)
    for path in (data / "archive" / "p00").glob("e*.zst*"):
        (data / EXPIRED / path.name).unlink(missing_ok=True)
        (data / EXPIRED / path.name).hardlink_to(path)


def forget_expired(data: Path) -> None:
    """Nobody reads any more what expired."""
    shutil.rmtree(data / EXPIRED, ignore_errors=True)


def copy_data(data: Path, folder: Path) -> None:
    """Copy a data folder's files; not the shared memory, which dies with the processes."""
    for name in (FILE, f"{FILE}-wal"):
        if (data / name).exists():
            shutil.copyfile(data / name, folder / name)
    if (data / "archive").exists():
        shutil.copytree(data / "archive", folder / "archive")
