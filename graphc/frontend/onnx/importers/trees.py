"""Ensembles of decision trees, as two matrix products: which leaves are reached, and what they weigh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.learning import DOMAIN
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, check_table, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, I64
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.reduce import Reduce

COMPARISONS = ("LessOrEqual", "Less", "GreaterOrEqual", "Greater", "Equal")
"""What a node asks of its feature, by its mode; then come "is not equal" and "is one of"."""
NOT_EQUAL, MEMBER = 5, 6
AVERAGE, SUM = 0, 1


@dataclass(frozen=True)
class Leaf:
    """A leaf, and the nodes on the way to it with the answer that leads there."""

    number: int
    path: tuple[tuple[int, bool], ...]


@onnx_op("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, features] to [N, targets]: the sum, or the mean, of what the trees say."""
    x = node.input(0)
    combine = node.int("aggregate_function", SUM)
    refuse_unless(combine in (AVERAGE, SUM), "the least or most of trees is not supported")
    refuse_unless(not node.int("post_transform", 0), "a function of what the trees say is not supported")
    refuse_unless(
        not any(node.ints("nodes_missing_value_tracks_true", [])), "ways for missing values are not supported"
    )
    answers, columns = _answers(node, emit, x)
    leaves = [leaf for root in node.ints("tree_roots") for leaf in _leaves(node, root)]
    check_table(len(columns), len(leaves))
    check_table(len(leaves), node.int("n_targets"))
    signs = np.zeros((len(columns), len(leaves)), F32)
    wanted = np.zeros(len(leaves), F32)
    for number, leaf in enumerate(leaves):
        for place, answer in leaf.path:
            signs[columns[place], number] += 1 if answer else -1
            wanted[number] += answer
    reached = emit(Binary("Equal"), emit(MatMul(), answers, emit.constant(signs)), emit.constant(wanted))
    table = np.zeros((len(leaves), node.int("n_targets")), x.dtype)
    weights, targets = node.tensor("leaf_weights"), node.ints("leaf_targetids")
    for number, leaf in enumerate(leaves):
        table[number, targets[leaf.number]] += weights[leaf.number]
    total = emit(MatMul(), converted(emit, reached, x.dtype), emit.constant(table))
    trees = len(node.ints("tree_roots"))
    return total if combine == SUM else emit(Binary("Div"), total, emit.constant(trees, like=total))


def _answers(node: OnnxNode, emit: SizeEmit, x: Value) -> tuple[Value, dict[int, int]]:
    """[N, nodes] of 0 and 1, and the column of each node."""
    modes, splits = node.tensor("nodes_modes").reshape(-1), node.tensor("nodes_splits").reshape(-1)
    features = np.array(node.ints("nodes_featureids"), I64)
    if not len(modes) == len(splits) == len(features):
        raise ModelError(f"{len(modes)} modes, {len(splits)} splits and {len(features)} features")
    parts, order = [], []
    for mode in np.unique(modes):
        places = np.flatnonzero(modes == mode)
        feature = emit(Gather(1), x, emit.constant(features[places]))
        if mode == MEMBER:
            answer = _is_member(emit, feature, _members(node, len(places), x.dtype))
        else:
            refuse_unless(mode <= NOT_EQUAL, f"mode {mode} is not known")
            split = emit.constant(splits[places].astype(x.dtype))
            answer = emit(Binary("Equal" if mode == NOT_EQUAL else COMPARISONS[mode]), feature, split)
            answer = emit(Unary("Not"), answer) if mode == NOT_EQUAL else answer
        parts.append(converted(emit, answer, F32))
        order += places.tolist()
    joined = parts[0] if len(parts) == 1 else emit(Concat(1), *parts)
    return joined, {place: column for column, place in enumerate(order)}


def _members(node: OnnxNode, count: int, dtype: np.dtype) -> np.ndarray:
    """[nodes, members] filled up with NaN, which equals nothing."""
    values = node.tensor("membership_values").astype(dtype)
    sets = np.split(values, np.flatnonzero(np.isnan(values)) + 1)[:-1] if values.size else []
    if len(sets) != count:
        raise ModelError(f"{len(sets)} sets of members for {count} nodes")
    table = np.full((count, max(map(len, sets), default=1)), np.nan, dtype)
    for row, members in zip(table, sets, strict=True):
        row[: len(members)] = members
    return table


def _is_member(emit: SizeEmit, feature: Value, members: np.ndarray) -> Value:
    wide = to_shape(emit, feature, (*feature.shape, 1))
    same = converted(emit, emit(Binary("Equal"), wide, emit.constant(members[None])), F32)
    count = emit(Reduce("max", (2,), False), same)
    return emit(Binary("Greater"), count, emit.constant(0, like=count))


def _leaves(node: OnnxNode, root: int) -> Iterator[Leaf]:
    """The leaves of a tree. Raises ModelError if it has a cycle."""
    ways = {
        True: (node.ints("nodes_truenodeids"), node.ints("nodes_trueleafs")),
        False: (node.ints("nodes_falsenodeids"), node.ints("nodes_falseleafs")),
    }
    limit = len(ways[True][0])
    pending: list[Leaf] = [Leaf(root, ())]
    while pending:
        place = pending.pop()
        for answer, (children, is_leaf) in ways.items():
            path = (*place.path, (place.number, answer))
            if len(path) > limit:
                raise ModelError("a tree has a cycle")
            child = Leaf(children[place.number], path)
            if is_leaf[place.number]:
                yield child
            else:
                pending.append(child)
