"""Ensembles of decision trees: forests, and trees that improve on those before them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

import numpy as np

from graphc.errors import InputError, ShapeError
from graphc.ir.types import F32, F64, I32, TensorType
from graphc.ops.base import Op, Routine


class Relation(IntFlag):
    """What is known of a feature and the number that a node compares it with."""

    LESS = 1
    EQUAL = 2
    MORE = 4
    NAN = 8
    """One of them is NaN."""


COMBINE = {
    "add": (np.add, 0.0, "GRAPHC_ADD"),
    "min": (np.fmin, np.nan, "GRAPHC_MIN"),
    "max": (np.fmax, np.nan, "GRAPHC_MAX"),
}
"""How the weights for one target become one: the function, what stands for none, and what C calls it."""


@dataclass(frozen=True)
class TreeEnsemble(Op):
    """x [rows, features], splits [nodes], nodes [nodes, 4], roots [trees], ends [leaves], targets and weights [weights]
    -> [rows, targets]

    The weights of the leaves that a row comes to, one in each tree, those for the same target together; 0 where there are none. A
    node is the `Relation`s of a feature to its split that mean yes, which feature it asks for, and where yes and no lead: to a
    node, or to leaf n, written as -1 - n. A leaf's weights begin where those of the leaf before it end. All of that is
    int32. A row whose way leads to what is not there, or does not end, is an InputError.
    """

    targets: int
    combine: str = "add"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        x, splits, _, roots, ends, _, weights = inputs
        if x.dtype not in (F32, F64) or x.rank != 2 or self.combine not in COMBINE or self.targets < 0:
            raise ShapeError(f"TreeEnsemble: the {self.combine} for {self.targets} targets of {x}")
        count, weighed = splits.shape[:1], weights.shape[:1]
        wanted = (
            TensorType(x.dtype, count), TensorType(I32, (*count, 4)), TensorType(I32, roots.shape[:1]),
            TensorType(I32, ends.shape[:1]), TensorType(I32, weighed), TensorType(x.dtype, weighed),
        )  # fmt: skip
        if inputs[1:] != wanted:
            raise ShapeError(f"TreeEnsemble: trees of {', '.join(map(str, inputs[1:]))}")
        return (TensorType(x.dtype, (x.shape[0], self.targets)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        x, splits, nodes, roots, ends, targets, weights = inputs
        leaves = _leaves(x, splits, nodes, roots)
        _check(leaves, len(ends))
        starts = np.concatenate([np.zeros(1, I32), ends])
        function, none, _ = COMBINE[self.combine]
        totals = np.full((len(x), self.targets), none)
        counts = starts[leaves + 1] - starts[leaves]
        for number in range(counts.max(initial=0)):
            rows, trees = np.nonzero(counts > number)
            places = starts[leaves[rows, trees]] + number
            _check(places, len(weights))
            _check(targets[places], self.targets)
            function.at(totals, (rows, targets[places]), weights[places].astype(F64))
        nothing = np.isnan(totals) & np.isnan(none)
        return (np.where(nothing, 0, totals).astype(x.dtype),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """A walk from the first node of each tree to a leaf."""
        x, splits, _, roots, ends, targets, _ = inputs
        sizes = (*x.shape, splits.shape[0], roots.shape[0], ends.shape[0], targets.shape[0], self.targets)
        return Routine("trees", "tree_ensemble", (x.dtype,), (*sizes, COMBINE[self.combine][2]), (FAULT,))


FAULT = "TreeEnsemble: a tree leads to a node, a leaf or a target, or asks for a feature, that is not there, or it has no end"
"""What a run that fails says."""


def _leaves(x: np.ndarray, splits: np.ndarray, nodes: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """The number of the leaf in each tree that each row comes to: [rows, trees]."""
    places = np.repeat(roots[None], len(x), 0)
    for _ in range(len(nodes) + 1):
        rows, trees = np.nonzero(places >= 0)
        if not rows.size:
            return -1 - places
        here = places[rows, trees]
        _check(here, len(nodes))
        relations, feature, yes, no = nodes[here].T
        _check(feature, x.shape[1])
        found = _relation(x[rows, feature], splits[here])
        places[rows, trees] = np.where(relations & found, yes, no)
    raise InputError(FAULT)


def _relation(x: np.ndarray, split: np.ndarray) -> np.ndarray:
    """The `Relation` of each feature to its split."""
    conditions = (x < split, Relation.LESS), (x == split, Relation.EQUAL), (x > split, Relation.MORE)
    return np.select([holds for holds, _ in conditions], [int(each) for _, each in conditions], int(Relation.NAN))


def _check(numbers: np.ndarray, count: int) -> None:
    """Raise InputError unless all of them are numbers of `count` things."""
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < count:
        raise InputError(FAULT)
