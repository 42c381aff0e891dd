"""Where a model runs: on which devices, with how many threads and how much memory. Read from what a person writes."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeAlias

from graphc.errors import InputError
from graphc.records import dataclass

Limit: TypeAlias = int | None
Memory: TypeAlias = int | str | Sequence[int | str | None] | None
"""Limits as a person gives them: bytes or a text like "4GiB", for one device or for several, which a text may have commas
between; "auto" and None stand for what is free."""

UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


@dataclass(frozen=True)
class Place:
    """The device, or several with commas between; threads of the CPU, None for all processors; what devices may use of their
    memory; the most runs at once, None for as many as threads; a folder of kernels; whether those in an engine are trusted; and
    inputs that stay the same from run to run. `graphc.load` says what each means."""

    device: str = "cpu"
    threads: int | None = None
    memory: Memory = None
    contexts: int | None = None
    kernels: str | os.PathLike[str] | None = None
    trust_kernels: bool = False
    steady: Collection[str] = ()

    @property
    def folder(self) -> Path | None:
        """The folder of kernels."""
        return None if self.kernels is None else Path(self.kernels)

    @property
    def only_cpu(self) -> bool:
        """True if no other device is named."""
        return set(split_devices(self.device)) <= {"cpu"}


CPU = Place()


def split_devices(device: str) -> list[str]:
    """The names of several devices, which have commas between them. Raises InputError for what is no text."""
    if not isinstance(device, str):
        raise InputError(f"device is {device!r}, must be a name such as cpu or vulkan0")
    return [each.strip().lower() for each in device.split(",") if each.strip()]


def names_cpu(device: str) -> bool:
    """True if the CPU is one of several devices that are named, so that it gets a part of the model."""
    names = split_devices(device)
    return "cpu" in names and len(names) > 1


def memory_limits(memory: Memory) -> list[Limit]:
    """One limit for each of the first devices. Raises InputError for what is not a number of bytes."""
    each = memory.split(",") if isinstance(memory, str) else memory if isinstance(memory, Sequence) else [memory]
    return [_limit(one) for one in each] if memory is not None else []


def _limit(given: int | str | None) -> Limit:
    text = str("auto" if given is None else given).strip().lower()
    if text == "auto":
        return None
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,3})?) ?([a-z]*)", text, re.ASCII)
    number, unit = match.groups() if match else ("0", "")
    if unit not in UNITS or not float(number):
        raise InputError(f"{given!r} is not an amount of memory; write bytes, or 512MiB, 4GiB, auto")
    return int(float(number) * UNITS[unit])
