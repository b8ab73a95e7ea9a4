"""The promises about order, accounting, revisions and determinism, over generated histories."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from hypothesis import given, note, settings
from hypothesis import strategies as st

from producers.contract.envelope import decode
from tests.properties.histories import Act, histories, messages, shown
from tests.properties.oracle import Ledger
from tests.properties.partition import partition
from tests.properties.tables import without
from writer.apply import Settled, arrival_ms, order_of
from writer.core.decide import decide
from writer.core.facts import Facts
from writer.core.outcome import Applied, Duplicate, Outcome, Rejected
from writer.core.run import Run
from writer.dialects import DIALECTS
from writer.store.invariants import standing, violations

ONLY_POSITIONS = ("cursors", "producers", "gaps")


def word(outcome: Outcome) -> str:
    """How a message ended, as a test compares it."""
    match outcome:
        case Applied(_, revision, segment):
            return f"applied {segment}.{revision}"
        case Rejected(reason, _):
            return f"rejected {reason.value}"
        case Duplicate():
            return "duplicate"
    return "held"


def said(settled: list[Settled]) -> list[tuple[str, str, str]]:
    return [(each.message.run, each.message.id, word(each.outcome)) for each in settled]


@given(histories(), st.sampled_from([1, 7, None]))
@settings(max_examples=30)
def test_every_message_ends_exactly_once(history: list[Act], size: int | None) -> None:
    with partition() as file:
        settled = file.apply_all(messages(history), size)
        cursors = {row[0]: row for row in file.tables()["cursors"]}
        counted: Counter[tuple[str, str]] = Counter(
            (each.message.run, word(each.outcome).partition(" ")[0]) for each in settled
        )
        for run, incarnation, message_id, *counts in cursors.values():
            assert incarnation == 1
            expected = [counted[run, end] for end in ("applied", "duplicate", "rejected")]
            assert counts == expected
            last = [each.message.id for each in settled if each.message.run == run]
            assert message_id == (last[-1] if last else "0-0")
        assert sum(sum(row[3:]) for row in cursors.values()) == len(settled)


@given(histories())
@settings(max_examples=25)
def test_commands_of_a_run_are_applied_in_the_order_of_its_stream(history: list[Act]) -> None:
    sent = messages(history)
    with partition() as file:
        settled = file.apply_all(sent, 7)
        for run in {message.run for message in sent}:
            stream = [message.id for message in sent if message.run == run]
            ended = [each.message.id for each in settled if each.message.run == run]
            assert ended == stream[: len(ended)]
        for run, *event in sorted(file.tables()["events"], key=lambda row: row[:3]):
            assert (run, event[8]) in {(message.run, message.id) for message in sent}
        by_place: dict[tuple[str, int], list[tuple[int, tuple[int, int]]]] = {}
        for run, segment, revision, *rest in file.tables()["events"]:
            by_place.setdefault((run, segment), []).append((revision, order_of(rest[6])))
        for made in by_place.values():
            ids = [message_id for _, message_id in sorted(made)]
            assert ids == sorted(ids)


@given(histories(), st.sampled_from([1, 7, None]))
@settings(max_examples=30)
def test_revisions_have_no_hole_and_no_repeat(history: list[Act], size: int | None) -> None:
    with partition() as file:
        file.apply_all(messages(history), size)
        revisions: dict[tuple[int, int], list[int]] = {}
        for key, segment, revision in file.rows("SELECT run_key, segment, revision FROM events"):
            revisions.setdefault((key, segment), []).append(revision)
        heads = dict(file.rows("SELECT run_key, revision FROM runs"))
        graves = dict(file.rows("SELECT run_key, revision FROM tombstones"))
        assert not heads.keys() & graves.keys()
        for key, head in heads.items():
            assert sorted(revisions.pop((key, 0))) == list(range(1, head + 1))
        for key, revision in graves.items():
            assert revisions.pop((key, 0)) == [revision]
        for key, segment, head in file.rows("SELECT run_key, segment, revision FROM segments"):
            # A segment begins at 1 with its row: its first event is the second revision.
            assert sorted(revisions.pop((key, segment), [])) == list(range(2, head + 1))
        assert revisions == {}


@given(histories(max_size=60))
@settings(max_examples=30)
def test_batches_of_any_size_store_the_same(history: list[Act]) -> None:
    sent = messages(history)
    ended = []
    stored = []
    digests = []
    for size, reload in ((1, False), (1, True), (7, False), (200, False), (None, True)):
        with partition() as file:
            ended.append(sorted(said(file.apply_all(sent, size, reload=reload))))
            stored.append(file.tables())
            digests.append(file.digest())
    for words, tables, digest in zip(ended, stored, digests, strict=True):
        assert words == ended[0]
        assert tables == stored[0]
        assert digest == digests[0]


@given(histories())
@settings(max_examples=20)
def test_what_is_refused_or_repeated_changes_positions_only(history: list[Act]) -> None:
    with partition() as file:
        before = file.tables()
        for message in messages(history):
            settled = file.apply([message])
            after = file.tables()
            if settled and not isinstance(settled[0].outcome, Applied):
                note(f"{word(settled[0].outcome)}: {shown(message)}")
                refused = isinstance(settled[0].outcome, Rejected)
                names = (*ONLY_POSITIONS, "rejections") if refused else ONLY_POSITIONS
                assert without(after, *names) == without(before, *names)
                more = len(after["rejections"]) - len(before["rejections"])
                assert more == (1 if refused else 0)
            before = after


@given(histories(newer=False), st.sampled_from([1, 7, None]))
@settings(max_examples=25)
def test_what_is_read_again_counts_as_duplicates_only(history: list[Act], size: int | None) -> None:
    sent = messages([act for act in history if act.kind != "run.delete" and act.place != "far"])
    runs = sorted({message.run for message in sent})
    with partition() as file:
        file.apply_all(sent, size)
        before, digest = file.tables(), file.digest()
        file.apply((), restarts=runs)
        again = file.apply_all(sent, size)
        after = file.tables()
        assert file.digest() == digest
        assert {word(each.outcome) for each in again} <= {"duplicate"}
        assert without(after, "cursors") == without(before, "cursors")
        counts = {row[0]: row[3:] for row in before["cursors"]}
        sizes = Counter(message.run for message in sent)
        for run, incarnation, _, applied, duplicates, rejected in after["cursors"]:
            assert incarnation == 2
            assert (applied, rejected) == (counts[run][0], counts[run][2])
            assert duplicates == counts[run][1] + sizes[run]


@given(histories(max_size=60))
@settings(max_examples=30)
def test_the_core_alone_decides_as_the_stored_one_does(history: list[Act]) -> None:
    sent = messages(history)
    runs: dict[str, tuple[Run, Facts]] = {}
    waiting: set[str] = set()
    alone = []
    for message in sent:
        if message.run in waiting:
            continue
        run, facts = runs.setdefault(message.run, (Run(len(runs) + 1, message.run), Facts()))
        decoded = decode(message.run, message.id, message.fields)
        outcome = decide(run, decoded, arrival_ms(message.id), facts, DIALECTS)
        if word(outcome) == "held":
            waiting.add(message.run)
            continue
        alone.append((message.run, message.id, word(outcome)))
    with partition() as file:
        assert said(file.apply_all(sent, 1, reload=True)) == alone


@given(histories(max_size=60))
@settings(max_examples=30)
def test_sequences_are_judged_as_a_list_of_all_seen_would(history: list[Act]) -> None:
    sent = messages(history)
    with partition() as file:
        settled = file.apply_all(sent, 1)
        ledger = Ledger()
        for each in settled:
            new = ledger.see(each.message)
            note(f"{word(each.outcome)}: {shown(each.message)}")
            if new is False:
                end = word(each.outcome)
                assert end in ("duplicate", "rejected sequence_reused") or each.decoded.reason
            if word(each.outcome) == "rejected sequence_jump":
                assert ledger.jumped(each.message)
        tables = file.tables()
        names = {(run, no): name for run, no, name, *_ in tables["producers"]}
        last = {(run, name): top for run, _, name, top, *_ in tables["producers"]}
        assert last == ledger.last()
        gaps: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for run, no, first, final in tables["gaps"]:
            gaps.setdefault((run, names[run, no]), []).append((first, final))
        assert {pair: sorted(found) for pair, found in gaps.items()} == ledger.gaps()


class Killed(Exception):
    """What dies at a crash point."""


POINTS = ("decided", "begun", "archived", "inserted", "put", "written", "committed")


@given(histories(max_size=60), st.sampled_from([1, 7, None]))
@settings(max_examples=25)
def test_no_history_breaks_an_invariant_of_the_file(history: list[Act], size: int | None) -> None:
    with partition() as file:
        file.apply_all(messages(history), size)
        with standing(file.path) as connection:
            assert list(violations(connection)) == []


@given(histories(), st.lists(st.sampled_from([None, *POINTS]), min_size=1, max_size=6))
@settings(max_examples=25)
def test_dying_at_any_point_changes_nothing_in_the_end(
    history: list[Act], deaths: list[str | None]
) -> None:
    sent = messages(history)
    with partition() as file:
        file.apply_all(sent, 5)
        undisturbed = file.tables()
    with partition() as file:
        for number, start in enumerate(range(0, len(sent), 5)):
            fatal = deaths[number % len(deaths)]

            def die(point: str, fatal: str | None = fatal) -> None:
                if point == fatal:
                    raise Killed(point)

            batch = sent[start : start + 5]
            with suppress(Killed):
                file.apply(batch, hook=die)
            # Whatever was read is read again, and what was committed is passed over.
            file.apply(batch)
        assert file.tables() == undisturbed


@given(histories(max_size=60))
@settings(max_examples=25)
def test_runs_are_independent_of_each_other(history: list[Act]) -> None:
    sent = messages(history)
    with partition() as file:
        file.apply_all(sent, 7)
        together = file.tables()
    for run in {message.run for message in sent}:
        with partition() as file:
            file.apply_all([message for message in sent if message.run == run], 7)
            alone = file.tables()
        for table, rows in without(alone, "definitions").items():
            assert rows == [row for row in together[table] if row[0] == run]
