"""One module's change, as a file has it: factors, their scale, and what is done with their product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from graphc.weights.lora.algebra import ALGEBRAS, Algebra, sizes
from graphc.weights.lora.of_weight import ALONE, KINDS_OF_WEIGHT, OfWeight, Take, Turning

BESIDE = {"alpha", "magnitude", "dora_scale", "rescale", "scaled_oft"}
"""Tensors that are no factors: they say what is done with the product."""

KINDS = {
    "hada": "LoHa", "lokr": "LoKr", "diff": "change", "oft": "OFT", "boft": "BOFT", "ia3": "IA3", "a1": "GLoRA",
}  # fmt: skip
"""What adapters are called that are no LoRA, by how the names of their tensors begin."""


@dataclass(frozen=True, eq=False)
class Adapter:
    """A change of one weight or bias: its tensors by what they are, under the name that the file gives the module.

    `scale` is what the file's settings say; None if they do not: then it is alpha divided by the rank. If `replaces`, the
    product is what the weight is to be; if `transposed`, it is the change with its axes exchanged. `turning` is how a rotation
    is made of the file's numbers.
    """

    name: str
    tensors: Mapping[str, np.ndarray]
    scale: float | None = None
    replaces: bool = False
    transposed: bool = False
    turning: Turning = ALONE

    @cached_property
    def algebra(self) -> Algebra | OfWeight:
        """How the factors are put together. Raises ValueError if they are of no known kind, or one is missing."""
        factors = self.tensors.keys() - BESIDE
        kinds: list[Algebra | OfWeight] = [*ALGEBRAS, *KINDS_OF_WEIGHT]
        if same := [each for each in kinds if each.axes.keys() == factors]:
            return next((each for each in same if self._fits(each)), same[0])
        lacking = sorted((sorted(each.axes.keys() - factors) for each in kinds if each.axes.keys() > factors), key=len)
        if not factors or not lacking:
            raise ValueError(f"{', '.join(sorted(self.tensors))} together are no kind of LoRA that is known")
        raise ValueError(f"it has {', '.join(sorted(factors))} without {', '.join(lacking[0])}")

    def _fits(self, kind: Algebra | OfWeight) -> bool:
        try:
            sizes(kind.axes, self.tensors)
        except ValueError:
            return False
        return True

    def shape(self, kernel: int) -> tuple[int | None, int | None]:
        """The change's rows and columns, of a weight with so many columns to an input; None for any number. Raises ValueError."""
        rows, columns = self.algebra.shape(self.tensors, kernel)
        return (columns, rows) if self.transposed else (rows, columns)

    def splits(self, take: Take) -> bool:
        """True if `take` takes a part that depends on the others. Raises ValueError."""
        return isinstance(self.algebra, OfWeight) and self.algebra.splits(self.tensors, take)

    @cached_property
    def own_scale(self) -> float:
        """What the product of the factors is multiplied by. Raises ValueError if that is not a number."""
        alpha, rank = self.tensors.get("alpha"), self.algebra.rank(self.tensors)
        if self.scale is not None or alpha is None or rank is None:
            return 1.0 if self.scale is None else self.scale
        if alpha.size != 1 or not np.isfinite(alpha.astype(np.float64)).all():
            raise ValueError("its alpha is not a number")
        return float(alpha.reshape(-1)[0]) / rank

    def check(self, shape: tuple[int, ...]) -> None:
        """Look at what is in the tensors, for a weight of this shape. Raises ValueError."""
        _ = self.own_scale
        for name, array in self.tensors.items():
            if not np.isfinite(array.astype(np.float32, copy=False)).all():
                raise ValueError(f"{name} has elements that are not numbers")
        if self._lengths is not None and isinstance(self.algebra, OfWeight):
            raise ValueError(f"an {self.kind} is no kind that is known")
        if (rescale := self.tensors.get("rescale")) is not None and (
            not isinstance(self.algebra, OfWeight) or rescale.size != self.algebra.shape(self.tensors, 1)[0]
        ):
            raise ValueError(f"its rescale {list(rescale.shape)} does not fit {list(shape)}")
        if self._lengths is not None:
            rows = self.algebra.shape(self.tensors, 1)[0]
            if self._lengths.size != (shape[1] if self._by_columns else rows):
                raise ValueError(f"its magnitude {list(self._lengths.shape)} does not fit {list(shape)}")
            if self._by_columns and rows != shape[0]:
                raise ValueError("its magnitude is one of columns, of several of the model's weights together")

    def change(self, weight: np.ndarray, strength: float, take: Take, kernel: int = 1) -> np.ndarray:
        """What is added to a weight, as a matrix of float32 or float64 with `kernel` columns to an input; `take` gives its part
        of the whole change.

        Where the change depends on the weight (DoRA, or a weight that is replaced), the strength says how far the weight goes
        to where it would be: 0 leaves it as it is.
        """
        if self.transposed:
            return replace(self, transposed=False).change(weight.T, strength, take).T
        if isinstance(self.algebra, OfWeight):
            return self.algebra.change(weight, kernel, strength * self.own_scale, take, self.turning, self.tensors)
        if self._lengths is None and not self.replaces:
            return take(self.algebra.compute(self.tensors, strength * self.own_scale, weight.dtype))
        goal = take(self.algebra.compute(self.tensors, self.own_scale, weight.dtype))
        if not self.replaces:
            goal += weight
        if self._lengths is not None:
            goal *= self._stretch(goal, take)
        goal -= weight
        goal *= weight.dtype.type(strength)
        return goal

    @property
    def kind(self) -> str:
        """What it is called."""
        kind = next(
            (kind for beginning, kind in KINDS.items() if any(name.startswith(beginning) for name in self.tensors)),
            "LoRA",
        )
        return "replacement" if self.replaces else kind + (" with DoRA" if self._lengths is not None else "")

    @property
    def is_pair(self) -> bool:
        """True if the change is a product of two matrices and nothing else."""
        return self.tensors.keys() <= {"up", "down", "alpha"} and not self.transposed and not self.replaces

    @property
    def rank(self) -> int:
        """The columns of the first matrix, and rows of the second, of one that is a pair."""
        return len(self.tensors["down"])

    def pair(self, strength: float) -> tuple[np.ndarray, np.ndarray]:
        """The matrices [rows, rank] and [rank, columns] of one that is a pair, in float32; the strength is in the first."""
        up, down = (self.tensors[name].astype(np.float32) for name in ("up", "down"))
        up *= np.float32(strength * self.own_scale)
        return up.reshape(len(up), -1), down.reshape(len(down), -1)

    @property
    def _lengths(self) -> np.ndarray | None:
        """DoRA: how long each row of the changed weight is, or each column, where a convolution has a column an input."""
        return self.tensors.get("magnitude", self.tensors.get("dora_scale"))

    @property
    def _by_columns(self) -> bool:
        """True if lengths are columns'. Only LyCORIS's files have them, as [1, in]; theirs of rows are [out, 1]."""
        scale = self.tensors.get("dora_scale")
        return scale is not None and scale.ndim > 1 and len(scale) == 1 and self.algebra.shape(self.tensors, 1)[0] != 1

    def _stretch(self, weight: np.ndarray, take: Take) -> np.ndarray:
        """What a weight is multiplied by to have the lengths; what has none stays."""
        assert self._lengths is not None
        wanted = self._lengths.reshape(-1, 1).astype(np.float64)
        if self._by_columns:
            found = _norms(weight.reshape(len(weight), len(wanted), -1), "oik,oik->i")
        else:
            wanted = take(wanted)
            found = _norms(weight, "oi,oi->o")
        factors = np.divide(wanted[:, 0], found, out=np.ones_like(found), where=found > 0).astype(weight.dtype)
        return np.repeat(factors, weight.shape[1] // len(factors)) if self._by_columns else factors[:, None]


def _norms(weight: np.ndarray, sums: str) -> np.ndarray:
    """Square roots of sums of squares, in float64."""
    norms: np.ndarray = np.sqrt(np.einsum(sums, weight, weight, dtype=np.float64))
    return norms
