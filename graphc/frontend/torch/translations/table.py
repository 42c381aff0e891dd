"""What PyTorch's exporter has no form in ONNX for, or a wrong one: which operators have translations, and how it gets to know
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from graphc.frontend.torch.translations import attention, complex_numbers, graph, numbers, order
from graphc.frontend.torch.translations.graph import Translation, op


class TracedData(TorchFunctionMode):
    """Has the exporter see what is done with a tensor's `data`, which it takes for a constant."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch's."""
        if func == torch.Tensor.data.__get__:  # type: ignore[attr-defined]
            return args[0].detach()
        return func(*args, **(kwargs or {}))


def known(name: str) -> Any:
    """The operator that PyTorch calls so, or None if this version has none."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


NUMBERS = {
    getattr(torch, f"_sym_{name.lower()}", None): numbers.of_numbers(name)
    for name in ("Sqrt", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh")
}
"""Functions of `math`."""

WINDOWS = (
    *("aten.hamming_window." + each for each in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")),
    *("aten.kaiser_window." + each for each in ("default", "periodic", "beta")),
    "aten.fft_fftfreq.default",
    "aten.fft_rfftfreq.default",
)
"""What is computed of numbers alone."""

REAL: Mapping[str, Translation] = {
    "aten.squeeze.dim": graph.squeeze_axis,
    "aten.squeeze.dims": graph.squeeze_axes,
    "aten.kthvalue.default": order.kth_value,
    "aten.median.dim": order.median,
    "aten.median.default": partial(order.of_all, order.median),
    "aten.nanmedian.dim": order.median_of_numbers,
    "aten.nanmedian.default": partial(order.of_all, order.median_of_numbers),
    "aten.searchsorted.Tensor": order.search_sorted,
    "aten.searchsorted.Scalar": order.search_sorted,
    "aten.cummax.default": partial(order.running, op.ReduceMax, op.ArgMax),
    "aten.cummin.default": partial(order.running, op.ReduceMin, op.ArgMin),
    "aten.rsub.Scalar": numbers.subtracted,
    "prims.prod.default": numbers.product,
    "prims.fmax.default": partial(numbers.number_of, op.Max),
    "prims.fmin.default": partial(numbers.number_of, op.Min),
    "aten.copy.default": numbers.copied,
    "aten.signbit.default": numbers.sign_bit,
    "aten.copysign.Tensor": numbers.with_sign,
    "prims.uniform.default": numbers.uniform,
    "aten.rrelu_with_noise_functional.default": numbers.leaky,
    "prims.hypot.default": numbers.hypotenuse,
    "aten._cdist_forward.default": numbers.distances,
    "aten._adaptive_avg_pool3d.default": numbers.mean_of_windows,
    "aten.adaptive_max_pool2d.default": numbers.largest_of_windows,
    "aten.randperm.default": numbers.permutation,
    "aten.masked_select.default": numbers.chosen,
    "aten._neg_view.default": op.Neg,
    "aten._grouped_mm.default": numbers.grouped_products,
    **{name: partial(numbers.of_fixed, known(name)) for name in WINDOWS},
}
"""Operators that the exporter has no form for, or one that is not right."""

LIBRARIES: Mapping[str, Translation] = {
    "transformers.grouped_mm_fallback.default": numbers.grouped_products,
}
"""Operators that other libraries add to PyTorch's when they are imported."""

WITHOUT: Mapping[str, tuple[str, str]] = {
    "aten.randn.generator": ("aten.randn.default", "generator"),
    "aten.rand.generator": ("aten.rand.default", "generator"),
    "aten.sort.stable": ("aten.sort.default", "stable"),
}
"""Operators that are others for which the exporter has a form, with one argument more that says nothing: order is stable."""

LIKE: Mapping[str, str] = {
    "aten._is_all_true.default": "aten.all.default",
    "aten._is_any_true.default": "aten.any.default",
}
"""Operators that are others, for which the exporter has a form."""

CHANGED: Mapping[str, Callable[[Translation], Translation]] = {
    "aten.scatter_reduce.two": lambda usual: partial(numbers.scattered, usual),
    "aten.scaled_dot_product_attention.default": lambda usual: partial(attention.attention, usual),
    "aten.full.default": partial(complex_numbers.filled_where_complex, None),
    "aten.zeros.default": partial(complex_numbers.filled_where_complex, 0),
    "aten.ones.default": partial(complex_numbers.filled_where_complex, 1),
    "aten.empty.memory_format": partial(complex_numbers.filled_where_complex, 0),
}
"""Operators whose form is made of the one that the exporter has."""

TOGETHER = (
    *("unsqueeze.default", "expand.default", "select.int", "split_with_sizes.default", "split.Tensor", "split.sizes"),
    *("chunk.default", "unbind.int", "repeat.default", "tile.default", "reshape.default", "alias.default"),
    *("detach.default", "lift_fresh_copy.default", "contiguous.default", "embedding.default", "index.Tensor"),
    *("index_select.default", "repeat_interleave.self_int", "cumsum.default", "pad.default", "constant_pad_nd.default"),
    *("slice_scatter.default", "select_scatter.default", "index_put.default", "squeeze.default", "narrow.default"),
    *("flatten.using_ints", "unflatten.int", "sym_size.int"),
)
"""Operators that leave both parts of complex numbers together."""

APART = ("tril.default", "triu.default", "diagonal.default")
"""Operators that do the same with both parts."""

COMPLEX: Mapping[str, Translation] = {
    "aten.squeeze.dim": complex_numbers.squeeze_complex,
    "aten.squeeze.dims": complex_numbers.squeeze_complex,
    "aten._to_copy.default": complex_numbers.cast_complex,
    "prims.convert_element_type.default": complex_numbers.cast_complex,
    "aten.gather.default": complex_numbers.gather_complex,
    "aten.where.self": complex_numbers.where_complex,
    "aten.masked_fill.Scalar": complex_numbers.masked_fill_complex,
    "aten.fill.Scalar": complex_numbers.fill_complex,
    "aten.fill.Tensor": complex_numbers.fill_complex,
    "aten.rsub.Scalar": complex_numbers.subtracted_complex,
    "aten.mul.Scalar": complex_numbers.multiply_number,
    "aten.exp.default": complex_numbers.exponential,
    "aten.pow.Tensor_Scalar": complex_numbers.power,
    "aten.square.default": lambda z: complex_numbers.multiply(z, z),
    "aten.eq.Tensor": complex_numbers.equal_complex,
    "aten.eq.Scalar": complex_numbers.equal_complex,
    "aten.ne.Tensor": complex_numbers.unequal_complex,
    "aten.ne.Scalar": complex_numbers.unequal_complex,
    "aten.isnan.default": partial(complex_numbers.either_part, op.IsNaN),
    "aten.isinf.default": partial(complex_numbers.either_part, op.IsInf),
    "aten.zeros_like.default": partial(complex_numbers.filled_like, 0),
    "aten.ones_like.default": partial(complex_numbers.filled_like, 1),
    "aten.full_like.default": partial(complex_numbers.filled_like, None),
    "aten.empty_like.default": partial(complex_numbers.filled_like, 0),
    "aten.new_zeros.default": partial(complex_numbers.new_filled, 0),
    "aten.new_ones.default": partial(complex_numbers.new_filled, 1),
    "aten.new_full.default": partial(complex_numbers.new_filled, None),
    "aten.copy.default": complex_numbers.copied_complex,
}
"""Operators on complex numbers."""

SAME: Mapping[str, str] = {
    "aten.bmm.default": "aten.matmul.default",
    "prims.conj_physical.default": "aten._conj.default",
}
"""Operators on complex numbers that are others, for which the exporter has a form."""

LEFT = (
    "aten.cross_entropy_loss.default",
    "aten.atleast_1d.Sequence",
    "aten.atleast_2d.Sequence",
    "aten.atleast_3d.Sequence",
)
"""Operators of which the exporter has a form that is wrong, and which PyTorch takes apart itself."""


def real_translations() -> dict[Any, Translation]:
    """Each of the operators that PyTorch has with its translation, where that needs none of the exporter's."""
    return _known(REAL) | {target: translation for target, translation in NUMBERS.items() if target is not None}


def library_translations() -> dict[Any, Translation]:
    """The same of those operators that libraries have added by now."""
    return _known(LIBRARIES)


def _known(named: Mapping[str, Translation]) -> dict[Any, Translation]:
    found = {known(name): translation for name, translation in named.items()}
    return {target: translation for target, translation in found.items() if target is not None}


def add_to(registry: Any) -> None:
    """Have the exporter's table of operators know these translations too."""
    add = _adding(registry)
    for target, translation in real_translations().items():
        add(target, translation)
    for name, (other, argument) in WITHOUT.items():
        if usual := _usual(registry, known(other)):
            add(known(name), _without(argument, usual))
    for name, other in LIKE.items():
        if usual := _usual(registry, known(other)):
            add(known(name), usual)
    for name, change in CHANGED.items():
        if usual := _usual(registry, known(name)):
            add(known(name), change(usual))
    for names, how in ((TOGETHER, complex_numbers.with_parts), (APART, complex_numbers.apart)):
        for name in (f"aten.{each}" for each in names):
            target = known(name)
            if usual := _usual(registry, target):
                add(target, how(target, usual, name), is_complex=True)
    for name, translation in COMPLEX.items():
        if _usual(registry, known(name)):
            add(known(name), translation, is_complex=True)
    for name, other in SAME.items():
        if usual := _usual(registry, known(other), is_complex=True):
            add(known(name), usual, is_complex=True)
    for target in filter(None, map(known, LEFT)):
        registry.functions.pop(target.name(), None)


def _adding(registry: Any) -> Callable[..., None]:
    def add(target: Any, translation: Translation, is_complex: bool = False) -> None:
        if target is not None:
            registry.register_op(target, translation, is_complex=is_complex)

    return add


def _usual(registry: Any, target: Any, is_complex: bool = False) -> Translation | None:
    """The form that the exporter has for an operator on real or complex numbers."""
    found = () if target is None else registry.get_decomps(target)
    return next((each.onnx_function for each in found if each.is_complex == is_complex), None)


def _without(argument: str, usual: Translation) -> Translation:
    def translated(*arguments: Any, **keywords: Any) -> Any:
        return usual(*arguments, **{name: given for name, given in keywords.items() if name != argument})

    return translated
