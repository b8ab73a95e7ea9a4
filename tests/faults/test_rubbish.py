"""Bad messages among good ones: the good apply, each bad one is one rejection with its bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from producers.contract import limits
from producers.contract.envelope import Decoded, decode, encode, fields_of, seal
from tests.support import checks
from tests.support.scene import Scene, scene
from tests.support.wait import poll
from writer.streams.control import ask

Fields = dict[bytes, bytes]

ODDITIES = [
    b"NaN", b"Infinity", b"-1e400", b"1e400", b"18446744073709551616", b"-9223372036854775809",
    b"123456789012345678901234567890", b'"\\ud83d"', b'"\xed\xa0\xbd"', b"\xff\xfe", b"", b"null",
    b"[]", b"1", b'"text"', b"{", b"{}", b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 200 + b"1"
    + b"}" * 200, b"\xef\xbb\xbf{}", b'{"state":{"a":1,}}', b"{'state':{}}", b"\0",
]  # fmt: skip


def good_bodies(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """A command that decodes. Its ids are long, so that no mutant of it hits another's."""
    unique = f"{chance.getrandbits(96):024x}"
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("run.snapshot", {"state": {"status": "running", "n": 1, "id": unique}}),
        ("run.update", {"type": "progress", "key": unique, "data": {"x": [1.5, None]}}),
        ("run.annotate", {"title": unique, "tags": {"a": "b"}}),
        ("session.entry", {"entry": {"id": unique, "text": "häß 🐢", "deep": [[[{}]]]}}),
        ("run.create", {"workflow": unique, "state": {"status": "running"}}),
        ("lease.renew", {"lease_ms": 1000}),
    ]
    return chance.choice(bodies)


def mutated(chance: random.Random, number: int) -> Fields:
    """A good message of which some bytes, or a whole field, were changed."""
    kind, body = good_bodies(chance)
    fields = encode(kind, body, producer=f"mutant-{number}", seq=1)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        name = chance.choice(list(fields))
        way = chance.randrange(6)
        value = bytearray(fields[name])
        if way == 0 and value:
            value[chance.randrange(len(value))] ^= 1 << chance.randrange(8)
        elif way == 1 and value:
            del value[chance.randrange(len(value)) :]
        elif way == 2:
            value[chance.randrange(len(value) + 1) : 0] = chance.randbytes(chance.randint(1, 8))
        elif way == 3:
            value = bytearray(chance.choice(ODDITIES))
        elif way == 4 and len(fields) > 1:
            del fields[name]
            continue
        else:
            fields[chance.randbytes(3)] = chance.randbytes(4)
        fields[name] = bytes(value)
    return fields


def generated(chance: random.Random, number: int) -> Fields:
    """A message that nobody of ours would send."""
    fields: Fields = {}
    known = [b"v", b"kind", b"producer", b"seq", b"body", b"auth", b"reply", b"trace"]
    kinds = [b"run.create", b"run.snapshot", b"session.events", b"lease.claim", b"run.rename", b""]
    for name in known:
        if chance.random() < 0.15:
            continue
        choices: dict[bytes, Sequence[bytes]] = {
            b"v": (b"1", b"1", b"1", b"0", b"1.0", b"-1", b"01", b"1000", b"x"),
            b"kind": kinds,
            b"producer": (b"gen-%d" % number, b"", b"\xff", b"a b", b"x" * 200),
            b"seq": (b"1", b"0", b"-1", b"1.0", b"9007199254740993", b"x", b"1"),
            b"body": (*ODDITIES, random_json(chance)),
            b"auth": ODDITIES,
            b"reply": (b"r", b"\xff", b"r" * 300, b"\n"),
            b"trace": (b"t", b"\xff", b""),
        }
        value = chance.choice(choices[name])
        fields[name] = value
    if not fields or chance.random() < 0.1:
        fields[chance.randbytes(chance.randint(1, 20))] = chance.randbytes(5)
    return fields


def random_json(chance: random.Random) -> bytes:
    """A JSON object with names of ours and values of any kind."""
    names = ["state", "event", "entry", "type", "key", "data", "events", "owner_id", "x", "kind"]
    values: list[Any] = [1, -1.5, None, True, "", "x", [], {}, [1, [2]], {"a": {"b": 1}}, 2**63]
    return orjson.dumps({chance.choice(names): chance.choice(values) for _ in range(4)})


def messages(chance: random.Random, count: int) -> Iterator[Fields]:
    """Mutants and generated ones, in turn."""
    for number in range(count):
        yield mutated(chance, number)
        yield generated(chance, number)


