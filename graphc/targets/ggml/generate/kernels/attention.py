"""Attention by a kernel of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from graphc.kernels.gpu.skeletons.attention import INSTRUCTION, MOST_WIDTH, Attention, attention
from graphc.kernels.gpu.skeletons.attention_anywhere import attention_anywhere, tiling_for
from graphc.kernels.gpu.skeletons.attention_together import INSTRUCTION as TOGETHER
from graphc.kernels.gpu.skeletons.attention_together import MOST_TOGETHER, attention_together
from graphc.kernels.gpu.tile import TileKernel
from graphc.kernels.scalar import Scalar, variable
from graphc.shapes import product
from graphc.targets.ggml.generate.arrays import Array, Index, buffers_of, repeated, unflat
from graphc.targets.ggml.generate.elements import wide
from graphc.targets.ggml.generate.generator import Generator, normal, numbered, widened
from graphc.targets.ggml.generate.kernels.products import shared_batch
from graphc.targets.ggml.generate.kernels.registry import kernels_of
from graphc.targets.ggml.generate.operands import operand_rows
from graphc.targets.ggml.program.tensor import Quad, Tensor


def kernel_for(g: Generator, width: int, results: int, masked: bool) -> Callable[[Attention], TileKernel] | None:
    """What makes the kernel for heads of these sizes; None if nothing does."""
    wide = max(width, results)
    if g.fast and g.form.has(TOGETHER) and wide <= MOST_TOGETHER and not masked:
        return attention_together
    if g.fast and g.form.has(INSTRUCTION) and wide <= MOST_WIDTH:
        return attention
    instruction = g.form.schedule(wide, g.multiplied).instruction
    room = g.form.block(None if g.scheduling is None else g.scheduling.gpu)
    tiling = tiling_for(width, results, instruction, *room)
    return None if tiling is None else partial(attention_anywhere, tiling=tiling, instruction=instruction)


@kernels_of("graphc_attention")
def attended(
    g: Generator, result: Tensor, q: Array, k: Array, v: Array, mask: Array | None, scale: float, *others: Array
) -> Array | None:
    """`graphc_attention`; None where it has no kernel of its own."""
    width, results = q.ne[0], v.ne[0]
    if not isinstance(width, int) or not isinstance(results, int):
        return None
    kernel = kernel_for(g, width, results, mask is not None)
    if kernel is None:
        return None
    rows, heads, count = q.ne[1:]
    keys = k.ne[1]
    batches: Quad = (heads, count, 1, 1)

    def queries(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        head, number, *_ = unflat(batch, batches)
        return channel, line, head, number

    def of_keys(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        head, number, *_ = unflat(batch, batches)
        return channel, line, shared_batch(head, k.ne[2], heads), shared_batch(number, k.ne[3], count)

    q_rows, k_rows = operand_rows(g, q, width, queries), operand_rows(g, k, width, of_keys)
    v_rows = operand_rows(g, v, results, of_keys)

    def place(batch: Scalar, line: Scalar, column: Scalar) -> Scalar:
        head, number, *_ = unflat(batch, batches)
        return ((number * rows + line) * heads + head) * results + column

    def added(batch: Scalar, line: Scalar, key: Scalar) -> Scalar:
        assert mask is not None
        at, sizes = (key, line, *unflat(batch, batches)[:2]), (keys, rows, heads, count)
        found = wide(repeated(mask, at, sizes))
        for other in others:
            found = found + wide(repeated(other, at, sizes))
        return found

    probe = [variable(name, 2**31 - 1) for name in ("batch", "line", "key")]
    read = [] if mask is None else buffers_of(added(*probe))
    buffers = [q_rows.buffer, k_rows.buffer, v_rows.buffer]

    def numbered_mask(batch: Scalar, line: Scalar, key: Scalar) -> Scalar:
        return normal(numbered(added(batch, line, key), read, len(buffers)))

    what = Attention(
        "attention", heads * count, rows, keys, width, results, scale, q_rows.rows, k_rows.rows, v_rows.rows,
        product(result.ne), g.result_dtype, place, [(each.dtype, product(each.ne)) for each in read],
        None if mask is None else numbered_mask,
    )  # fmt: skip
    return widened(Array.of(g.launched([kernel(what)], [*buffers, *read], g.result_dtype, result.ne)))
