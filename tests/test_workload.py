"""The workload is the same everywhere, and its typical run is what it says it is."""

from __future__ import annotations

from collections import Counter

from tests.support import workload


def test_every_machine_makes_the_same_values() -> None:
    known = "f6a6a12a874840efe3424775033b8222f8cd0630982ebec976d92c3f095cc3fc"
    assert workload.digest() == known


def test_a_typical_run_has_483_operations() -> None:
    counted = Counter(op.name for op in workload.typical_ops("run"))
    assert counted == {
        "init": 1,
        "bind": 1,
        "events": 200,
        "entry": 200,
        "update": 40,
        "capture": 1,
        "snapshot": 40,
    }


def test_each_operation_is_a_command_of_ours() -> None:
    kinds = {workload.command(op).kind for op in workload.typical_ops("run")}
    assert kinds == {
        "run.create",
        "session.bind",
        "session.events",
        "session.entry",
        "run.update",
        "session.capture",
        "run.snapshot",
    }
