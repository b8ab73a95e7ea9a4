"""Readers beside a writer, beside none, and beside files that come, go or are replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Thread
from traceback import print_exc

import apsw
import pytest

from tests.store.filling import Filling, pi_run
from tests.support.wait import poll
from writer.errors import FileCorrupt, StoreUnavailable
from writer.store.database import rests
from writer.store.partition import partition_path
from writer.store.reader import StateReader
from writer.store.reader.files import Files


def every_read(reader: StateReader, run: str) -> list[object]:
    """Each public read once."""
    return [
        reader.list_runs().runs,
        reader.rejections().rejections,
        reader.run(run),
        reader.state(run),
        reader.state(run, 1),
        reader.updates(run),
        reader.trace(run),
        reader.last_trace_event(run),
        reader.read_run(run),
        reader.transcript(run),
        reader.session_events(run),
        reader.has_session_binding(run),
        reader.list_session_segments(run),
        reader.attempts(run),
        reader.rejection("0:1"),
        reader.outcome(run, "1001-0", "p", 1),
        reader.settled([run]),
        reader.changes().events,
        reader.status()["partitions"],
        list(reader.export_run(run)),
        reader.digest()["runs"],
    ]


@pytest.mark.parametrize("folder", ["", "missing", "missing/deeper", "file/inside"])
def test_where_nothing_is_nothing_is_read_and_nothing_made(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    data = tmp_path / folder
    before = sorted(tmp_path.rglob("*"))

    with StateReader(data) as reader:
        assert not any(every_read(reader, "run-1"))
        assert reader.session_counts("run-1") == {
            "entryCount": 0,
            "eventCount": 0,
            "lastEventSeq": 0,
        }
        assert reader.status()["totals"]["streams"] == 0
        assert reader.digest() == {"runs": {}, "partitions": {}, "digest": "0" * 64}

    assert sorted(tmp_path.rglob("*")) == before


def test_what_no_run_can_be_called_is_not_there(filling: Filling, reader: StateReader) -> None:
    for name in ("", "../p00", "a b", "é", "\0", "\ud800", "x" * 10_000):
        assert reader.run(name) is None
        assert reader.read_run(name) is None


def test_files_at_rest_read_as_while_they_are_written(filling: Filling) -> None:
    pi_run(filling, "run-1")
    with StateReader(filling.data) as reader:
        live = every_read(reader, "run-1")
    filling.close()
    assert not list(filling.data.glob("*-wal"))

    with StateReader(filling.data) as reader:
        at_rest = every_read(reader, "run-1")

    sizes = [slice(0, 18), slice(19, None)]  # the status tells the sizes of files
    assert [at_rest[part] for part in sizes] == [live[part] for part in sizes]


def test_files_that_appear_are_noticed(tmp_path: Path) -> None:
    with StateReader(tmp_path) as reader:
        assert reader.list_runs().runs == []
        filling = Filling(tmp_path, partitions=2)
        for number in range(4):
            filling.apply(f"run-{number}", "run.create")
        assert len(reader.list_runs().runs) == 4
        assert reader.state("run-1") == {}
        filling.close()


def test_a_file_that_its_writer_is_about_to_make_is_passed_over(tmp_path: Path) -> None:
    partition_path(tmp_path, 0).touch()
    with StateReader(tmp_path) as reader:
        assert reader.list_runs().runs == []
        assert reader.run("run-1") is None
        connection = apsw.Connection(str(partition_path(tmp_path, 0)))
        connection.pragma("journal_mode", "wal")
        assert reader.list_runs().runs == []
        connection.close()
        filling = Filling(tmp_path)
        filling.apply("run-1", "run.create")
        assert len(reader.list_runs().runs) == 1
        filling.close()


def test_a_file_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    before, after = Filling(old), Filling(new, lineage="second")
    before.apply("run-1", "run.create", {"title": "before"})
    before.apply("run-2", "run.create")
    after.apply("run-1", "run.create", {"title": "after"})
    before.close()
    after.close()

    with StateReader(old) as reader:
        token = reader.changes().token
        assert reader.list_runs(limit=1).runs[0]["run_id"] == "run-2"
        partition_path(new, 0).replace(partition_path(old, 0))
        (run,) = reader.list_runs().runs
        assert run["title"] == "after"
        page = reader.changes(token)
        assert (page.reset, [event["run_id"] for event in page.events]) == (True, ["run-1"])


def test_a_restored_older_copy_makes_followers_start_over(
    filling: Filling, reader: StateReader, tmp_path: Path
) -> None:
    """It has the same lineage, until its writer has caught up."""
    filling.apply("run-1", "run.create")
    filling.close()
    copy = tmp_path / "copy"
    shutil.copy(partition_path(filling.data, 0), copy)
    again = Filling(filling.data)
    again.apply("run-2", "run.create")
    token = reader.changes().token
    again.close()
    reader.close()
    for path in filling.data.glob("p00.sqlite*"):
        path.unlink()
    assert reader.changes(token).reset
    shutil.copy(copy, partition_path(filling.data, 0))

    page = reader.changes(token)

    assert (page.reset, [event["run_id"] for event in page.events]) == (True, ["run-1"])


def test_a_damaged_file_is_named(filling: Filling) -> None:
    filling.apply("run-1", "run.create")
    filling.close()
    path = partition_path(filling.data, 0)
    path.write_bytes(b"no longer a database" * 1000)
    with StateReader(filling.data) as reader, pytest.raises(FileCorrupt, match=r"p00\.sqlite"):
        reader.list_runs()


def test_other_files_in_the_folder_are_left_alone(filling: Filling, reader: StateReader) -> None:
    filling.apply("run-1", "run.create")
    for name in ("p00.sqlite.bak", "notes.txt", "p1.sqlite", "archive"):
        (filling.data / name).write_text("something else")
    assert len(reader.list_runs().runs) == 1


def test_no_transaction_is_left_behind(filling: Filling, reader: StateReader) -> None:
    """Else the WAL would grow while a reader is idle."""
    pi_run(filling, "run-1")
    every_read(reader, "run-1")
    begun = reader.export_run("run-1")
    next(begun)
    writer = apsw.Connection(str(partition_path(filling.data, 0)))
    writer.set_busy_timeout(0)
    assert writer.execute("SELECT count(*) FROM events").fetchall() != [(0,)]

    left = writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    assert left == (0, 0)
    writer.close()


@contextmanager
def at_work(work: Callable[[], None]) -> Iterator[Event]:
    """Do it in a thread; the event is set when it has ended."""
    ended = Event()

    def run() -> None:
        try:
            work()
        finally:
            ended.set()

    thread = Thread(target=run)
    thread.start()
    try:
        yield ended
    finally:
        thread.join(60)
        assert not thread.is_alive()


def test_a_reader_beside_a_writer_sees_whole_transactions(
    filling: Filling, reader: StateReader
) -> None:
    """Each commit has a snapshot and an entry; no read may see one without the other."""
    filling.apply("run-1", "run.create", {"state": {"n": 1}})
    filling.apply("run-1", "session.bind", {"session": "s"})

    def write() -> None:
        for n in range(1, 300):
            filling.settle(
                [
                    filling.message("run-1", "run.snapshot", {"state": {"n": n}}),
                    filling.message("run-1", "session.entry", {"entry": {"n": n}}),
                ]
            )

    seen: list[int] = []
    token, events = None, 0
    with at_work(write) as ended:
        last_look = False
        while not last_look:
            last_look = ended.is_set()
            run = reader.read_run("run-1")
            assert run is not None
            entries = run["sessionEntries"]
            assert len(run["traceEvents"]) == len(entries) + 2
            assert run["state"]["n"] == (entries[-1]["entry"]["n"] if entries else 1)
            assert run["sessionIntegrity"]["diagnostics"] == []
            seen.append(len(entries))
            page = reader.changes(token, limit=10_000)
            assert not page.reset
            events, token = events + len(page.events), page.token

    assert seen == sorted(seen)
    assert seen[-1] == 299
    assert events == 2 + 2 * 299


def test_an_export_ends_where_the_run_stood_when_it_began(
    filling: Filling, reader: StateReader
) -> None:
    pi_run(filling, "run-1")
    whole = list(reader.export_run("run-1"))

    begun = reader.export_run("run-1")
    first = next(begun)
    filling.apply("run-1", "run.annotate", {"title": "later still"})
    filling.send("run-1", "run.create", {"title": "no"})

    assert [first, *begun] == whole


def test_an_export_of_a_run_that_is_deleted_says_so(filling: Filling, reader: StateReader) -> None:
    filling.apply("run-1", "run.create")
    begun = reader.export_run("run-1")
    next(begun)
    filling.apply("run-1", "run.delete")
    with pytest.raises(StoreUnavailable, match="deleted"):
        list(begun)


NOBODY = 65534


@contextmanager
def someone_who_may_only_read(data: Path, look: Callable[[int], None]) -> Iterator[int]:
    """Look in a child that can write nowhere in the folder; root would not be held back.

    `look` gets a pipe from the test, the test one from `look`.
    """
    from_child, to_test = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            assert not os.access(data, os.W_OK)
            look(to_test)
            code = 0
        except BaseException:
            # Nobody else would: the parent sees its code only.
            print_exc()
            raise
        finally:
            os._exit(code)
    os.close(to_test)
    try:
        yield from_child
    finally:
        os.close(from_child)
        _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0


@pytest.fixture
def resting_folder() -> Iterator[Path]:
    """A folder that others can reach, unlike pytest's own, but not write; with one run, at rest."""
    folder = Path(mkdtemp())
    filling = Filling(folder)
    pi_run(filling, "run-1")
    filling.close()
    partition_path(folder, 0).chmod(0o644)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_that_can_not_be_written_is_read_at_rest(resting_folder: Path) -> None:
    """SQLite itself would refuse: it can make no WAL there."""

    def look(_: int) -> None:
        with StateReader(resting_folder) as reader:
            assert reader.list_runs().runs[0]["run_id"] == "run-1"
            assert reader.read_run("run-1") is not None

    with someone_who_may_only_read(resting_folder, look):
        pass
    assert [path.name for path in resting_folder.iterdir()] == ["p00.sqlite"]


