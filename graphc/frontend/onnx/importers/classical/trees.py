"""Ensembles of decision trees, as two matrix products: which leaves are reached, and what they weigh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.classical.domain import DOMAIN, features
from graphc.frontend.onnx.importers.classical.scores import above, best, both, label_count, labelled, transformed
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, check_table, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, I64
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Expand
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.reduce import Reduce

COMPARISONS = ("LessOrEqual", "Less", "GreaterOrEqual", "Greater", "Equal")
"""What a node asks of its feature, by its mode; then come "is not equal" and "is one of"."""
NOT_EQUAL, MEMBER = 5, 6
OLD_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""The same as the older operators write it."""
AVERAGE, SUM = 0, 1
OLD_SUMS = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True)
class Leaf:
    """A leaf, and the nodes on the way to it with the answer that leads there."""

    number: int
    path: tuple[tuple[int, bool], ...]


@dataclass
class Forest:
    """Trees: what each node asks of which feature, where its answers lead (the number of a node or of a leaf, and whether it is
    one), and the first node of each tree, or its only leaf.

    `missing` says of each node whether NaN is a yes. `weights` are those of leaves: leaf, target, weight.
    """

    modes: np.ndarray
    splits: np.ndarray
    features: np.ndarray
    missing: np.ndarray
    ways: dict[bool, list[tuple[int, bool]]]
    roots: list[tuple[int, bool]]
    weights: list[tuple[int, int, float]]
    targets: int
    members: np.ndarray | None = None

    def leaves(self) -> Iterator[Leaf]:
        """The leaves of all trees. Raises ModelError if one has a cycle."""
        for number, is_leaf in self.roots:
            pending = [] if is_leaf else [Leaf(number, ())]
            if is_leaf:
                yield Leaf(number, ())
            while pending:
                place = pending.pop()
                for answer, children in self.ways.items():
                    path = (*place.path, (place.number, answer))
                    if len(path) > len(children):
                        raise ModelError("a tree has a cycle")
                    child, ends = children[place.number]
                    if ends:
                        yield Leaf(child, path)
                    else:
                        pending.append(Leaf(child, path))


def total(emit: SizeEmit, x: Value, forest: Forest) -> Value:
    """[N, features] to [N, targets]: the sum of what the trees say."""
    refuse_unless(bool(forest.roots), "it has no trees")
    answers, columns = _answers(emit, x, forest)
    leaves = list(forest.leaves())
    check_table(len(columns), len(leaves))
    check_table(len(leaves), forest.targets)
    signs = np.zeros((len(columns), len(leaves)), F32)
    wanted = np.zeros(len(leaves), F32)
    for number, leaf in enumerate(leaves):
        for place, answer in leaf.path:
            signs[columns[place], number] += 1 if answer else -1
            wanted[number] += answer
    reached = emit(Binary("Equal"), emit(MatMul(), answers, emit.constant(signs)), emit.constant(wanted))
    table = np.zeros((len(leaves), forest.targets), x.dtype)
    numbers = {leaf.number: number for number, leaf in enumerate(leaves)}
    for leaf_number, target, weight in forest.weights:
        if leaf_number in numbers:
            table[numbers[leaf_number], target] += weight
    return emit(MatMul(), converted(emit, reached, x.dtype), emit.constant(table))


def _answers(emit: SizeEmit, x: Value, forest: Forest) -> tuple[Value, dict[int, int]]:
    """[N, nodes] of 0 and 1, and the column of each node."""
    parts, order = [], []
    for mode in np.unique(forest.modes):
        places = np.flatnonzero(forest.modes == mode)
        feature = emit(Gather(1), x, emit.constant(forest.features[places]))
        if mode == MEMBER:
            assert forest.members is not None
            answer = _is_member(emit, feature, forest.members)
        else:
            refuse_unless(mode <= NOT_EQUAL, f"mode {mode} is not known")
            split = emit.constant(forest.splits[places].astype(x.dtype))
            answer = emit(Binary("Equal" if mode == NOT_EQUAL else COMPARISONS[mode]), feature, split)
            answer = emit(Unary("Not"), answer) if mode == NOT_EQUAL else answer
        if forest.missing[places].any():
            absent = emit(Unary("Not"), emit(Binary("Equal"), feature, feature))
            here = emit(Binary("And"), absent, emit.constant(forest.missing[places][None]))
            answer = emit(Binary("Or"), answer, here)
        parts.append(converted(emit, answer, F32))
        order += places.tolist()
    if not parts:
        return emit(Expand((x.shape[0], 0)), emit.constant(np.zeros((1, 0), F32))), {}
    joined = parts[0] if len(parts) == 1 else emit(Concat(1), *parts)
    return joined, {place: column for column, place in enumerate(order)}


