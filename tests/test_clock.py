from __future__ import annotations

import pytest

from writer import clock


@pytest.mark.parametrize(
    "ms, text",
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_323_045_678, "2026-01-02T03:04:05.678Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000ms"),
        (2**64, "18446744073709551616ms"),
    ],
)
def test_iso_is_utc_with_three_decimals_and_never_fails(ms: int, text: str) -> None:
    assert clock.iso(ms) == text


def test_sleeping_no_time_returns_at_once() -> None:
    before = clock.monotonic()
    clock.sleep(0)
    clock.sleep(-5)
    assert clock.monotonic() - before < 1
