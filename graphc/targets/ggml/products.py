"""Matrix products, convolutions and attention on the CPU by graphc's own code instead of ggml's, several times as fast.

The code is C, among the fixed files of the C++ project: the same there and here. Which calls it takes is decided there too,
when a graph is built, by the tensors at hand; a program says what ggml would compute, on any device.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import ggml

from graphc.targets.kernels.native import find_compiler, ggml_include, load_library
from graphc.targets.kernels.render_c import FLAGS

FAST_FLAGS = tuple("-ffp-contract=fast" if flag == "-ffp-contract=off" else flag for flag in FLAGS)
"""A fused multiplication and addition rounds once: what these sums want."""

FILES = ("products.h", "tiles.h", "products.c", "attention.c")

CONVOLUTIONS = ("ggml_conv_2d", "ggml_conv_2d_direct")
"""Calls with the same arguments; ggml computes them in different ways."""

SOFTMAXES = ("ggml_soft_max_ext", "ggml_soft_max")


class Products:
    """The compiled code. Its methods give the tensor that stands for a call of ggml's, or None if the call is left to ggml;
    what must live as long as the graph is added to `kept`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        for name in ("mul_mat", "conv_2d", "attention"):
            getattr(library, f"graphc_takes_{name}").restype = ctypes.c_bool
        self._functions = {
            name: ctypes.cast(getattr(library, f"graphc_{name}"), ggml.ggml_custom_op_t)
            for name in ("mul_mat", "conv_2d", "attention")
        }

    def product(self, context: Any, a: Any, b: Any, ne: Sequence[int]) -> Any:
        """For `ggml_mul_mat(a, b)`."""
        if not self.library.graphc_takes_mul_mat(a, b):
            return None
        return self._custom(context, "mul_mat", (a, b), ne)

    def convolution(self, context: Any, args: Sequence[Any], ne: Sequence[int], kept: list[Any]) -> Any:
        """For one of `CONVOLUTIONS`: kernel, image and six settings."""
        if not self.library.graphc_takes_conv_2d(args[0], args[1]):
            return None
        return self._custom(context, "conv_2d", args[:2], ne, (ctypes.c_int * 6)(*args[2:]), kept)

    def attention(
        self, context: Any, k: Any, q: Any, v: Any, mask: Any, factor: float, ne: Sequence[int], kept: list[Any]
    ) -> Any:
        """For `ggml_mul_mat(v, ggml_soft_max_ext(ggml_mul_mat(k, q), mask, factor, 0))`."""
        if not self.library.graphc_takes_attention(k, q, v, mask):
            return None
        args = (k, q, v) if mask is None else (k, q, v, mask)
        return self._custom(context, "attention", args, ne, ctypes.c_float(factor), kept)

    def _custom(
        self, context: Any, name: str, args: Sequence[Any], ne: Sequence[int], told: Any = None, kept: Any = None
    ) -> Any:
        tensors = (ctypes.POINTER(ggml.ggml_tensor) * len(args))(*args)
        userdata = None
        if told is not None:
            kept.append(told)
            userdata = ctypes.cast(ctypes.pointer(told), ctypes.c_void_p)
        function = self._functions[name]
        return ggml.ggml_custom_4d(context, ggml.GGML_TYPE_F32, *ne, tensors, len(args), function, -1, userdata)


@functools.cache
def load_products() -> Products | None:
    """The code, compiled for this machine; None where there is no C compiler. Raises BuildError if it fails."""
    compiler, include = find_compiler(), ggml_include()
    if compiler is None or include is None:
        return None
    return Products(load_library(source(), compiler, include, FAST_FLAGS))


def source() -> str:
    """The files as one."""
    folder = files("graphc.targets.ggml").joinpath("project", "graphc")
    text = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in FILES)
    return re.sub(r'#include "(products|tiles).h"\n|#pragma once\n', "", text)
