"""Names of Redis keys, and which partition a run belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from producers.contract.limits import PARTITIONS_MAX

DEFAULT_PREFIX = "sw"


def partition_of(run: str, partitions: int) -> int:
    """The partition of a run: CRC-32 (zlib) of its UTF-8 id, modulo the number of partitions."""
    return crc32(run.encode()) % partitions


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names under one prefix. The hash tag `{p}` keeps a partition in one cluster slot."""

    prefix: str = DEFAULT_PREFIX

    @property
    def meta(self) -> str:
        """Hash: `partitions` and `contract_version`, written by the first writer."""
        return f"{self.prefix}:meta"

    def run(self, partition: int, run: str) -> str:
        """Stream of a run's messages."""
        return f"{self.prefix}:{{{partition}}}:run:{run}"

    def run_prefix(self, partition: int) -> str:
        """What every run's stream of a partition begins with."""
        return f"{self.prefix}:{{{partition}}}:run:"

    def ready(self, partition: int) -> str:
        """Sorted set of runs with something to read."""
        return f"{self.prefix}:{{{partition}}}:ready"

    def control(self, partition: int) -> str:
        """Stream of operator acts."""
        return f"{self.prefix}:{{{partition}}}:control"

    def owner(self, partition: int) -> str:
        """String with a TTL: who writes the partition."""
        return f"{self.prefix}:{{{partition}}}:owner"

    def mark(self, partition: int) -> str:
        """Hash: highest settled `commit_seq`, the file's `lineage`, `epoch`."""
        return f"{self.prefix}:{{{partition}}}:mark"

    def reply(self, partition: int, reply: str) -> str:
        """Stream of receipts for one producer."""
        return f"{self.prefix}:{{{partition}}}:reply:{reply}"


def check_partitions(partitions: int) -> int:
    """Return `partitions` if it is 1 to 1,024, else raise ValueError."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise ValueError(f"partitions must be 1 to {PARTITIONS_MAX}, not {partitions}")
    return partitions
