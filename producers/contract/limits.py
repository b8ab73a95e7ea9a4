"""Every limit of the wire contract, with its unit in its name.

The writer refuses by these numbers and by nothing else: they belong to the contract version, so the
same messages give the same database everywhere. Settings may only bind our own producers tighter.
"""

from __future__ import annotations

from typing import Final

CONTRACT_VERSION: Final = 1
CONTRACT_VERSION_MAX: Final = 999

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
ENTRY_BYTES_MAX: Final = 4 * 1024 * 1024
SESSION_EVENT_BYTES_MAX: Final = 1024 * 1024
UPDATE_DATA_BYTES_MAX: Final = 64 * 1024
NESTING_DEPTH_MAX: Final = 128

PATH_STEPS_MAX: Final = 32
"""Of a patch. A value may nest as deep as a body below it, so no state goes beyond what JSON tools
take.
"""

REFUSED_BYTES_MAX: Final = 32 * 1024 * 1024
"""A refused message above this keeps its head and the SHA-256 of the whole, not its bytes."""
REFUSED_HEAD_BYTES: Final = 4 * 1024

CURRENT_UPDATES_MAX: Final = 1_024
SESSION_EVENTS_PER_COMMAND_MAX: Final = 10_000
TAGS_MAX: Final = 64
EFFECT_KINDS_MAX: Final = 16

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**64 - 1
COUNTER_MAX: Final = 2**53 - 1
"""Sequences, counts and times: what every JSON parser keeps exactly."""
SEQUENCE_JUMP_MAX: Final = 2**32

LEASE_MS_MAX: Final = 60 * 60 * 1_000
RETENTION_SECONDS_MAX: Final = 100 * 366 * 24 * 60 * 60

PARTITIONS_MAX: Final = 1_024

ID_CHARS_MAX: Final = 512
TITLE_CHARS_MAX: Final = 1_000
REASON_CHARS_MAX: Final = 2_000
RUN_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$"
PRODUCER_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$"
UPDATE_TYPE_PATTERN: Final = r"^[a-z][a-z0-9.-]{0,63}$"
UPDATE_KEY_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$"
EVENT_TYPE_PATTERN: Final = r"^[A-Za-z][A-Za-z0-9._:-]{0,127}$"
NO_NUL_PATTERN: Final = r"^[^\u0000]+$"
SHA256_PATTERN: Final = r"^[0-9a-f]{64}$"
