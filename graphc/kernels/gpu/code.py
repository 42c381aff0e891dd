"""The code of kernels for a device."""

from __future__ import annotations

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
    number = architecture.removeprefix("sm_")
    known = [each for each in TARGETS.values() if each.name == f"sm_{each.architecture}"]
    older = [each for each in known if number.isdigit() and each.architecture <= int(number)]
    if not older:
        raise BuildError(f"kernels cannot be generated for {architecture}: {known[0].name} and later can have them")
    return max(older, key=lambda each: each.architecture).name
