"""`graphc devices`: where a model can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from graphc.commands import options
from graphc.commands.output import bytes_text, printable, say, say_json, say_table

if TYPE_CHECKING:
    from graphc.hardware.suits import Device

HINTS = {"LLAMAFILE": "ggml's products, which count where there is no C compiler, are about twice as fast with it"}
"""Features that matter and that a build of ggml may lack; a wheel's is as it is, and our own code does what they would."""


TOOLCHAINS_SHOWN = {"nvcc": "nvcc of CUDA's toolkit", "clang": "clang of the package ziglang"}
NO_TOOLCHAIN = "nothing that is here; pip install ziglang, or --trust-kernels with engines of graphc compile --gpu"


def devices(as_json: options.Json = False) -> None:
    """List ggml's devices, their memory, and what their backend was built with."""
    from graphc.backends.generated import REGISTRY
    from graphc.ggml_library import loaded
    from graphc.kernels.gpu.compile import find_toolchain
    from graphc.runtime.devices import absent, ggml_version
    from graphc.runtime.devices import devices as list_devices

    found = list_devices()
    if as_json:
        say_json({"ggml": ggml_version(), "devices": [asdict(each) for each in found]})
        return
    say(f"ggml {ggml_version()}")
    say()
    rows = [
        (each.name, each.kind, bytes_text(each.memory_free), bytes_text(each.memory_total), each.description)
        for each in found
    ]
    say_table(("device", "kind", "free", "memory", "description"), rows, "llrr")
    for name, why in absent().items():
        say(f"no {name}: {printable(why)}")
    if any(each.backend == REGISTRY for each in found):
        say(f"generated kernels are compiled by: {TOOLCHAINS_SHOWN.get(find_toolchain(), NO_TOOLCHAIN)}")
    for each in found:
        if each.features:
            on = [name if value == "1" else f"{name}={value}" for name, value in each.features.items() if value != "0"]
            say()
            say(f"{printable(each.name)} features: {' '.join(map(printable, on))}")
        if each.kind == "CPU":
            for name, hint in HINTS.items() if loaded.own is None else ():
                say(f"built with {name}: {'yes' if each.features.get(name, '0') != '0' else f'no; {hint}'}")
            say(f"code for float32 on the CPU: {compiled_here()}")
    say_unused(found)


def say_unused(devices: Sequence[Device]) -> None:
    """Name the GPUs that could compute and do not."""
    from graphc.hardware.advice import diagnose
    from graphc.hardware.machine import ThisMachine

    idle = diagnose(ThisMachine(), devices).idle
    if idle:
        say()
        say(f"not used: {', '.join(printable(each.gpu.name) for each in idle)}; `graphc doctor` says how to use it")


def compiled_here() -> str:
    """Who computes what matters most on the CPU."""
    from graphc.ggml_library import loaded
    from graphc.kernels.c.compiler import find_compiler

    if loaded.own is not None:
        return f"graphc's own, as the wheel has it ({loaded.variant})"
    compiler = find_compiler()
    return f"graphc's own ({compiler[0]})" if compiler else "ggml's; with a C compiler, faster code of graphc's own"