class Sent:
    """The bad messages, and what the contract says of each."""

    def __init__(self, on: Scene) -> None:
        self._on = on
        self._newer = 0
        self.decoded: dict[tuple[str, str], tuple[Decoded, Fields]] = {}
        self.runs: set[str] = set()

    def send(self, batch: list[tuple[str, Fields]]) -> None:
        """Send them in one pipeline; one that claims a newer version gets a run of its own."""
        keys = self._on.traffic.keys
        pipeline = self._on.client.pipeline(transaction=False)
        placed = []
        for wanted, fields in batch:
            run = wanted
            if decode(run, "1-1", seal(fields)).newer_version is not None:
                self._newer += 1
                run = f"newer-{self._newer}"
            placed.append((run, fields))
            sent: dict[Any, Any] = dict(fields)
            pipeline.xadd(keys.run(0, run), sent)
            pipeline.zadd(keys.ready(0), {run: 0}, lt=True)
        for (run, fields), reply in zip(placed, pipeline.execute()[::2], strict=True):
            sealed = seal(fields)
            self.decoded[run, reply.decode()] = decode(run, reply.decode(), sealed), sealed
            self.runs.add(run)

    def of(self, kind: str) -> set[tuple[str, str]]:
        """Places of those that are `bad`, `newer` or `valid`."""
        return {
            place
            for place, (decoded, _) in self.decoded.items()
            if kind == ("bad" if decoded.reason else "newer" if decoded.newer_version else "valid")
        }


@pytest.mark.slow
@pytest.mark.parametrize("count", [10_000, pytest.param(250_000, marks=pytest.mark.soak)])
def test_rubbish_among_good_messages(tmp_path: Path, count: int) -> None:
    chance = random.Random(count)
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        sent = Sent(on)
        batch: list[tuple[str, Fields]] = []
        for fields in messages(chance, count):
            batch.append((chance.choice(on.traffic.runs), fields))
            if len(batch) == 400:
                sent.send(batch)
                batch.clear()
                on.send(60)
        on.send(60)
        newer = sent.of("newer")
        patience_s = 120 + count / 100
        poll(
            lambda: checks.waiting(on.client) == len(newer), patience_s, "all but the newer to end"
        )
        on.is_well()
        on.was_quiet()
        quarantined = "SELECT run_id FROM quarantines JOIN cursors USING (run_key)"
        # One that waits may not have been read yet.
        poll(
            lambda: {run for (run,) in checks.rows(on.data, quarantined)} == {r for r, _ in newer},
            message="the newer to be held",
        )
        for run, message_id in newer:
            ask(on.client, on.traffic.keys, 0, "skip", run, (1, message_id), "the test")
        poll(lambda: checks.waiting(on.client) == 0, patience_s, "the newer to be skipped")
        on.stops()
    checks.accounted(on.data, on.traffic)
    check_rejections(on, sent)
    checks.check_all(on.data)
    valid = sent.of("valid")
    assert checks.settled(on.data) == on.traffic.total + len(sent.decoded)
    print(f"{len(sent.of('bad'))} bad, {len(valid)} valid, {len(newer)} of a newer version")
    assert min(len(valid), len(newer)) > 10
    assert len(sent.of("bad")) > count


def check_rejections(on: Scene, sent: Sent) -> None:
    """Each bad message is one rejection, with the contract's reason and all its bytes."""
    found: dict[tuple[str, str], list[tuple[str, str | None, bytes]]] = {}
    for run, message_id, *rest in checks.rows(
        on.data,
        "SELECT run_id, rejections.message_id, reason, fields, fields_sha256 FROM rejections "
        "JOIN cursors USING (run_key)",
    ):
        found.setdefault((run, message_id), []).append(tuple(rest))
    used: set[tuple[str, str | None, int | None]] = set()
    for place, (decoded, fields) in sent.decoded.items():
        known = (place[0], decoded.producer, decoded.seq)
        repeated = decoded.seq is not None and known in used
        used.add(known)
        if decoded.reason is None and decoded.newer_version is None:
            continue
        if repeated and place not in found:
            # A mutant of another's producer: its sequence was settled, so it is a duplicate.
            continue
        ((reason, kept, digest),) = found[place]
        assert reason == ("skipped" if decoded.reason is None else decoded.reason.value)
        assert kept is not None
        assert fields_of(orjson.loads(kept)) == fields
        assert digest == digest_of(fields)


def digest_of(fields: Fields) -> bytes:
    """SHA-256 of names and values, each with its length, by name."""
    digest = sha256()
    for name, value in sorted(fields.items()):
        digest.update(b"%d:%b%d:%b" % (len(name), name, len(value), value))
    return digest.digest()


def test_a_message_over_every_limit_keeps_its_head(tmp_path: Path) -> None:
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        fields = encode("run.update", {}, producer="big", seq=1)
        fields[b"body"] = b"x" * (limits.REFUSED_BYTES_MAX + 1)
        sent = Sent(on)
        sent.send([(on.traffic.runs[0], fields)])
        on.send(60)
        on.all_is_well()
        ((reason, kept, head, size),) = checks.rows(
            on.data, "SELECT reason, fields, head, fields_bytes FROM rejections"
        )
        assert (reason, kept) == ("body_too_large", None)
        assert len(orjson.loads(head)["body"]) == limits.REFUSED_HEAD_BYTES
        assert size > limits.REFUSED_BYTES_MAX
