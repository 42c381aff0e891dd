"""The code of kernels for a device."""

from __future__ import annotations

from collections.abc import Iterable

from graphc.errors import BuildError
from graphc.kernels.gpu.assemble import assembled
from graphc.kernels.gpu.compile import TARGETS, compile_ptx
from graphc.kernels.gpu.emulate import emulated_image


def code_for(device: str, architecture: str, text: str) -> list[bytes]:
    """What a device of this name and architecture (sm_90) takes for a text of the dialect, in the order in which it is offered:
    what NVIDIA's assembler makes for it alone, where there is one, and PTX. Raises BuildError."""
    if device.startswith("emulated"):
        return [emulated_image(text)]
    target = target_for(architecture, text)
    return images_of(compile_ptx(text, target), architecture, target)


def images_of(ptx: str, architecture: str, target: str) -> list[bytes]:
    """The same for PTX of a target."""
    found = assembled(ptx, architecture if TARGETS[target].portable else target)
    return [*([] if found is None else [found]), ptx.encode() + b"\0"]


OF_ONE_ARCHITECTURE = "wgmma_"
"""What functions are called that no later architecture has: a text with them is for a target that is not portable."""


def target_for(architecture: str, text: str = "") -> str:
    """The last target that can have a text and whose code an architecture runs. Raises BuildError if there is none."""
    alone = OF_ONE_ARCHITECTURE in text
    found = best_target(architecture, [each.name for each in TARGETS.values() if each.portable != alone])
    if not found:
        least = "sm_90 alone" if alone else f"{next(iter(TARGETS))} and later"
        raise BuildError(f"kernels cannot be generated for {architecture}: {least} can have them")
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
