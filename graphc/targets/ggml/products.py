"""Matrix products, convolutions and attention on the CPU by graphc's own code instead of ggml's, several times as fast.

The code is C, among the fixed files of the C++ project: the same there and here. Which calls it takes is decided there too,
when a graph is built, by the tensors at hand; a program says what ggml would compute, on any device.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from typing import Any

from graphc.errors import BuildError
from graphc.ggml_library import ggml
from graphc.once import once
from graphc.targets.kernels.compiled import load_library
from graphc.targets.kernels.native import find_compiler, ggml_include
from graphc.targets.kernels.render_c import FLAGS
from graphc.trace import LOG

FAST_FLAGS = tuple("-ffp-contract=fast" if flag == "-ffp-contract=off" else flag for flag in FLAGS)
"""A fused multiplication and addition rounds once: what these sums want."""

FILES = (
    "products.h",
    "tiles.h",
    "widen.h",
    "blocks.h",
    "rows.h",
    "products.c",
    "convolution.c",
    "winograd.c",
    "attention.c",
    "activations.c",
    "norm.c",
    "rotary.c",
    "copies.c",
)

CONVOLUTIONS = ("ggml_conv_2d", "ggml_conv_2d_direct")
"""Calls with the same arguments; ggml computes them in different ways."""

SOFTMAXES = ("ggml_soft_max_ext", "ggml_soft_max")

SUMS = ("mul_mat", "conv_2d", "winograd")
"""Functions that add tensors to their result on the way."""

RESULTS = {"takes": ctypes.c_bool, "prefers": ctypes.c_bool}
"""What functions return whose names begin so: the questions whether one of ours takes certain tensors, and is then faster."""

MOST_SOURCES = 6
"""Tensors that one of them reads at most."""


TURNS = (("ranges", ctypes.c_int * 16 * 16), ("finished", ctypes.c_int))
"""`graphc_turns`."""

TYPES = ("types", ctypes.c_void_p)
"""How ggml reads the type of a weight."""


class MatMulSettings(ctypes.Structure):
    """`graphc_mul_mat_settings`."""

    _fields_ = (("relu", ctypes.c_int), TYPES, *TURNS)


class ConvSettings(ctypes.Structure):
    """`graphc_conv_2d_settings`."""

    _fields_ = (*((name, ctypes.c_int) for name in ("s0", "s1", "p0", "p1", "d0", "d1", "relu")), TYPES, *TURNS)


class AttentionSettings(ctypes.Structure):
    """`graphc_attention_settings`."""

    _fields_ = (("factor", ctypes.c_float), ("merged", ctypes.c_int), *TURNS)


class GateSettings(ctypes.Structure):
    """`graphc_gate_settings`."""

    _fields_ = (("linear", ctypes.c_float), ("cubic", ctypes.c_float))


class NormSettings(ctypes.Structure):
    """`graphc_norm_settings`."""

    _fields_ = (("epsilon", ctypes.c_float), ("centered", ctypes.c_int))


class GroupNormSettings(ctypes.Structure):
    """`graphc_group_norm_settings`."""

    _fields_ = (("groups", ctypes.c_int), ("epsilon", ctypes.c_float), ("silu", ctypes.c_int))


class RotarySettings(ctypes.Structure):
    """`graphc_rotary_settings`."""

    _fields_ = (("interleaved", ctypes.c_int),)


class ConcatSettings(ctypes.Structure):
    """`graphc_concat_settings`."""

    _fields_ = (("axis", ctypes.c_int),)


class PadSettings(ctypes.Structure):
    """`graphc_pad_settings`."""

    _fields_ = (("before", ctypes.c_int * 4),)


@dataclass(frozen=True, eq=False)
class Own:
    """A function of ours with the tensors that it reads, and what it is told."""

    name: str
    args: tuple[Any, ...]
    told: Any = None


class Products:
    """The compiled code. Its methods give what stands for calls of ggml's, or None where they are left to ggml."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        for name in re.findall(r"F\((\w+)\)", source(("variants.h",))):
            getattr(library, f"graphc_{name}").restype = RESULTS.get(name.partition("_")[0])
        library.graphc_winograd_size.restype = ctypes.c_int64

    def product(self, a: Any, b: Any) -> Own | None:
        """For `ggml_mul_mat(a, b)`."""
        told = MatMulSettings(0, types_of(a))
        return Own("mul_mat", (a, b), told) if self.library.graphc_takes_mul_mat(a, b, ctypes.byref(told)) else None

    def convolution(self, name: str, kernel: Any, image: Any, *settings: int) -> Own | None:
        """For one of `CONVOLUTIONS`, by "conv_2d" or "winograd"."""
        told = ConvSettings(*settings, 0, types_of(kernel))
        takes = getattr(self.library, f"graphc_takes_{name}")
        return Own(name, (kernel, image), told) if takes(kernel, image, ctypes.byref(told)) else None

    def prefers_winograd(self, kernel: Any, image: Any, *settings: int) -> bool:
        """Whether that is taken for faster, where it can be."""
        return bool(self.library.graphc_prefers_winograd(kernel, image, ctypes.byref(ConvSettings(*settings))))

    def summed(self, own: Own, result: Any, more: Any) -> Own | None:
        """For the sum of what one of ours gives and a tensor that broadcasts to it."""
        if own.name not in SUMS or own.told.relu or len(own.args) == MOST_SOURCES:
            return None
        if not self.library.graphc_takes_sum(more, result, own.name != "mul_mat"):
            return None
        return Own(own.name, (*own.args, more), own.told)

    def norm(self, x: Any, epsilon: float, centered: bool) -> Own | None:
        """For `ggml_norm(x, epsilon)`, or `ggml_rms_norm`."""
        return Own("norm", (x,), NormSettings(epsilon, centered)) if self.library.graphc_takes_norm(x) else None

    def scaled(self, own: Own, result: Any, factor: Any, sources: int) -> Own | None:
        """For what a normalization of ours that reads so many tensors gives, times or plus a number for each element of a row."""
        if own.name != "norm" or len(own.args) != sources or not self.library.graphc_takes_factor(factor, result):
            return None
        return Own(own.name, (*own.args, factor), own.told)

    def attention(self, k: Any, q: Any, v: Any, mask: Any, factor: float) -> Own | None:
        """For `ggml_mul_mat(v, ggml_soft_max_ext(ggml_mul_mat(k, q), mask, factor, 0))`; v may also be a transposed view."""
        if not self.library.graphc_takes_attention(k, q, v, mask):
            return None
        return Own("attention", (k, q, v) if mask is None else (k, q, v, mask), AttentionSettings(factor, 0))

    def prefers_attention(self, q: Any) -> bool:
        """Whether it is taken for faster than two products with a softmax between, where it can be."""
        return bool(self.library.graphc_prefers_attention(q))

    def merged(self, own: Own) -> Own | None:
        """For the contiguous copy of attention's result with the axes of heads and queries exchanged."""
        return Own(own.name, own.args, AttentionSettings(own.told.factor, 1)) if own.name == "attention" else None

    def relu(self, x: Any, own: Own | None) -> Own | None:
        """For `ggml_relu(x)`, where one of ours gives x to it alone if there is one."""
        if own is None or own.name not in SUMS or own.told.relu:
            return Own("relu", (x,)) if self.library.graphc_takes_activation(x) else None
        told = type(own.told).from_buffer_copy(own.told)
        told.relu = 1
        return Own(own.name, own.args, told)

    def gelu(self, x: Any) -> Own | None:
        """For `ggml_gelu_erf(x)`."""
        return Own("gelu", (x,)) if self.library.graphc_takes_activation(x) else None

    def gate(self, x: Any, linear: float, cubic: float) -> Own | None:
        """For x times the sigmoid of `linear` x + `cubic` x^3."""
        return Own("gate", (x,), GateSettings(linear, cubic)) if self.library.graphc_takes_activation(x) else None

    def gated(self, own: Own, result: Any, other: Any) -> Own | None:
        """For what an activation of ours gives, times a tensor of the same shape."""
        if own.name not in ("gelu", "gate") or len(own.args) > 1 or not ggml.ggml_are_same_shape(result, other):
            return None
        return Own(own.name, (*own.args, other), own.told) if self.library.graphc_takes_activation(other) else None

    def group_norm(self, x: Any, scale: Any, shift: Any, groups: int, epsilon: float) -> Own | None:
        """For `ggml_group_norm(x, groups, epsilon)`, times a scale and plus a shift for each channel."""
        if not self.library.graphc_takes_group_norm(x, scale, shift, groups):
            return None
        return Own("group_norm", (x, scale, shift), GroupNormSettings(groups, epsilon, 0))

    def silu(self, own: Own) -> Own | None:
        """For `ggml_silu` of what one of ours gives."""
        if own.name != "group_norm":
            return None
        return Own(own.name, own.args, GroupNormSettings(own.told.groups, own.told.epsilon, 1))

    def rotary(self, x: Any, second: Any, first: Any, cos: Any, sin: Any) -> Own | None:
        """For x times `cos`, plus the concatenation of these parts of x times `sin`."""
        if not self.library.graphc_takes_rotary(x, second, first, cos, sin):
            return None
        return Own("rotary", (x, cos, sin), RotarySettings(second.contents.ne[0] == 1))

    def rest(self, own: Own, rest: Any) -> Own | None:
        """For the concatenation of rows that were turned and what stays as it is."""
        if own.name != "rotary" or len(own.args) > 3 or not self.library.graphc_takes_rest(rest, own.args[0]):
            return None
        return Own(own.name, (*own.args, rest), own.told)

    def concat(self, parts: Sequence[Any], owns: Sequence[Own | None], axis: int) -> Own | None:
        """For the concatenation of two tensors, or of those that make them if ours join them along the same axis."""
        if not all(map(self.library.graphc_takes_concat, parts)):
            return None
        within = [
            own.args if own and own.name == "concat" and own.told.axis == axis else (part,)
            for part, own in zip(parts, owns, strict=True)
        ]
        sources = tuple(chain(*within))
        return Own("concat", sources if len(sources) <= MOST_SOURCES else tuple(parts), ConcatSettings(axis))

    def turned(self, x: Any) -> Own | None:
        """For `ggml_cont(x)`, where x has another axis first than in memory."""
        return Own("turned", (x,)) if self.library.graphc_takes_turned(x) else None

    def pad(self, x: Any, before: Sequence[int]) -> Own | None:
        """For zeros around x, so many before it along each axis."""
        told = PadSettings((ctypes.c_int * 4)(*before))
        return Own("pad", (x,), told) if self.library.graphc_takes_pad(x) else None

    def tensor(self, context: Any, own: Own, ne: Sequence[int], threads: int) -> Any:
        """The tensor that it computes, of these sizes. What it is told must live as long as the graph."""
        args = own.args
        if own.name == "winograd":
            kernel, image, *sums = args
            size = self.library.graphc_winograd_size(kernel, image, ctypes.byref(own.told), threads)
            made = self._custom(context, "winograd_operands", (kernel, image), (size, 1, 1, 1), own.told)
            args = (image, made, kernel, *sums)
        return self._custom(context, own.name, args, ne, own.told)

    def _custom(self, context: Any, name: str, args: Sequence[Any], ne: Sequence[int], told: Any = None) -> Any:
        array = (ctypes.POINTER(ggml.ggml_tensor) * len(args))(*args)
        pointer = None if told is None else ctypes.cast(ctypes.pointer(told), ctypes.c_void_p)
        function = ctypes.cast(getattr(self.library, f"graphc_{name}"), ggml.ggml_custom_op_t)
        return ggml.ggml_custom_4d(context, ggml.GGML_TYPE_F32, *ne, array, len(args), function, -1, pointer)


def types_of(tensor: Any) -> ctypes.c_void_p:
    """`graphc_mul_mat_settings.types` for a weight."""
    return ctypes.cast(ggml.ggml_get_type_traits(tensor.contents.type), ctypes.c_void_p)


@once
def load_products() -> Products | None:
    """The code, compiled for this machine; None where there is no C compiler, or, with a warning, one that cannot do it."""
    compiler, include = find_compiler(), ggml_include()
    if compiler is None or include is None:
        return None
    try:
        return Products(load_library(source(), compiler, include, FAST_FLAGS))
    except BuildError as error:
        LOG.warning(f"ggml computes products and attention, several times slower: {error}")
        return None


def source(names: Sequence[str] = FILES) -> str:
    """The files as one."""
    folder = files("graphc.targets.ggml").joinpath("project", "graphc")
    text = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    headers = "|".join(name for name in FILES if name.endswith(".h"))
    return re.sub(rf'#include "({headers})"\n|#pragma once\n', "", text)
