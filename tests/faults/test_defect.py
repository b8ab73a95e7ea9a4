"""A command that fails for a reason of ours stops its run, and no other; nothing of it is lost.

The defect is a trigger in the file: it breaks the commit of whatever carries the poison.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from producers.contract.envelope import encode
from tests.support import checks
from tests.support.scene import Scene, scene
from tests.support.wait import poll
from writer.streams.control import ask

TRIGGER = """
CREATE TRIGGER poison BEFORE INSERT ON updates WHEN NEW.data LIKE '%poison%'
BEGIN SELECT RAISE(ABORT, 'poison'); END
"""


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Scene]:
    """A running daemon that has the defect, and whose runs are all open."""
    with scene(tmp_path) as made:
        made.start()
        made.opens()
        made.stops()
        alter(made, TRIGGER)
        made.start()
        yield made


def alter(on: Scene, statement: str) -> None:
    """Change the file behind the daemon's back."""
    with closing(apsw.Connection(str(on.data / "p00.sqlite"))) as connection:
        connection.set_busy_timeout(60_000)
        connection.execute(statement)


def poison(on: Scene, run: str) -> str:
    """Send a command that can not be committed; returns its message id."""
    body = {"type": "progress", "key": "k", "data": {"text": "poison"}}
    fields = encode("run.update", body, producer="poisoner", seq=1)
    sent: bytes = on.client.xadd(on.traffic.keys.run(0, run), fields)
    on.client.zadd(on.traffic.keys.ready(0), {run: 0})
    return sent.decode()


def held(on: Scene) -> dict[str, str]:
    """Runs that wait, and at which message."""
    return dict(
        checks.rows(
            on.data,
            "SELECT run_id, q.message_id FROM quarantines q JOIN cursors USING (run_key)",
        )
    )


def others_go_on(on: Scene, stopped: set[str]) -> None:
    """All that other runs got is applied; of the stopped ones nothing is."""
    on.send(200)

    def settled() -> bool:
        applied = checks.sequences(on.data)
        return all(
            set(acked) <= applied[run, "traffic"]
            for run, acked in on.traffic.acked.items()
            if run not in stopped
        )

    poll(settled, message="the other runs to go on")


def test_one_run_stops_and_the_others_go_on(on: Scene) -> None:
    first, second = on.traffic.runs[3], on.traffic.runs[11]
    on.send(100)
    places = {run: poison(on, run) for run in (first, second)}
    on.send(100)
    poll(lambda: held(on) == places, message="the runs to be held")
    others_go_on(on, set(places))
    on.is_well()
    on.was_quiet()

    # A restart changes nothing of it, and neither does a death in between.
    for end in (on.stops, on.dies):
        end()
        on.start()
        others_go_on(on, set(places))
        assert held(on) == places

    alter(on, "DROP TRIGGER poison")
    for run, message_id in places.items():
        ask(on.client, on.traffic.keys, 0, "resume", run, (1, message_id), "the test")
    on.all_is_well()
    applied = checks.sequences(on.data)
    assert {run for run, producer in applied if producer == "poisoner"} == {first, second}


def test_a_skipped_command_is_a_rejection_with_its_bytes(on: Scene) -> None:
    run = on.traffic.runs[0]
    message_id = poison(on, run)
    on.send(100)
    poll(lambda: held(on) == {run: message_id}, message="the run to be held")
    ask(on.client, on.traffic.keys, 0, "skip", run, (1, message_id), "the test")
    on.all_is_well()
    ((reason, fields),) = checks.rows(on.data, "SELECT reason, fields FROM rejections")
    assert reason == "skipped"
    assert "poison" in fields


def test_an_act_that_names_another_place_is_refused(on: Scene) -> None:
    run = on.traffic.runs[0]
    message_id = poison(on, run)
    poll(lambda: held(on) == {run: message_id}, message="the run to be held")
    for place in ((2, message_id), (1, "1-1")):
        ask(on.client, on.traffic.keys, 0, "skip", run, place, "the test")
    poll(
        lambda: (
            checks.rows(on.data, "SELECT count(*) FROM acts WHERE outcome = 'refused'") == [(2,)]
        ),
        message="the acts to be refused",
    )
    assert held(on) == {run: message_id}
