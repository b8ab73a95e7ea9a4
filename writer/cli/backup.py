"""`backup` and `restore`: copies of the partition files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.archive import progress
from writer.cli.exits import NotFound
from writer.cli.folder import check_folder, settings_of, shown_path
from writer.cli.options import AsJson, Data, Redis, examples
from writer.clock import iso, now_ms
from writer.errors import Misconfigured, PartitionTaken, Usage
from writer.health import read_health

if TYPE_CHECKING:
    from writer.store.backup import CopiedFile, Manifest

COLUMNS = ("file", "size", "streams", "messages", "commit", "SHA-256")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "backup",
        epilog=examples(
            "statewriter backup /backup/$(date +%F)",
            "statewriter backup copy --json | jq -r '.files[] | [.name, .sha256] | @tsv'",
        ),
    )(backup)
    app.command(
        "restore",
        epilog=examples(
            "statewriter restore /backup/2026-01-31",
            "statewriter restore /backup/2026-01-31 --partition 1 --force",
        ),
    )(restore)


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.", show_default=False)],
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Copy the partition files while they are written, and prove the copies.

    Each is copied as of one moment; then SQLite's integrity check and the rules
    of `statewriter verify` are run on the copy, its cursors among them. A
    finished backup has a manifest.json. The archive is not in it: copy that
    folder with any tool. With --json: the manifest.
    """
    from writer.store.backup import MANIFEST, Manifest, copy_file, write_manifest
    from writer.store.partition import stored_partitions

    settings = settings_of(data, redis)
    check_folder(settings)
    partitions = stored_partitions(settings.data)
    paths = sorted(settings.data.glob("p*.sqlite"))
    if partitions is None or not paths:
        raise NotFound(f"there is no partition file in {settings.data}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Usage(f"{folder} is not empty", hint="name a folder that does not exist yet")
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    with progress() as begun:
        files = [_copied(copy_file, path, folder / path.name, begun) for path in paths]
    manifest = Manifest(
        statewriter=_version(), created_at=now_ms(), partitions=partitions, files=files
    )
    write_manifest(folder, manifest)
    if as_json:
        output.emit(manifest.model_dump())
        return
    rows = [
        (
            each.name,
            output.size(each.bytes),
            each.streams,
            each.messages,
            each.commit_seq,
            each.sha256[:16],
        )
        for each in files
    ]
    output.draw(output.table(COLUMNS, rows, right=COLUMNS[1:5]))
    output.write(f"{shown_path(folder.absolute())} is complete; see {MANIFEST}")


def _copied(copy_file: Any, source: Path, target: Path, begun: Any) -> CopiedFile:
    bar: list[Any] = []

    def told(name: str, done: int, total: int) -> None:
        if not bar:
            bar.append(begun(name, total))
        bar[0](0, done)

    copied: CopiedFile = copy_file(source, target, told)
    return copied


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("statewriter")
    except PackageNotFoundError:
        return "unknown"


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A backup.", show_default=False)],
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            metavar="N",
            help="Only this partition's file (repeatable).",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Where a file is there, keep it aside as *.replaced-TIME."),
    ] = False,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup's files in place. The daemon must be stopped.

    When it starts again it sees that they are older, and catches up: from the
    archive in the data folder first, then from Redis. Readers that follow changes
    start over. With --json: an object per file.
    """
    from writer.store.backup import check_copies, read_manifest, restore_file

    settings = settings_of(data, redis)
    manifest = read_manifest(folder)
    files = _chosen(manifest, partition)
    check_copies(folder, files)
    target = settings.data
    target.mkdir(parents=True, exist_ok=True)
    with _nobody_writes(target, files):
        _check_room(target, manifest, files, force)
        stamp = iso(now_ms()).replace(":", "").replace("-", "").replace(".", "")
        for file in files:
            done = restore_file(folder, file, target, stamp)
            if as_json:
                output.emit({**done._asdict(), "commit_seq": file.commit_seq})
                continue
            output.write(f"{done.name} is restored, as of commit {file.commit_seq:,}")
            if done.replaced is not None:
                output.write(f"  what was there is {done.replaced}")
    if not as_json:
        output.note("start the daemon: it catches up by itself")


def _chosen(manifest: Manifest, wanted: Sequence[int] | None) -> list[CopiedFile]:
    if not wanted:
        return manifest.files
    chosen = [file for file in manifest.files if file.partition in wanted]
    absent = sorted(set(wanted) - {file.partition for file in chosen})
    if absent:
        raise NotFound(f"the backup has no file of partition {absent[0]}")
    return chosen


def _check_room(data: Path, manifest: Manifest, files: Sequence[CopiedFile], force: bool) -> None:
    """Refuse to mix folders, or to replace a file unasked."""
    from writer.replay import archived_partitions

    archived = archived_partitions(data)
    if archived is not None and archived != manifest.partitions:
        raise Misconfigured(
            f"{data} is a folder of {archived} partitions, the backup one of {manifest.partitions}",
            hint="name the folder that the backup was made of, or a new one",
        )
    present = [file.name for file in files if (data / file.name).exists()]
    if present and not force:
        raise Usage(
            f"{data} has {', '.join(present)} already",
            hint="with --force they are kept aside, not overwritten",
        )


@contextmanager
def _nobody_writes(data: Path, files: Sequence[CopiedFile]) -> Iterator[None]:
    """Hold the files' locks, so that no daemon starts meanwhile. Raises PartitionTaken."""
    from writer.streams.ownership import FileLock

    health = read_health(data)
    if health is not None:
        raise PartitionTaken(
            f"the daemon of {data} runs (pid {health['pid']})", hint="stop it first"
        )
    with ExitStack() as locks:
        for file in files:
            lock = FileLock((data / file.name).with_suffix(".lock"))
            lock.acquire()
            locks.callback(lock.release)
        yield
