"""No kind of command has become dearer by half since its cost was written down."""

from __future__ import annotations

import pytest

from tests.bench.guard import LOSS, Cost, count_calls, kept, measure, works
from tests.bench.writing import as_read

TRIES = 8
HINT = "python -m tests.bench.guard tells more; with --write it keeps the new figures"


@pytest.fixture(scope="module")
def costs() -> dict[str, Cost]:
    """The least that each work cost in a few tries, the later ones only if the first looks bad."""
    found = measure()
    for _ in range(TRIES - 1):
        if not any(cost.time > kept()[name].time * LOSS for name, cost in found.items()):
            break
        again = measure()
        found = {name: min(cost, again[name]) for name, cost in found.items()}
    return found


@pytest.mark.parametrize("work", sorted(kept()))
def test_a_command_has_not_become_dearer(work: str, costs: dict[str, Cost]) -> None:
    now, then = costs[work], kept()[work]
    assert now.calls <= then.calls * LOSS, f"{now.calls:.0f} calls, were {then.calls:.0f}: {HINT}"
    assert now.time <= then.time * LOSS, f"{now.time:.1f}, was {then.time:.1f}: {HINT}"


def test_every_work_has_a_figure() -> None:
    assert works().keys() == kept().keys()


def test_calls_do_not_depend_on_chance() -> None:
    read = as_read(works()["entry"])
    assert count_calls(read) == pytest.approx(count_calls(read), rel=0.01)
