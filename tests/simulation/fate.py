"""Which faults a schedule has, and how often: drawn from its seed, each on or off by itself."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

KINDS = {
    "run.create": 1,
    "run.snapshot": 6,
    "run.patch": 6,
    "run.update": 6,
    "run.annotate": 2,
    "run.resume": 1,
    "run.reset": 2,
    "run.interrupt": 1,
    "run.delete": 1,
    "session.bind": 2,
    "session.entry": 4,
    "session.events": 3,
    "session.capture": 1,
    "lease.claim": 3,
    "lease.renew": 1,
    "lease.release": 1,
}
RARE = ("run.delete", "run.interrupt", "lease.claim", "session.capture")


@dataclass(frozen=True)
class Fate:
    """A schedule's options. Rates are per point, per message or per turn."""

    turns: int
    runs: int
    kinds: dict[str, int]
    # what hosts do
    damage: float
    newer: float
    duplicate: float
    lose: float
    unmarked: float
    # what happens to a writer
    crash: float
    torn: bool
    cut: float
    sqlite: float
    unexpected: float
    pause: float
    leave: float
    usurp: float
    ambush: float
    # what happens around it
    streams: float
    redis: float
    clocks: float
    restores: float
    expiry: float
    operators: float
    # how it is set up
    archive: bool
    unarchived: float
    batch_messages: int
    batch_bytes: int
    cache_bytes: int
    window_ms: int


def draw(random: Random) -> Fate:
    """A schedule's fate."""

    def some(*rates: float, odds: float = 0.5) -> float:
        return random.choice(rates) if random.random() < odds else 0.0

    kinds = {
        kind: weight * random.choice([1, 1, 2, 4])
        for kind, weight in KINDS.items()
        if kind not in RARE or random.random() < 0.6
    }
    # What a writer without an archive settles is missed only if writers change around it.
    unarchived = some(0.3, 0.6, odds=0.2)
    restores = some(0.04, 0.1, odds=0.4) or (0.1 if unarchived else 0.0)
    return Fate(
        turns=random.choice([30, 60] if unarchived else [8, 15, 15, 30, 60]),
        runs=random.randint(1, 4),
        kinds=kinds,
        damage=some(0.1, 0.3),
        newer=some(0.02, 0.05, odds=0.3),
        duplicate=some(0.05, 0.3),
        lose=some(0.03, 0.15),
        unmarked=some(0.1, 0.5, odds=0.3),
        crash=some(0.003, 0.01, 0.03, odds=0.7),
        torn=random.random() < 0.5,
        cut=some(0.005, 0.02, odds=0.4),
        sqlite=some(0.005, 0.02, odds=0.4),
        unexpected=some(0.02, 0.05, odds=0.4),
        pause=some(0.02, 0.05, 0.1),
        leave=0.15 if unarchived else random.choice([0.04, 0.04, 0.15]),
        usurp=some(0.3, 0.6),
        ambush=some(0.3, 0.7, odds=0.6),
        streams=some(0.05, 0.15, 0.25, odds=0.6),
        redis=some(0.03, 0.08, odds=0.4),
        clocks=some(0.03, 0.1, odds=0.4),
        restores=restores,
        expiry=some(0.03, odds=0.15),
        operators=some(0.2, 0.5),
        archive=random.random() < 0.75,
        unarchived=unarchived,
        batch_messages=random.choice([1, 3, 20, 500]),
        batch_bytes=random.choice([1024, 4096, 4 * 1024 * 1024]),
        cache_bytes=random.choice([0, 64 * 1024 * 1024]),
        window_ms=random.choice([0, 0, 0, 3_000]),
    )