def _is_member(emit: SizeEmit, feature: Value, members: np.ndarray) -> Value:
    wide = to_shape(emit, feature, (*feature.shape, 1))
    same = converted(emit, emit(Binary("Equal"), wide, emit.constant(members[None])), F32)
    count = emit(Reduce("max", (2,), False), same)
    return emit(Binary("Greater"), count, emit.constant(0, like=count))


@onnx_op("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, features] to [N, targets]: the sum, or the mean, of what the trees say."""
    x = node.input(0)
    combine = node.int("aggregate_function", SUM)
    refuse_unless(combine in (AVERAGE, SUM), "the least or most of trees is not supported")
    refuse_unless(not node.int("post_transform", 0), "a function of what the trees say is not supported")
    modes, splits = node.tensor("nodes_modes").reshape(-1), node.tensor("nodes_splits").reshape(-1)
    features = np.array(node.ints("nodes_featureids"), I64)
    if not len(modes) == len(splits) == len(features):
        raise ModelError(f"{len(modes)} modes, {len(splits)} splits and {len(features)} features")
    ways = {
        answer: [
            (child, bool(ends))
            for child, ends in zip(node.ints(f"nodes_{name}nodeids"), node.ints(f"nodes_{name}leafs"), strict=True)
        ]
        for answer, name in ((True, "true"), (False, "false"))
    }
    weights = zip(node.ints("leaf_targetids"), node.tensor("leaf_weights").reshape(-1).tolist(), strict=True)
    forest = Forest(
        modes, splits, features, _missing(node, len(modes)), ways, [(root, False) for root in node.ints("tree_roots")],
        [(number, target, weight) for number, (target, weight) in enumerate(weights)], node.int("n_targets"),
        _members(node, int((modes == MEMBER).sum()), x.dtype),
    )  # fmt: skip
    found = total(emit, x, forest)
    return found if combine == SUM else emit(Binary("Div"), found, emit.constant(len(forest.roots), like=found))


def _missing(node: OnnxNode, nodes: int) -> np.ndarray:
    """Of each node, whether NaN is a yes."""
    told = node.ints("nodes_missing_value_tracks_true", [])
    if len(told) not in (0, nodes):
        raise ModelError(f"{len(told)} ways for missing values of {nodes} nodes")
    return np.array(told or [0] * nodes, bool)


def _members(node: OnnxNode, count: int, dtype: np.dtype) -> np.ndarray | None:
    """[nodes, members] filled up with NaN, which equals nothing."""
    if not count:
        return None
    values = node.tensor("membership_values").astype(dtype)
    sets = np.split(values, np.flatnonzero(np.isnan(values)) + 1)[:-1] if values.size else []
    if len(sets) != count:
        raise ModelError(f"{len(sets)} sets of members for {count} nodes")
    table = np.full((count, max(map(len, sets), default=1)), np.nan, dtype)
    for row, members in zip(table, sets, strict=True):
        row[: len(members)] = members
    return table


@onnx_op("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, features] to [N, targets]: the sum, or the mean, of what the trees say, plus the base values."""
    targets = node.int("n_targets")
    forest = _old_forest(node, "target", targets)
    combine = node.choice("aggregate_function", "SUM", OLD_SUMS)
    refuse_unless(combine in ("SUM", "AVERAGE"), "the least or most of trees is not supported")
    found = total(emit, features(node, emit), forest)
    if combine == "AVERAGE":
        found = emit(Binary("Div"), found, emit.constant(len(forest.roots), like=found))
    return transformed(node, emit, _based(node, emit, found, targets))


@onnx_op("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value]:
    """The label of each row of features, and the scores of all classes.

    Of two classes, the label is the second one if its score is above 0. If trees speak of one of them alone, that is the score of
    the second one, and if none of their weights is below 0, it has to be above a half.
    """
    x, classes = features(node, emit), label_count(node)
    forest = _old_forest(node, "class", classes)
    if classes != 2:
        scores = _based(node, emit, total(emit, x, forest), classes)
        return labelled(node, emit, best(emit, scores)), transformed(node, emit, scores)
    told, base = {target for _, target, _ in forest.weights}, _base_values(node)
    shares = len(told) == 1 and all(weight >= 0 for *_, weight in forest.weights)
    threshold = 0.5 if shares else 0.0
    refuse_unless(
        len(told) == 2 or not base or (told == {0} and len(base) == 1), "base values of classes that no tree speaks of"
    )
    scores = total(emit, x, forest)
    first, second = (cut(emit, scores, 1, number, 1) for number in range(2))
    if told == {0}:
        score = emit(Binary("Add"), first, emit.constant(base[0], like=first)) if base else first
        return labelled(node, emit, above(emit, score, threshold)), both(node, emit, score, sum_to_one=shares)
    if len(base) == 2:  # as LightGBM's models have them
        second = emit(Binary("Add"), first, emit.constant(base[1], like=first))
        first = emit(Unary("Neg"), second)
    elif base:
        first = emit(Binary("Add"), first, emit.constant(base[0], like=first))
    scores = emit(Concat(1), first, second)
    return labelled(node, emit, above(emit, second, threshold)), transformed(node, emit, scores)


def _based(node: OnnxNode, emit: SizeEmit, found: Value, targets: int) -> Value:
    """What the trees say, plus the base values."""
    base = _base_values(node)
    if base and len(base) != targets:
        raise ModelError(f"{len(base)} base values for {targets} targets")
    return emit(Binary("Add"), found, emit.constant(np.array(base, F32))) if base else found


def _base_values(node: OnnxNode) -> list[float]:
    """The base values, which may be a tensor."""
    if node.has("base_values_as_tensor"):
        return node.tensor("base_values_as_tensor").reshape(-1).tolist()
    return node.floats("base_values", [])  # type: ignore[no-any-return]


def _old_forest(node: OnnxNode, name: str, targets: int) -> Forest:
    """The trees of the older operators, in which leaves are nodes and each node has the numbers of its tree and its own."""
    modes = node.strings("nodes_modes")
    keys = list(zip(node.ints("nodes_treeids"), node.ints("nodes_nodeids"), strict=True))
    places = {key: place for place, key in enumerate(keys)}
    is_leaf = [mode == "LEAF" for mode in modes]
    unknown = sorted(set(modes) - {*OLD_MODES, "LEAF"})
    refuse_unless(not unknown, f"nodes of mode {', '.join(unknown)} are not supported")
    columns = {"nodes_featureids": node.ints("nodes_featureids"), "nodes_values": _numbers(node, "nodes_values")}
    ids = {name: node.ints(name) for name in ("nodes_truenodeids", "nodes_falsenodeids")}
    for column, values in {**columns, **ids, "nodes_treeids": keys}.items():
        if len(values) != len(modes):
            raise ModelError(f"{len(values)} {column} for {len(modes)} nodes")
    branches = [place for place, ends in enumerate(is_leaf) if not ends]
    number = {place: at for at, place in enumerate(branches)}
    number.update({place: at for at, place in enumerate(p for p, ends in enumerate(is_leaf) if ends)})

    def child(place: int, name: str) -> tuple[int, bool]:
        found = places.get((keys[place][0], ids[name][place]))
        if found is None:
            raise ModelError(
                f"node {keys[place][1]} of tree {keys[place][0]} leads to node {ids[name][place]}, which is not there"
            )
        return number[found], is_leaf[found]

    reached = {(keys[place][0], ids[name][place]) for place in branches for name in ids}
    roots = [place for place, key in enumerate(keys) if key not in reached]
    weights = []
    told = zip(
        node.ints(f"{name}_treeids"), node.ints(f"{name}_nodeids"), node.ints(f"{name}_ids"), _numbers(node, f"{name}_weights"),
        strict=True,
    )  # fmt: skip
    for tree, own, target, weight in told:
        found = places.get((tree, own))
        if found is None or not 0 <= target < targets:
            raise ModelError(f"a weight of node {own} of tree {tree} for target {target}, which is not there")
        if is_leaf[found]:
            weights.append((number[found], target, weight))
    missing = _missing(node, len(modes))
    return Forest(
        np.array([OLD_MODES.index(modes[place]) for place in branches], I64),
        np.array([columns["nodes_values"][place] for place in branches], F32),
        np.array([columns["nodes_featureids"][place] for place in branches], I64),
        missing[branches],
        {answer: [child(place, name) for place in branches] for answer, name in zip((True, False), ids, strict=True)},
        [(number[place], is_leaf[place]) for place in roots],
        weights,
        targets,
    )


def _numbers(node: OnnxNode, name: str) -> list[float]:
    """Numbers that may be a tensor, of double precision."""
    if node.has(f"{name}_as_tensor"):
        return node.tensor(f"{name}_as_tensor").reshape(-1).tolist()
    return node.floats(name)  # type: ignore[no-any-return]
