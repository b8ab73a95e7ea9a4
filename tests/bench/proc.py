"""What a process has used, as the kernel tells."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Processor seconds since it was started."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / TICKS


def memory_bytes(pid: int) -> tuple[int, int]:
    """Resident memory now, and the most that it ever was."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    named = dict(line.split(":", 1) for line in lines)
    return int(named["VmRSS"].split()[0]) * 1024, int(named["VmHWM"].split()[0]) * 1024
