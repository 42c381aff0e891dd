"""Ensembles of decision trees."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.classical.domain import DOMAIN, features
from graphc.frontend.onnx.importers.classical.scores import (
    POST_TRANSFORMS,
    above,
    best,
    both,
    label_count,
    labelled,
    post_transform,
    transformed,
)
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, F64, I32, I64
from graphc.ops.movement import Concat
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.trees import Relation, TreeEnsemble

COMBINE = {"AVERAGE": "add", "SUM": "add", "MIN": "min", "MAX": "max"}
"""What is done to the weights of the leaves that a row comes to, in the order of the operator's numbers."""
MODES = {
    "BRANCH_LEQ": Relation.LESS | Relation.EQUAL,
    "BRANCH_LT": Relation.LESS,
    "BRANCH_GTE": Relation.MORE | Relation.EQUAL,
    "BRANCH_GT": Relation.MORE,
    "BRANCH_EQ": Relation.EQUAL,
    "BRANCH_NEQ": Relation.LESS | Relation.MORE | Relation.NAN,
}
"""The relations of a feature to its split that mean yes, in the order of the newer operator's numbers, which has one more."""
MEMBER = len(MODES)
"""Whether a feature is one of several numbers."""


@dataclass
class Forest:
    """Trees: the relations to its split that each node says yes to, its feature, where its answers lead (to a node, or to leaf n,
    written as -1 - n), and where each tree begins; of each weight its leaf, its target and itself."""

    relations: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    roots: np.ndarray
    leaves: np.ndarray
    told: np.ndarray
    weights: np.ndarray


def total(emit: SizeEmit, x: Value, forest: Forest, targets: int, combine: str = "SUM") -> Value:
    """[N, features] to [N, targets]: what the trees say together."""
    refuse_unless(forest.roots.size > 0, "it has no trees")
    _check_ways(forest)
    if isinstance(x.shape[1], int):
        _check(forest.features, x.shape[1], "a node asks for feature")
    _check(forest.told, targets, "a weight is for target")
    order = np.argsort(forest.leaves, kind="stable")
    ways = forest.yes, forest.no, forest.roots
    leaves = max(1 + forest.leaves.max(initial=-1), *(-way.min(initial=0) for way in ways))
    tables = {
        "splits": forest.splits.astype(x.dtype),
        "nodes": np.stack([forest.relations, forest.features, forest.yes, forest.no], 1).astype(I32),
        "roots": forest.roots.astype(I32),
        "ends": np.searchsorted(forest.leaves[order], np.arange(leaves), "right").astype(I32),
        "targets": forest.told[order].astype(I32),
        "weights": forest.weights[order].astype(x.dtype),
    }
    constants = [emit.constant(table, name=name) for name, table in tables.items()]
    found = emit(TreeEnsemble(targets, COMBINE[combine]), x, *constants)
    return emit(Binary("Div"), found, emit.constant(forest.roots.size, like=found)) if combine == "AVERAGE" else found


def _check(numbers: np.ndarray, count: int, what: str) -> None:
    """Raise ModelError unless all are numbers of `count` things."""
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if wrong.size:
        raise ModelError(f"{what} {wrong[0]} of {count}")


def _check_ways(forest: Forest) -> None:
    """Raise ModelError if a way leads to a node that is not there, or has no end."""
    count = len(forest.splits)
    here = forest.roots
    for _ in range(count + 1):
        here = np.unique(here[here >= 0])
        if not here.size:
            return
        _check(here, count, "a tree leads to node")
        here = np.concatenate([forest.yes[here], forest.no[here]])
    raise ModelError("a tree has a cycle")


