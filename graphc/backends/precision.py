"""How exactly matrices of float32 are multiplied: as float32, or in what a device is fastest with.

Backends read this from the environment when a device is opened, so it is one choice for a process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from graphc.errors import InputError

PRECISIONS: Mapping[str, Mapping[str, str]] = {
    "highest": {"GGML_VK_DISABLE_F16": "1", "NVIDIA_TF32_OVERRIDE": "0"},
    "high": {},
}
"""What each choice puts into the environment, where it is not set yet. Source: ggml-vulkan.cpp, cuBLAS's documentation."""

GIVES_UP: Mapping[str, str] = {
    "Vulkan": "products are computed in float16, about three digits",
    "CUDA": "products are computed in TF32, about three digits",
    "generated": "products are computed of float16, about three digits",
    "CPU": "products are computed of bfloat16, two to three digits",
}
"""What "high" costs, by backend; on others it changes nothing, and on the CPU only where the processor multiplies bfloat16."""

_chosen = "highest"
_opened: set[str] = set()


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how models that are loaded from now on multiply matrices of float32: "highest" (the default), as float32, with
    PyTorch's numbers to rounding; "high", as fast as the device can, in float16, TF32 or bfloat16 inside (`GIVES_UP`). On the CPU
    that needs our own code and a processor with AVX512_BF16; else the choice changes nothing there.

    Raises InputError for another word, or once a device was opened with the other choice.
    """
    global _chosen
    if precision not in PRECISIONS:
        raise InputError(f"no precision {precision!r}; there is {', '.join(PRECISIONS)}")
    if _opened - {precision}:
        raise InputError(f"a device was opened with the precision {_chosen} before; it stays so until the process ends")
    _chosen = precision


def settle_precision() -> None:
    """Tell the backends, before a device is opened."""
    _opened.add(_chosen)
    for name, value in PRECISIONS[_chosen].items():
        os.environ.setdefault(name, value)


def is_exact() -> bool:
    """True if the choice is "highest"."""
    return _chosen == "highest"


def given_up(backend: str) -> str:
    """What products on a backend, by ggml's name of it, lack for float32's precision; empty if nothing."""
    return GIVES_UP.get(backend, "") if _chosen == "high" else ""
