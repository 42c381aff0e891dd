"""How a change of a matrix is made of small factors: LoRA, LoCon, LoHa, LoKr, and what is the change itself.

A convolution's weight [out, in, height, width] is the matrix [out, in * height * width] here.

Sources: LoRA, https://arxiv.org/abs/2106.09685; LoHa, https://arxiv.org/abs/2108.06098; LoKr and the convolutions' cores,
https://arxiv.org/abs/2309.14859; DoRA, https://arxiv.org/abs/2402.09353.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

Factors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Algebra:
    """`axes` has the factors, and a letter for each of their axes: the same letter is the same size. Further axes of a factor
    belong to its last letter. `rows` and `columns` are the letters whose product is the change's size.

    `change` takes the factors in this order, as arrays of so many axes, and is linear in the first.
    """

    axes: Mapping[str, str]
    rows: str
    columns: str
    change: Callable[..., np.ndarray]

    def shape(self, factors: Factors, kernel: int = 1) -> tuple[int, int]:
        """The change's rows and columns. Raises ValueError."""
        found = sizes(self.axes, factors)
        return prod(found[each] for each in self.rows), prod(found[each] for each in self.columns)

    def rank(self, factors: Factors) -> int | None:
        """What alpha is divided by; None if nothing is factored. Raises ValueError."""
        found = sizes(self.axes, factors)
        return found.get("r", found.get("q"))

    def compute(self, factors: Factors, scale: float, dtype: np.dtype) -> np.ndarray:
        """`scale` times the change, computed in `dtype`. Raises ValueError."""
        sizes(self.axes, factors)
        arrays = [
            factors[name].astype(dtype).reshape(_merged(factors[name].shape, len(letters)))
            for name, letters in self.axes.items()
        ]
        arrays[0] *= dtype.type(scale)
        change: np.ndarray = self.change(*arrays)
        return change


def sizes(axes: Mapping[str, str], factors: Factors) -> dict[str, int]:
    """The size that each letter of the axes stands for. Raises ValueError if the factors do not fit together."""
    found: dict[str, int] = {}
    for name, letters in axes.items():
        shape = _merged(factors[name].shape, len(letters))
        fits = len(shape) == len(letters) and all(
            found.setdefault(letter, size) == size for letter, size in zip(letters, shape, strict=True)
        )
        if not fits:
            shapes = ", ".join(f"{each} {list(factors[each].shape)}" for each in axes)
            raise ValueError(f"its tensors do not fit together ({shapes})")
    if 0 in found.values():
        raise ValueError("it has a tensor without elements")
    return found


def _merged(shape: tuple[int, ...], axes: int) -> tuple[int, ...]:
    return shape if len(shape) < axes else (*shape[: axes - 1], prod(shape[axes - 1 :]))


def _core(left: np.ndarray, core: np.ndarray, right: np.ndarray) -> np.ndarray:
    """sum over r and s of left[o, r] core[r, s, k] right[s, i], as [o, i * k]."""
    rank, inner, kernel = core.shape
    part = (left @ core.reshape(rank, inner * kernel)).reshape(len(left), inner, kernel)
    product: np.ndarray = np.matmul(right.T, part).reshape(len(left), -1)
    return product


def _hadamard(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    product: np.ndarray = a @ b
    product *= c @ d
    return product


def _hadamard_cores(*factors: np.ndarray) -> np.ndarray:
    (a, b, core, c, d, other) = factors
    product: np.ndarray = _core(a.T, core, b)
    product *= _core(c.T, other, d)
    return product


def _kronecker(*factors: np.ndarray, first: int) -> np.ndarray:
    """The product of blocks: `first` factors make the one, the others the other."""
    left, right = factors[:first], factors[first:]
    one = left[0] if first == 1 else left[0] @ left[1]
    match right:
        case (whole,):
            other = whole
        case (a, b):
            other = a @ b
        case (a, b, core):
            other = _core(a.T, core, b)
    return np.kron(one, other)


def _kronecker_algebra(first: Mapping[str, str], second: Mapping[str, str]) -> Algebra:
    columns = "bdk" if "lokr_t2" in second else "bm"
    return Algebra({**first, **second}, "ac", columns, lambda *each: _kronecker(*each, first=len(first)))


ALGEBRAS = [
    Algebra({"up": "or", "down": "rn"}, "o", "n", lambda up, down: up @ down),
    Algebra({"up": "or", "mid": "rsk", "down": "si"}, "o", "ik", _core),
    Algebra({"embedding_up": "nr", "embedding_down": "ro"}, "o", "n", lambda up, down: (up @ down).T),
    Algebra({"hada_w1_a": "or", "hada_w1_b": "rn", "hada_w2_a": "os", "hada_w2_b": "sn"}, "o", "n", _hadamard),
    Algebra(
        {
            "hada_w1_a": "ro", "hada_w1_b": "si", "hada_t1": "rsk",
            "hada_w2_a": "po", "hada_w2_b": "qi", "hada_t2": "pqk",
        }, "o", "ik", _hadamard_cores,
    ),
    *(
        _kronecker_algebra(first, second)
        for first in ({"lokr_w1": "ab"}, {"lokr_w1_a": "aq", "lokr_w1_b": "qb"})
        for second in (
            {"lokr_w2": "cm"},
            {"lokr_w2_a": "cr", "lokr_w2_b": "rm"},
            {"lokr_w2_a": "rc", "lokr_w2_b": "sd", "lokr_t2": "rsk"},
        )
    ),
    Algebra({"diff": "on"}, "o", "n", lambda diff: diff),
]  # fmt: skip
