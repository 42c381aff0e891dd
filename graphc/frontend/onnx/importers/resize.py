"""Resize and its older names. Sizes and scales are worked out here, one of each for every axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.sizes import unique_axes
from graphc.frontend.onnx.node import PIN, OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ops.resize import Resize
from graphc.shapes import Dim, is_static

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
POLICIES = ("stretch", "not_larger", "not_smaller")


@dataclass(frozen=True)
class Target:
    """What the result is to be: a size and a scale for each axis."""

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...]


@onnx_op("Upsample")
def upsample(node: OnnxNode, emit: SizeEmit) -> Value:
    """By scales: an attribute before opset 9, an input since."""
    scales = node.floats("scales") if node.opset < 9 else _scales(emit, node.input(1))
    return _asymmetric(node, emit, scales)


@onnx_op("Resize")
def resize(node: OnnxNode, emit: SizeEmit) -> Value:
    """By scales in opset 10; since 11 by scales or sizes, with a choice of coordinates."""
    if node.opset < 11:
        return _asymmetric(node, emit, _scales(emit, node.input(1)))
    x = node.input(0)
    target = _target(node, emit, x)
    coordinate = node.choice("coordinate_transformation_mode", "half_pixel", COORDINATES)
    roi: tuple[float, ...] = ()
    if coordinate == "tf_crop_and_resize":
        roi = _region(node, emit, x.type.rank)
    elif target.sizes == x.shape and all(scale == 1 for scale in target.scales):
        return x
    operator = Resize(
        sizes=target.sizes,
        scales=target.scales,
        mode=node.choice("mode", "nearest", MODES),
        coordinate=coordinate,
        nearest=node.choice("nearest_mode", "round_prefer_floor", NEAREST),
        cubic_a=node.float("cubic_coeff_a", -0.75),
        exclude_outside=bool(node.int("exclude_outside", 0)),
        extrapolation=node.float("extrapolation_value", 0.0),
        antialias=bool(node.int("antialias", 0)),
        roi=roi,
    )
    return emit(operator, x)


def _asymmetric(node: OnnxNode, emit: SizeEmit, scales: Sequence[float]) -> Value:
    """The only kind of coordinates before opset 11."""
    x = node.input(0)
    target = by_scales(x.shape, scales)
    if target.sizes == x.shape:
        return x
    mode = node.choice("mode", "nearest", MODES)
    return emit(
        Resize(sizes=target.sizes, scales=target.scales, mode=mode, coordinate="asymmetric", nearest="floor"), x
    )


def _scales(emit: SizeEmit, value: Value) -> list[float]:
    return [float(scale) for scale in emit.array(value, "a scale").reshape(-1)]


def _region(node: OnnxNode, emit: SizeEmit, rank: int) -> tuple[float, ...]:
    """The region to crop: starts, then ends, for every axis."""
    given = [float(bound) for bound in emit.array(node.input(1), "the region").reshape(-1)]
    axes = node.ints("axes", list(range(rank)))
    if len(given) != 2 * len(axes):
        raise ModelError(f"the region has {len(given)} bounds for {len(axes)} axes")
    bounds = [0.0] * rank + [1.0] * rank
    for index, axis in enumerate(axes):
        bounds[axis % rank], bounds[axis % rank + rank] = given[index], given[index + len(axes)]
    return tuple(bounds)


def _target(node: OnnxNode, emit: SizeEmit, x: Value) -> Target:
    """From the scales, or from the sizes; both may be given for some axes only (since opset 18)."""
    rank = x.type.rank
    axes = [axis % rank for axis in node.ints("axes", list(range(rank)))]
    unique_axes(axes, rank)
    scales, sizes = node.optional(2), node.optional(3)
    if scales is not None and scales.type.size != 0:
        return by_scales(x.shape, _spread(_scales(emit, scales), axes, [1.0] * rank))
    if sizes is None:
        raise ModelError("neither scales nor sizes are given")
    plain = not node.int("antialias", 0) and node.string("keep_aspect_ratio_policy", "stretch") == "stretch"
    wanted = emit.dims(sizes, "the size", low=1) if plain else emit.known_dims(sizes, "the size")
    policy = node.choice("keep_aspect_ratio_policy", "stretch", POLICIES)
    if policy != "stretch":
        return _keeping_ratio(x.shape, wanted, axes, policy)
    full: list[Dim] = _spread(wanted, axes, list(x.shape))
    return Target(tuple(full), tuple(ratio(new, old) for new, old in zip(full, x.shape, strict=True)))


def _spread(values: Sequence, axes: Sequence[int], default: list) -> list:
    if len(values) != len(axes):
        raise ModelError(f"{len(values)} scales or sizes for {len(axes)} axes")
    for axis, value in zip(axes, values, strict=True):
        default[axis] = value
    return default


def by_scales(shape: Sequence[Dim], scales: Sequence[float]) -> Target:
    """Each size is the old one times the scale, rounded down: exactly, so it may be symbolic."""
    if len(scales) != len(shape) or not all(0 < scale < float("inf") for scale in scales):
        raise ModelError(f"scales {list(scales)} for {len(shape)} axes")
    exact = [Fraction(scale) for scale in scales]
    sizes = tuple(size * scale.numerator // scale.denominator for size, scale in zip(shape, exact, strict=True))
    return Target(sizes, tuple(map(float, scales)))


def ratio(new: Dim, old: Dim) -> float:
    """How many times larger a size is; 0 if that depends on symbols."""
    if is_static(new, old):
        return float(Fraction(int(new), int(old))) if old else 1.0  # type: ignore[arg-type]
    larger, smaller = new // old, old // new
    if is_static(larger) and larger * old == new:
        return float(larger)  # type: ignore[arg-type]
    if is_static(smaller) and smaller * new == old:
        return 1.0 / float(smaller)  # type: ignore[arg-type]
    return 0.0


def _keeping_ratio(shape: Sequence[Dim], wanted: Sequence[Dim], axes: Sequence[int], policy: str) -> Target:
    """One scale for all axes: the smallest, or the largest, that the wanted sizes ask for."""
    refuse_unless(is_static(*shape, *wanted), "keeping the aspect ratio of symbolic sizes is not supported", PIN)
    if len(wanted) != len(axes):
        raise ModelError(f"{len(wanted)} sizes for {len(axes)} axes")
    choose = min if policy == "not_larger" else max
    scale = choose(Fraction(int(size), int(shape[axis])) for size, axis in zip(wanted, axes, strict=True))  # type: ignore[arg-type]
    sizes, scales = list(shape), [1.0] * len(shape)
    for axis in axes:
        sizes[axis] = int(shape[axis] * scale + Fraction(1, 2))  # type: ignore[operator]
        scales[axis] = float(scale)
    return Target(tuple(sizes), tuple(scales))