def runs_seen(reader: StateReader) -> int:
    """How many runs it lists; -1 where a writer's beginning fell into the read: "read again"."""
    try:
        return len(reader.list_runs().runs)
    except StoreUnavailable:
        return -1


@pytest.mark.skipif(os.getuid() != 0, reason="the writer must be someone else than the reader")
def test_a_writer_that_begins_later_is_noticed_there_too(resting_folder: Path) -> None:
    def look(to_test: int) -> None:
        with StateReader(resting_folder) as reader:
            assert len(reader.list_runs().runs) == 1
            os.write(to_test, b"1")
            poll(lambda: runs_seen(reader) == 2, 60)
            assert reader.state("run-2") == {"n": 1}
            os.write(to_test, b"2")

    with someone_who_may_only_read(resting_folder, look) as from_child:
        assert os.read(from_child, 1) == b"1"
        filling = Filling(resting_folder)
        filling.apply("run-2", "run.create", {"state": {"n": 1}})
        assert os.read(from_child, 1) == b"2"
        filling.close()


@pytest.mark.skipif(os.getuid() != 0, reason="the writer must be someone else than the reader")
def test_what_looks_damaged_while_a_writer_begins_is_read_again(resting_folder: Path) -> None:
    """A reader that can take no locks may see half of what is moved from the WAL into the file."""

    def look(to_test: int) -> None:
        ((_, file),) = Files(resting_folder).all()

        def read() -> None:
            with file.read():
                os.write(to_test, b"1")
                poll(lambda: not rests(file.path), 60)
                raise FileCorrupt("half a page")

        with pytest.raises(StoreUnavailable, match="changed while it was read"):
            read()

    with someone_who_may_only_read(resting_folder, look) as from_child:
        assert os.read(from_child, 1) == b"1"
        filling = Filling(resting_folder)
        filling.apply("run-2", "run.create")
    filling.close()
