"""Merging axes: the same elements move the same way on fewer axes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphc.ops.collapse import (
    block_swaps,
    broadcast_groups,
    collapse_transpose,
    group,
    left_padded,
    merge,
    split,
    touched_groups,
)
from graphc.shapes import symbol

shapes = st.lists(st.integers(1, 3), min_size=1, max_size=7).map(tuple)


@st.composite
def transposes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = draw(shapes)
    return shape, tuple(draw(st.permutations(range(len(shape)))))


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


@given(transposes())
def test_collapsed_transpose(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    shape, perm = case
    sizes, order = collapse_transpose(shape, perm)
    x = numbered(shape)
    np.testing.assert_array_equal(x.reshape(sizes).transpose(order).ravel(), x.transpose(perm).ravel())
    assert 1 not in sizes
    assert all(b != a + 1 for a, b in pairwise(order))


@given(transposes())
def test_block_swaps(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    shape, perm = case
    x = numbered(shape)
    for start, middle, end in block_swaps(perm):
        rank = x.ndim
        x = x.transpose(*range(start), *range(middle, end), *range(start, middle), *range(end, rank))
    np.testing.assert_array_equal(x, numbered(shape).transpose(perm))


@given(shapes, st.data())
def test_broadcast(result: tuple[int, ...], data: st.DataObject) -> None:
    operands = []
    for _ in range(2):
        shape = tuple(1 if data.draw(st.booleans()) else size for size in result)
        operands.append(shape[data.draw(st.integers(0, len(shape))) :])
    groups = broadcast_groups(operands, result)
    assert sum(groups) == len(result)
    for shape in operands:
        padded = left_padded(shape, len(result))
        merged = np.broadcast_to(numbered(shape).reshape(merge(padded, groups)), merge(result, groups))
        np.testing.assert_array_equal(merged.ravel(), np.broadcast_to(numbered(shape), result).ravel())


@given(shapes, st.data())
def test_slices_of_merged_axes(shape: tuple[int, ...], data: st.DataObject) -> None:
    starts = [data.draw(st.integers(0, size - 1)) for size in shape]
    sizes = [data.draw(st.integers(1, size - start)) for size, start in zip(shape, starts, strict=True)]
    touched = [size != full for size, full in zip(sizes, shape, strict=True)]
    groups = touched_groups(touched, [True] * len(shape), shape)
    assert all(not any(part[1:]) for part in split(touched, groups))
    heads = [sum(groups[:i]) for i in range(len(groups))]
    blocks = [int(np.prod(part[1:])) for part in split(shape, groups)]
    firsts = [starts[head] * block for head, block in zip(heads, blocks, strict=True)]
    parts = tuple(slice(first, first + size) for first, size in zip(firsts, merge(sizes, groups), strict=True))
    whole = tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
    np.testing.assert_array_equal(
        numbered(shape).reshape(merge(shape, groups))[parts].ravel(), numbered(shape)[whole].ravel()
    )


def test_groups() -> None:
    assert group(["a", None, "a", "b", None]) == [3, 2]
    assert group([None, "a", "b"]) == [2, 1]
    assert group([]) == []
    assert touched_groups([False, False, True, False, False, True], [True] * 6, (2, 3, 4, 5, 6, 7)) == [2, 3, 1]
    assert touched_groups([True, False, False], [False] * 3, (2, 1, 3)) == [2, 1]
    a, b = symbol("a"), symbol("b")
    assert collapse_transpose((a, 1, b, 2, 3), (2, 3, 4, 1, 0)) == ((a, 6 * b), (1, 0))
    assert block_swaps((0, 1, 2)) == []
