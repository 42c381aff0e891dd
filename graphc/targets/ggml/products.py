"""Matrix products and convolutions on the CPU by graphc's own code instead of ggml's, several times as fast.

The code is `products.c` of the C++ project's fixed files: the same there and here. Which calls it takes is decided there too,
when a graph is built, by the tensors at hand; a program says what ggml would compute, on any device.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import ggml

from graphc.targets.kernels.native import find_compiler, ggml_include, load_library
from graphc.targets.kernels.render_c import FLAGS

FAST_FLAGS = tuple("-ffp-contract=fast" if flag == "-ffp-contract=off" else flag for flag in FLAGS)
"""A fused multiplication and addition rounds once: what these sums want."""

CONVOLUTIONS = ("ggml_conv_2d", "ggml_conv_2d_direct")
"""Calls with the same arguments; ggml computes them in different ways."""

REPLACED = frozenset({"ggml_mul_mat", *CONVOLUTIONS})
"""Calls that may be replaced."""


class Products:
    """The compiled code."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        for name in ("graphc_takes_mul_mat", "graphc_takes_conv_2d"):
            getattr(library, name).restype = ctypes.c_bool
        self._mul_mat = ctypes.cast(library.graphc_mul_mat, ggml.ggml_custom_op_t)
        self._conv_2d = ctypes.cast(library.graphc_conv_2d, ggml.ggml_custom_op_t)

    def call(self, context: Any, function: str, args: Sequence[Any], ne: Sequence[int], kept: list[Any]) -> Any:
        """The tensor that stands for a call of ggml's with a result of these sizes; None for a call that is left to ggml.
        What must live as long as the graph is added to `kept`."""
        if function == "ggml_mul_mat" and self.library.graphc_takes_mul_mat(args[0], args[1]):
            return self._custom(context, self._mul_mat, args[:2], ne, None)
        if function in CONVOLUTIONS and self.library.graphc_takes_conv_2d(args[0], args[1]):
            kept.append((ctypes.c_int * 6)(*args[2:]))
            return self._custom(context, self._conv_2d, args[:2], ne, ctypes.cast(kept[-1], ctypes.c_void_p))
        return None

    def _custom(self, context: Any, function: Any, args: Sequence[Any], ne: Sequence[int], userdata: Any) -> Any:
        tensors = (ctypes.POINTER(ggml.ggml_tensor) * 2)(*args)
        return ggml.ggml_custom_4d(context, ggml.GGML_TYPE_F32, *ne, tensors, 2, function, -1, userdata)


@functools.cache
def load_products() -> Products | None:
    """The code, compiled for this machine; None where there is no C compiler. Raises BuildError if it fails."""
    compiler, include = find_compiler(), ggml_include()
    if compiler is None or include is None:
        return None
    folder = files("graphc.targets.ggml").joinpath("project", "graphc")
    header, code = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("products.h", "products.c"))
    source = header.replace("#pragma once\n", "") + code.replace('#include "products.h"\n', "")
    return Products(load_library(source, compiler, include, FAST_FLAGS))
