"""The archive's files: what is written, and which of it counts."""

from __future__ import annotations

from pathlib import Path

from writer.streams.archive import START, Act, Archive, Position, Record, read_archive


def record(run: str, **fields: bytes) -> Record:
    return Record(run, 1, "1-0", {name.encode(): value for name, value in fields.items()})


def runs(folder: Path, since: Position = START) -> list[str]:
    return [each.run for records, _, _ in read_archive(folder, since) for each in records]


def test_any_bytes_come_back(tmp_path: Path) -> None:
    odd = Record("r", 2, "5-7", {b"v": b"", b"\xff\n": b"\x00\xff\n{}\n", b"body": b'{"a":\n1}'})
    act = Act("1-1", "skip", "r", 1, "1-0")
    archive = Archive(tmp_path, 1, {})
    archive.append([odd, record("s", v=b"1")], [act])
    archive.append([], [act])
    archive.close()
    (first, second) = read_archive(tmp_path)
    assert first[:2] == ([odd, record("s", v=b"1")], [act])
    assert second[:2] == ([], [act])


def test_what_is_behind_the_place_up_to_which_it_was_read_does_not_count(tmp_path: Path) -> None:
    older = Archive(tmp_path, 1, {})
    end = older.append([record("read")])
    newer = Archive(tmp_path, 2, {}, after=end)
    newer.append([record("new")])
    older.append([record("lost its partition")])
    assert runs(tmp_path) == ["read", "new"]
    assert runs(tmp_path, end) == ["new"]
