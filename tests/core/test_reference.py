"""An event's payload keeps a reference where the state of the same revision has the value."""

from __future__ import annotations

from writer.core.parts import Part
from writer.core.reference import refer

LONG = "x" * 100
OUTPUT = f'{{"index":1,"reply":"{LONG}"}}'
PARTS = [
    Part("/outputs/a", "value", OUTPUT),
    Part("/results/a/output", "value", OUTPUT),
    Part("/steps/0/reply", "value", f'"{LONG}"'),
    Part("/status", "value", '"running"'),
    Part("/gone", "value", None),
]


def test_a_member_that_the_state_has_becomes_a_reference_to_its_first_part() -> None:
    payload = {"outcome": "ok", "output": {"reply": LONG, "index": 1}}
    assert refer(payload, PARTS) == (
        {"outcome": "ok", "output": None},
        [('$."output"', "/outputs/a")],
    )


def test_members_of_members_are_looked_at() -> None:
    payload = {"output": {"reply": LONG, "more": True}}
    assert refer(payload, PARTS) == (
        {"output": {"reply": None, "more": True}},
        [('$."output"."reply"', "/steps/0/reply")],
    )


def test_a_short_value_stays_where_it_is() -> None:
    assert refer({"status": "running"}, PARTS) == ({"status": "running"}, [])


def test_a_key_that_a_path_can_not_name_stays_with_all_beneath_it() -> None:
    payload = {'a"b': {"output": {"reply": LONG, "index": 1}}, "é": LONG, "": LONG, "\0": LONG}
    assert refer(payload, PARTS) == (payload, [])


def test_values_that_only_python_calls_equal_are_not() -> None:
    parts = [Part("/n", "value", "[" + "1," * 40 + "1]")]
    assert refer({"n": [1.0] * 41}, parts) == ({"n": [1.0] * 41}, [])
    assert refer({"n": [1] * 41}, parts) == ({"n": None}, [('$."n"', "/n")])
