"""The mathematics of resizing an axis: where each element of the result lies, and how much its neighbours count.

The formulas are ONNX's, each written once, for NumPy arrays as well as for the scalars of a kernel; numbers keep the type of
`x`. Their operations are in the order in which onnxruntime performs them, because in float32 that decides ties. The length
of the result is the whole number that it has, as in onnxruntime and PyTorch; onnx's reference multiplies by the scale without
rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Number: TypeAlias = Any
"""An array of NumPy, one number of it, or a `Scalar` of a kernel."""


@dataclass(frozen=True)
class Axis:
    """An axis that is resized: its sizes before and after, the factor, and the region that is cropped."""

    length: Number
    resized: Number
    scale: Number
    start: Number
    end: Number


def _half_pixel(x: Number, axis: Axis) -> Number:
    return (x + 0.5) / axis.scale - 0.5


def _symmetric(x: Number, axis: Axis) -> Number:
    center = axis.length / 2
    return center * (1 - axis.resized / (axis.scale * axis.length)) + (x + 0.5) / axis.scale - 0.5


def _crop(x: Number, axis: Axis) -> Number:
    step = x * (axis.end - axis.start) * (axis.length - 1) / (axis.resized - 1)
    return axis.start * (axis.length - 1) + step


COORDINATES: dict[str, Callable[[Number, Axis], Number]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "align_corners": lambda x, axis: x * (axis.length - 1) / (axis.resized - 1),
    "asymmetric": lambda x, axis: x / axis.scale,
    "tf_half_pixel_for_nn": lambda x, axis: (x + 0.5) / axis.scale,
    "tf_crop_and_resize": _crop,
}
"""Where element `x` of the result lies among the elements of the input."""

ALONE: dict[str, Callable[[Number, Axis], Number]] = {
    "pytorch_half_pixel": lambda x, axis: x * 0,
    "align_corners": lambda x, axis: x * 0,
    "tf_crop_and_resize": lambda x, axis: (axis.start + axis.end) * (axis.length - 1) / 2 + x * 0,
}
"""The same where the result has one element."""

HALF_PIXEL = frozenset({"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"})
"""Coordinates that agree where the factor is a whole number."""

ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": lambda x: np.floor(x),
    "ceil": lambda x: np.ceil(x),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}
"""The element nearest to a place."""

C_ROUNDINGS = {
    "floor": "floor{f}({0})",
    "ceil": "ceil{f}({0})",
    "round_prefer_floor": "ceil{f}({0} - 0.5{f})",
    "round_prefer_ceil": "floor{f}({0} + 0.5{f})",
}
"""The same as expressions for `Kernel.call`."""

REACH = {"linear": 1, "cubic": 2}
"""How many elements on each side an interpolation reads."""


def cubic_near(d: Number, a: float) -> Number:
    """The weight of an element at a distance of at most 1."""
    return ((a + 2) * d - (a + 3)) * d * d + 1


def cubic_far(d: Number, a: float) -> Number:
    """The weight of an element at a distance between 1 and 2."""
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def neighbours(mode: str, fraction: Number, a: float) -> list[Number]:
    """The weights of the elements around a place, from left to right; `fraction` is its distance from the left one."""
    rest = 1 - fraction
    if mode == "linear":
        return [rest, fraction]
    return [cubic_far(fraction + 1, a), cubic_near(fraction, a), cubic_near(rest, a), cubic_far(rest + 1, a)]


def weights(mode: str, distance: np.ndarray, a: float) -> np.ndarray:
    """How much elements count at any distance."""
    d = np.abs(distance)
    if mode == "linear":
        return np.asarray(np.maximum(1 - d, 0))
    return np.where(d <= 1, cubic_near(d, a), np.where(d < 2, cubic_far(d, a), 0))
