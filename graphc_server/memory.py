"""How much memory there is, and how much of it this process has: bytes."""

from __future__ import annotations

import os
from pathlib import Path

UNIT = 1024


def memory_of_machine() -> tuple[int, int]:
    """All, and what is free; zeros where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        return (page * os.sysconf("SC_PHYS_PAGES"), 0) if page else (0, 0)
    found = {name: int(rest.split()[0]) * UNIT for name, _, rest in (line.partition(":") for line in lines)}
    return found.get("MemTotal", 0), found.get("MemAvailable", 0)


def memory_of_process() -> int:
    """What lies in memory of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
