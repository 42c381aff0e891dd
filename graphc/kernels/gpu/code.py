"""The code of kernels for a device."""

from __future__ import annotations

from collections.abc import Iterable

from graphc.errors import BuildError
from graphc.kernels.gpu.compile import TARGETS, compile_ptx
from graphc.kernels.gpu.emulate import emulated_image


def code_for(device: str, architecture: str, text: str) -> bytes:
    """What a device of this name and architecture (sm_90) takes for a text of the dialect. Raises BuildError."""
    if device.startswith("emulated"):
        return emulated_image(text)
    return compile_ptx(text, target_for(architecture)).encode() + b"\0"


def target_for(architecture: str) -> str:
    """The last target whose code an architecture runs, as every later one does. Raises BuildError if it is older than all."""
    known = [each.name for each in TARGETS.values() if each.portable]
    found = best_target(architecture, known)
    if not found:
        raise BuildError(f"kernels cannot be generated for {architecture}: {known[0]} and later can have them")
    return found


def best_target(architecture: str, targets: Iterable[str]) -> str:
    """The target whose code suits an architecture best, of those whose code it runs; empty if it runs none."""
    number = architecture.removeprefix("sm_")
    known = [TARGETS[each] for each in targets if each in TARGETS and number.isdigit()]
    runs = [
        each
        for each in known
        if each.architecture == int(number) or (each.portable and each.architecture < int(number))
    ]
    return max(runs, key=lambda each: (each.architecture, each.name)).name if runs else ""