@onnx_op("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, features] to [N, targets]: the sum, the mean, the least or the most of what the trees say."""
    x = node.input(0)
    combine, post = node.int("aggregate_function", 1), node.int("post_transform", 0)
    refuse_unless(0 <= combine < len(COMBINE), f"aggregate_function {combine} is not known")
    refuse_unless(0 <= post < len(POST_TRANSFORMS), f"post_transform {post} is not known")
    found = total(emit, x, _forest(node), node.int("n_targets"), list(COMBINE)[combine])
    return transformed(emit, found, list(POST_TRANSFORMS)[post])


def _forest(node: OnnxNode) -> Forest:
    """The trees of the newer operator, in which leaves have numbers of their own."""
    modes, splits = (node.tensor(f"nodes_{name}").reshape(-1) for name in ("modes", "splits"))
    asked = np.array(node.ints("nodes_featureids"), I64)
    ways = {}
    for answer in ("true", "false"):
        children = np.array(node.ints(f"nodes_{answer}nodeids"), I64)
        ends = np.array(node.ints(f"nodes_{answer}leafs"), bool)
        if not len(modes) == len(splits) == len(asked) == len(children) == len(ends):
            raise ModelError(f"{len(modes)} modes, {len(splits)} splits, {len(asked)} features, {len(children)} ways")
        if (children < 0).any():
            raise ModelError(f"a tree leads to node {children.min()}")
        ways[answer] = np.where(ends, -1 - children, children)
    unknown = np.setdiff1d(modes, np.arange(MEMBER + 1))
    refuse_unless(not unknown.size, f"nodes of mode {', '.join(map(str, unknown))} are not supported")
    relations = np.array([*map(int, MODES.values()), int(Relation.EQUAL)])[modes.astype(I64)]
    targets = np.array(node.ints("leaf_targetids"), I64)
    weights = node.tensor("leaf_weights").reshape(-1)
    if len(targets) != len(weights):
        raise ModelError(f"{len(targets)} targets and {len(weights)} weights of leaves")
    forest = Forest(
        relations | _missing(node, len(modes)), asked, splits, ways["true"], ways["false"],
        np.array(node.ints("tree_roots"), I64), np.arange(len(weights)), targets, weights,
    )  # fmt: skip
    places = np.flatnonzero(modes == MEMBER)
    return _with_members(forest, places, _members(node, len(places))) if places.size else forest


def _missing(node: OnnxNode, nodes: int) -> np.ndarray:
    """Of each node, whether NaN is a yes, as a relation."""
    told = node.ints("nodes_missing_value_tracks_true", [])
    if len(told) not in (0, nodes):
        raise ModelError(f"{len(told)} ways for missing values of {nodes} nodes")
    return np.where(told, int(Relation.NAN), 0) if told else np.zeros(nodes, int)


def _members(node: OnnxNode, count: int) -> list[np.ndarray]:
    """The numbers of each set: NaN ends one."""
    values = node.tensor("membership_values").reshape(-1)
    sets = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    sets = [members[~np.isnan(members)] for members in (sets if sets[-1].size else sets[:-1])]
    if len(sets) != count:
        raise ModelError(f"{len(sets)} sets of members for {count} nodes")
    return sets


def _with_members(forest: Forest, places: np.ndarray, sets: list[np.ndarray]) -> Forest:
    """The same where nodes at `places` ask for members of sets: one node after the other asks for one number."""
    columns = [list(column) for column in (forest.relations, forest.features, forest.splits, forest.yes, forest.no)]
    relations, _, splits, _, no = columns
    for place, members in zip(places, sets, strict=True):
        here = place
        for number, member in enumerate(members):
            if number:
                last, here = here, len(splits)
                for column in columns:
                    column.append(column[place])
                no[here], no[last] = forest.no[place], here
            splits[here] = member
        if not members.size:
            relations[place] &= int(Relation.NAN)
    return replace(
        forest, **dict(zip(("relations", "features", "splits", "yes", "no"), map(np.array, columns), strict=True))
    )


@onnx_op("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, features] to [N, targets]: the sum, the mean, the least or the most of what the trees say, plus the base values."""
    targets = node.int("n_targets")
    combine = node.choice("aggregate_function", "SUM", tuple(COMBINE))
    found = _told(emit, node, _old_forest(node, "target"), targets, combine)
    return transformed(emit, _based(node, emit, found, targets), post_transform(node))


@onnx_op("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value]:
    """The label of each row of features, and the scores of all classes.

    Of two classes, the label is the second one if its score is above 0. If trees speak of one of them alone, that is the score of
    the second one, and if none of their weights is below 0, it has to be above a half.
    """
    classes, forest = label_count(node), _old_forest(node, "class")
    scores = _told(emit, node, forest, classes)
    if classes != 2:
        scores = _based(node, emit, scores, classes)
        return labelled(node, emit, best(emit, scores)), transformed(emit, scores, post_transform(node))
    told, base = set(forest.told.tolist()), _base_values(node)
    shares = len(told) == 1 and bool((forest.weights >= 0).all())
    threshold = 0.5 if shares else 0.0
    refuse_unless(
        len(told) == 2 or not base or (told == {0} and len(base) == 1), "base values of classes that no tree speaks of"
    )
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
    return labelled(node, emit, above(emit, second, threshold)), transformed(emit, scores, post_transform(node))


def _told(emit: SizeEmit, node: OnnxNode, forest: Forest, targets: int, combine: str = "SUM") -> Value:
    """What the trees of an older operator say: numbers of double precision are compared as they are, the results are float32."""
    return converted(emit, total(emit, features(node, emit, keep=F64), forest, targets, combine), F32)


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


def _old_forest(node: OnnxNode, name: str) -> Forest:
    """The trees of the older operators, in which leaves are nodes and each node has the numbers of its tree and its own."""
    modes = node.strings("nodes_modes")
    unknown = sorted(set(modes) - {*MODES, "LEAF"})
    refuse_unless(not unknown, f"nodes of mode {', '.join(unknown)} are not supported")
    ids = {each: node.ints(f"nodes_{each}ids") for each in ("tree", "node", "feature", "truenode", "falsenode")}
    splits = _numbers(node, "nodes_values")
    for column, values in {
        **{f"nodes_{each}ids": found for each, found in ids.items()},
        "nodes_values": splits,
    }.items():
        if len(values) != len(modes):
            raise ModelError(f"{len(values)} {column} for {len(modes)} nodes")
    keys = list(zip(ids["tree"], ids["node"], strict=True))
    is_leaf = np.array([mode == "LEAF" for mode in modes], bool)
    branches = np.flatnonzero(~is_leaf)
    number = np.where(is_leaf, -np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1)
    places = dict(zip(keys, number.tolist(), strict=True))

    def ways(answer: str) -> np.ndarray:
        """Where this answer leads from each branch."""
        found = []
        for place in branches:
            tree, own, child = ids["tree"][place], ids["node"][place], ids[answer][place]
            if (tree, child) not in places:
                raise ModelError(f"node {own} of tree {tree} leads to node {child}, which is not there")
            found.append(places[tree, child])
        return np.array(found, I64)

    yes, no = ways("truenode"), ways("falsenode")
    weights = np.array(_numbers(node, f"{name}_weights"), F64)
    owners, told = [], node.ints(f"{name}_ids")
    for tree, own in zip(node.ints(f"{name}_treeids"), node.ints(f"{name}_nodeids"), strict=True):
        if (tree, own) not in places:
            raise ModelError(f"a weight of node {own} of tree {tree}, which is not there")
        owners.append(places[tree, own])
    if not len(owners) == len(told) == len(weights):
        raise ModelError(f"{len(owners)} nodes, {len(told)} targets and {len(weights)} weights of leaves")
    leaves = np.array(owners, I64)
    weighed = leaves < 0
    relations = np.array([int(MODES[modes[place]]) for place in branches], I64)
    return Forest(
        relations | _missing(node, len(modes))[branches],
        np.array(ids["feature"], I64)[branches],
        np.array(splits, F64)[branches],
        yes,
        no,
        np.setdiff1d(number, np.concatenate([yes, no])),
        -1 - leaves[weighed],
        np.array(told, I64)[weighed],
        weights[weighed],
    )


def _numbers(node: OnnxNode, name: str) -> list[float]:
    """Numbers that may be a tensor, of double precision."""
    if node.has(f"{name}_as_tensor"):
        return node.tensor(f"{name}_as_tensor").reshape(-1).tolist()
    return node.floats(name)  # type: ignore[no-any-return]
