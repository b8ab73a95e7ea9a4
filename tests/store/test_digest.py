"""The digest says what a run became: all of it, and nothing of how it came there."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from tests.store.filling import Filling, auth, claim, pi_run
from writer.apply import Message
from writer.store import digest
from writer.store.database import open_reader
from writer.store.partition import partition_path
from writer.store.queries import script
from writer.store.reader import StateReader

LEFT_OUT = {
    "file": "*",
    "migrations": "*",
    "commits": "*",
    "acts": "*",
    "quarantines": "*",
    "definitions": "*",
    "cursors": {"incarnation", "message_id", "applied", "duplicates", "rejected", "run_id"},
    "tombstones": {"run_id"},
    "events": {"event_seq"},
    "state_parts": {"part_seq"},
    "updates": {"update_seq"},
    "session_entries": {"entry_key"},
    "session_events": {"event_key"},
    "rejections": {"rejection_seq", "incarnation", "fields", "head", "dropped_at"},
}
"""Columns that are no part of a digest, beside `run_key`. A new one is to be here or in it."""


def digests_of(data: Path) -> dict[str, str]:
    with StateReader(data) as reader:
        runs: dict[str, str] = reader.digest()["runs"]
        return runs


def whole_of(data: Path) -> str:
    with StateReader(data) as reader:
        return str(reader.digest(runs=False)["digest"])


def history(filling: Filling) -> list[Message]:
    """Messages of several runs, mixed: applied, refused, repeated, late and of deleted runs."""
    messages = []
    for number in range(6):
        run = f"run-{number}"
        messages += [
            filling.message(run, "run.create", {"state": {"n": 0}, "effects": ["run.settled"]}),
            filling.message(run, "lease.claim", claim()),
            filling.message(run, "run.reset", {}, auth=auth()),
            filling.message(run, "session.bind", {"session": "s"}, auth=auth()),
            filling.message(run, "session.entry", {"entry": {"id": "e", "n": number}}, auth=auth()),
            filling.message(run, "run.update", {"type": "t", "key": "k", "data": {}}, auth=auth()),
            filling.message(run, "run.annotate", {"title": "t"}, producer="q", seq=4),
            filling.message(run, "run.annotate", {"title": "u"}, producer="q", seq=2),
            filling.message(run, "run.create", {"title": "x"}, raw={b"seq": b"one"}),
        ]
        state = {"n": number, "status": "completed", "text": "x" * 2000}
        messages.append(filling.message(run, "run.snapshot", {"state": state}, auth=auth()))
        if number % 3 == 0:
            messages.append(filling.message(run, "run.delete", {}, auth=auth()))
            messages.append(filling.message(run, "run.annotate", {"title": "late"}))
        if number % 2 == 0:
            messages.append(messages[-1]._replace(id=f"{90_000 + number}-0"))
    return sorted(messages, key=lambda message: int(message.id.split("-")[0]))


def test_equal_messages_give_equal_digests_in_any_batches(tmp_path: Path) -> None:
    found = []
    for size in (1, 7, 10_000):
        filling = Filling(tmp_path / str(size))
        messages = history(filling)
        for start in range(0, len(messages), size):
            filling.settle(messages[start : start + size])
        filling.close()
        found.append(digests_of(tmp_path / str(size)))

    assert found[0] == found[1] == found[2]
    assert len(set(found[0].values())) == 6


def test_the_whole_does_not_depend_on_partitions(tmp_path: Path) -> None:
    found = []
    for partitions in (1, 3):
        data = tmp_path / str(partitions)
        filling = Filling(data, partitions)
        filling.settle(history(filling))
        filling.close()
        found.append((digests_of(data), whole_of(data)))

    assert found[0] == found[1]
    sums = sum(int(one, 16) for one in found[0][0].values()) % 2**256
    assert f"{sums:064x}" == found[0][1]


def test_partitions_add_up_to_the_whole(tmp_path: Path) -> None:
    filling = Filling(tmp_path, partitions=3)
    filling.settle(history(filling))
    with StateReader(tmp_path) as reader:
        shown = reader.digest()
    assert list(shown["partitions"]) == ["0", "1", "2"]
    parts = [bytes.fromhex(one) for one in shown["partitions"].values()]
    assert digest.combine(parts).hex() == shown["digest"]
    for partition, expected in enumerate(parts):
        connection = open_reader(partition_path(tmp_path, partition))
        assert digest.partition_digest(connection) == expected
        connection.close()
    filling.close()


def test_every_column_is_covered_or_left_out_on_purpose(filling: Filling) -> None:
    rows = filling.rows(
        "run-1",
        "SELECT t.name AS tab, c.name AS col FROM pragma_table_list t, pragma_table_info(t.name) c "
        "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
    )
    forgotten = []
    for row in rows:
        table, column = row["tab"], row["col"]
        left_out = LEFT_OUT.get(table, set())
        covered = set(re.findall(r"\w+", digest.QUERIES.get(table, "").partition("FROM")[0]))
        if left_out != "*" and column not in {"run_key", *left_out, *covered}:
            forgotten.append(f"{table}.{column}")
        if left_out != "*":
            assert column not in set(left_out) & covered, f"{table}.{column} is in it"
    assert not forgotten
    assert script("digest.sql").count("-- :name") == len(digest.TABLES) + 3


COVERED = (
    "UPDATE runs SET title = 'other'",
    "UPDATE runs SET updated_at = updated_at + 1",
    "UPDATE leases SET expires_at = expires_at + 1",
    "UPDATE state_parts SET value = '1' WHERE part_seq = 2",
    "DELETE FROM state_parts WHERE part_seq = 2",
    "UPDATE events SET payload = '{}' WHERE event_seq = 2",
    "UPDATE events SET recorded_at = 7 WHERE event_seq = 2",
    "UPDATE updates SET data = '{}' WHERE revision = 4",
    "UPDATE attempts SET status = 'failed'",
    "UPDATE effects SET status = 'applied'",
    "UPDATE segments SET entry_count = 9 WHERE segment = 1",
    "UPDATE session_entries SET entry = '{}' WHERE entry_key = 1",
    "UPDATE session_events SET event = '{}' WHERE event_key = 3",
    "UPDATE rejections SET reason = 'run_unknown'",
    "UPDATE rejections SET fields_sha256 = zeroblob(32)",
    "DELETE FROM rejections",
    "UPDATE producers SET last_seq = 99",
    "UPDATE gaps SET last_seq = 3",
    "DELETE FROM gaps",
)


@pytest.mark.parametrize("statement", COVERED)
def test_any_change_of_what_a_run_became_shows(filling: Filling, statement: str) -> None:
    pi_run(filling, "run-1")
    before = digests_of(filling.data)

    filling.edit("run-1", statement)

    assert digests_of(filling.data) != before


NOT_COVERED = (
    "UPDATE file SET epoch = 9, commit_seq = 99, lineage = 'other'",
    "UPDATE cursors SET incarnation = 2, duplicates = 7, message_id = '9-9'",
    "UPDATE events SET event_seq = event_seq + 1000",
    "UPDATE session_entries SET entry_key = entry_key + 1000",
    "UPDATE state_parts SET part_seq = part_seq + 1000",
    "UPDATE rejections SET rejection_seq = 77, incarnation = 3",
    "UPDATE rejections SET fields = NULL, head = NULL, dropped_at = 5",
)


@pytest.mark.parametrize("statement", NOT_COVERED)
def test_how_it_came_there_does_not_show(filling: Filling, statement: str) -> None:
    pi_run(filling, "run-1")
    before = digests_of(filling.data)

    filling.edit("run-1", statement)

    assert digests_of(filling.data) == before


def test_a_duplicate_changes_no_digest_and_a_refusal_does(filling: Filling) -> None:
    filling.apply("run-1", "run.create")
    before = digests_of(filling.data)
    filling.send("run-1", "run.create", {}, seq=1)
    assert digests_of(filling.data) == before
    filling.send("run-1", "run.reset")
    assert digests_of(filling.data) != before


def test_a_stream_that_left_nothing_has_no_digest(filling: Filling) -> None:
    filling.send("run-1", "run.create", {}, raw={b"v": b"7"})
    assert filling.rows("run-1", "SELECT run_id FROM cursors") == [{"run_id": "run-1"}]
    assert digests_of(filling.data) == {}
    assert whole_of(filling.data) == "0" * 64


def test_a_deleted_run_is_its_tombstone(filling: Filling) -> None:
    pi_run(filling, "run-1")
    alive = digests_of(filling.data)
    filling.apply("run-1", "run.delete", {}, auth=auth())
    deleted = digests_of(filling.data)
    filling.send("run-1", "run.reset")
    refused = digests_of(filling.data)
    assert len({alive["run-1"], deleted["run-1"], refused["run-1"]}) == 3


def test_states_are_proved_by_their_events(filling: Filling) -> None:
    states = [{"items": [{"n": n, "text": "x" * 300} for n in range(k)]} for k in (1, 9, 8, 3)]
    filling.apply("run-1", "run.create", {"state": {}})
    for state in states:
        filling.apply("run-1", "run.snapshot", {"state": state})
    filling.apply("run-1", "run.annotate", {"title": "t"})
    connection = apsw.Connection(str(filling.path("run-1")))
    (key,) = connection.execute("SELECT run_key FROM cursors").fetchall()[0]
    assert isinstance(key, int)

    assert digest.verify_states(connection, key) == []
    connection.execute("UPDATE state_parts SET value = '7' WHERE pointer = '/items/2'")
    assert digest.verify_states(connection, key) == [3, 4, 5]
    connection.execute("DELETE FROM state_parts WHERE pointer = '/items/2'")
    assert digest.verify_states(connection, key) == [3, 4, 5]
    connection.close()
