"""Attention of any rank, whose batches may be repeated."""

from __future__ import annotations

from functools import reduce

from graphc.frontend.torch.translations.graph import Translation, Value, like, op

MATRIX = 2
"""The axes of queries, keys and values that are no batches and no heads."""

USUAL_RANK = 4
"""ONNX's Attention takes a batch, heads, rows and elements."""


def attention(
    usual: Translation,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """`scaled_dot_product_attention` in evaluation. All batches are heads of one where the exporter's form, which is `usual`,
    takes other ranks or sizes alone."""
    parts = query, key, value
    settings = {"is_causal": is_causal, "scale": scale}
    grouped = enable_gqa and query.shape[-3] != key.shape[-3]
    if grouped or all(len(each.shape) == USUAL_RANK and _batches(each) == _batches(query) for each in parts):
        return usual(*parts, attn_mask, **settings, enable_gqa=grouped)
    batches = _common_batches(parts if attn_mask is None else (*parts, attn_mask))
    heads = [_as_heads(each, batches) for each in parts]
    if attn_mask is not None and len(attn_mask.shape) > MATRIX:
        attn_mask = _as_heads(attn_mask, batches)
    made = usual(*heads, attn_mask, **settings)
    return op.Reshape(made, op.Concat(batches, op.Shape(query, start=-2, end=-1), op.Shape(value, start=-1), axis=0))


def _batches(x: Value) -> list[object]:
    return list(x.shape[:-MATRIX])


def _common_batches(values: tuple[Value, ...]) -> Value:
    """The sizes of the axes before the matrices, to which those of all are repeated."""
    rank = max(len(_batches(each)) for each in values)
    if rank == 0:
        return op.Constant(value_ints=[])
    different = {tuple(_batches(each)): each for each in values}
    ones = {len(batches): [1] * (rank - len(batches)) for batches in different}
    sizes = [op.Shape(each, start=0, end=-MATRIX) for each in different.values()]
    aligned = [
        op.Concat(op.Constant(value_ints=ones[len(batches)]), size, axis=0) if ones[len(batches)] else size
        for batches, size in zip(different, sizes, strict=True)
    ]
    return reduce(op.Max, aligned)


def _as_heads(x: Value, batches: Value) -> Value:
    """[..., rows, elements] as [1, heads, rows, elements]."""
    matrix = op.Shape(x, start=-MATRIX)
    repeated = op.Expand(x, op.Concat(batches, matrix, axis=0))
    heads = op.Reshape(repeated, op.Concat(op.Constant(value_ints=[1, -1]), matrix, axis=0))
    return like(x, heads, [1, "heads", *x.shape[-MATRIX:]])
