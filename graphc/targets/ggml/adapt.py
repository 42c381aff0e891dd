"""Calls as devices other than the CPU want them: operands that lie together, gates in one, attention and
convolutions without large matrices.

`adapt.cpp` of the C++ project does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from graphc.backends.precision import is_exact
from graphc.ggml_library import ggml
from graphc.shapes import integer
from graphc.targets.ggml.choices import attention_key, convolution_key
from graphc.targets.ggml.devices import backend_name
from graphc.targets.ggml.images import COLUMN_LIMIT
from graphc.targets.ggml.products import CONVOLUTIONS
from graphc.targets.ggml.program import Call
from graphc.targets.ggml.replace import Attention, attention_of, inner, scores_bytes

if TYPE_CHECKING:
    from graphc.targets.ggml.built import BuiltGraph

PARTICULAR = ("Vulkan",)
"""Backends that convert an operand of a product to float16 if its rows do not lie one after the other, a single row too, that
want it to begin at an aligned place, and that read it wrong if there are gaps between its matrices."""

EXACT_ATTENTION = ("Vulkan",)
"""Backends whose attention is as exact as products; the keys and values of others are rounded to float16."""

DIRECT = ("Vulkan",)
"""Backends that convolve as fast without a matrix of columns."""

LARGE_COLUMNS = 1 << 26
"""Bytes of a matrix of columns that is not worth having. Some devices' largest buffer is 128 MiB."""

GATES: Mapping[str, Callable[..., Any]] = {
    "ggml_silu": ggml.ggml_swiglu_split,
    "ggml_gelu": ggml.ggml_geglu_split,
    "ggml_gelu_erf": ggml.ggml_geglu_erf_split,
}
"""What computes an activation of one tensor times another at once."""

ALIGNMENT = 256
"""Bytes: what devices want at most. Source: Vulkan's limit minStorageBufferOffsetAlignment."""

LARGE_SCORES = 1 << 22
"""Bytes of a matrix of scores that is not worth having. Smaller ones fit any device."""


class Adapter:
    """What the backends of devices want, of which the last is the CPU's; that alone wants nothing."""

    def __init__(self, backends: Sequence[Any]) -> None:
        names = {backend_name(each) for each in backends[:-1]}
        self.backends, self.cpu = backends[:-1], not names
        self.together = not names.isdisjoint(PARTICULAR)
        self.direct = not names.isdisjoint(DIRECT)
        self.attention = names.issubset(EXACT_ATTENTION) or not is_exact()

    def adapted(self, graph: BuiltGraph, call: Call, args: Sequence[Any]) -> Any:
        """What stands for a call whose arguments are given; None where it is made as the program says."""
        if self.cpu:
            return None
        if call.function in CONVOLUTIONS:
            return self._convolution(graph, call, args)
        if call.function == "ggml_mul":
            return self._gated(graph, call, args)
        if call.function != "ggml_mul_mat":
            return None
        return self._attention(graph, call, args) or self._product(graph, args)

    def _product(self, graph: BuiltGraph, args: Sequence[Any]) -> Any:
        if self.together:
            args = [lying_together(graph.context, arg) for arg in args]
        return ggml.ggml_mul_mat(graph.context, *args)

    def _convolution(self, graph: BuiltGraph, call: Call, args: Sequence[Any]) -> Any:
        width, height, _, batch = (integer(size, graph.binding) for size in call.result.ne)
        columns = 4 * width * height * batch * prod(args[0].contents.ne[:3])
        said = {"ggml_conv_2d": "columns", "ggml_conv_2d_direct": "direct"}[call.function]

        def direct() -> Any:
            result = ggml.ggml_conv_2d_direct(graph.context, *args)
            return result if said == "direct" or self._supported(result) else None

        ways = {
            "direct": direct,
            "columns": lambda: (
                (said == "columns" or columns <= COLUMN_LIMIT) and ggml.ggml_conv_2d(graph.context, *args)
            ),
        }
        large = self.direct and columns > LARGE_COLUMNS
        return graph.choose(call, convolution_key(*args), ways, ("direct",) if large else (said,))

    def _gated(self, graph: BuiltGraph, call: Call, args: Sequence[Any]) -> Any:
        """A product with an activation that nothing else reads."""
        for index in (0, 1):
            activation = inner(graph, call.args[index], tuple(GATES))
            if activation is None:
                continue
            gate, other = graph.argument(activation.args[0]), args[1 - index]
            if ggml.ggml_are_same_shape(gate, other) and all(map(ggml.ggml_is_contiguous, (gate, other))):
                result = GATES[activation.function](graph.context, gate, other)
                return result if self._supported(result) else None
        return None

    def _attention(self, graph: BuiltGraph, call: Call, args: Sequence[Any]) -> Any:
        found = attention_of(graph, call, args)
        if found is None:
            return None
        nbytes = scores_bytes(found)
        ways = {
            "flash": lambda: self._flash(graph.context, found),
            "scores": lambda: nbytes <= COLUMN_LIMIT and self._product(graph, args),
        }
        key = attention_key(found.k, found.q, args[0], found.mask)
        return graph.choose(call, key, ways, ("flash",) if nbytes >= LARGE_SCORES else ("scores",))

    def _flash(self, context: Any, found: Attention) -> Any:
        k, q, v = found.k, found.q, ggml.ggml_transpose(context, found.values[0])
        float32 = all(each.contents.type == ggml.GGML_TYPE_F32 for each in (k, q, v))
        if not self.attention or not float32 or found.mask is not None:  # ggml wants masks in float16
            return None
        k, q, v = (each if each.contents.nb[0] == 4 else ggml.ggml_cont(context, each) for each in (k, q, v))
        result = ggml.ggml_flash_attn_ext(context, q, k, v, None, found.factor, 0.0, 0.0)
        ggml.ggml_flash_attn_ext_set_prec(result, ggml.GGML_PREC_F32)
        if not self._supported(result):
            return None
        return ggml.ggml_cont(context, ggml.ggml_permute(context, result, 0, 2, 1, 3))

    def _supported(self, tensor: Any) -> bool:
        return all(ggml.ggml_backend_supports_op(each, tensor) for each in self.backends)


def lying_together(context: Any, tensor: Any) -> Any:
    """The tensor, or a copy of it if it has gaps, or its only row an odd stride, or it is a view that begins at an odd place."""
    described = tensor.contents
    odd = described.nb[1] != ggml.ggml_row_size(described.type, described.ne[0]) or described.view_offs % ALIGNMENT
    return ggml.ggml_cont(context, tensor) if odd or not ggml.ggml_is_contiguous(tensor) else tensor
