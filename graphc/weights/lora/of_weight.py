"""Changes that are made of the weight itself: it is turned (OFT, BOFT), scaled (IA3) or multiplied by factors (GLoRA).

A convolution's weight [out, in, height, width] is the matrix [out, in * height * width] here, with a kernel of height * width.

Sources: OFT, https://arxiv.org/abs/2306.07280; BOFT, https://arxiv.org/abs/2311.06243; IA3, https://arxiv.org/abs/2205.05638;
GLoRA, https://arxiv.org/abs/2306.07967; and what LyCORIS, kohya's scripts, PEFT and OneTrainer compute of their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from graphc.weights.lora.algebra import Factors, sizes

Take: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Takes one of our matrices out of what an adapter changes, which may have several, one below the other."""


@dataclass(frozen=True)
class Turning:
    """How PEFT's numbers of a rotation make it: by so many terms of a series, or exactly with 0 terms. OneTrainer's files, which
    have no settings, turn kernels the other way round (`kernels_back`)."""

    terms: int = 5
    kernels_back: bool = True


ALONE = Turning()
"""That of a file without settings."""


@dataclass(frozen=True)
class OfWeight:
    """A kind of such changes. `axes` are as in `Algebra`; `rows` and `columns` the letters whose product is the weight's size,
    None where the change is the same for any number of them. `columns` are inputs, each of a whole kernel, if `inputs`.

    `change` takes the weight's matrix, its kernel, how much of the change is wanted, `Take`, `Turning`, and the factors. `unit`
    is how many rows one below the other are needed for one: letters of `axes` whose product that is.
    """

    axes: Mapping[str, str]
    rows: str | None
    columns: str | None
    change: Callable[..., np.ndarray]
    inputs: bool = False
    unit: str = ""
    scaled: bool = False

    def shape(self, factors: Factors, kernel: int) -> tuple[int | None, int | None]:
        """The rows and columns of weights that can be changed; None for any number. Raises ValueError."""
        found = sizes(self.axes, factors)
        if self.scaled and found["n"] != found["i"] * kernel:
            raise ValueError(f"its tensors do not fit together (of {found['n']} and of {found['i'] * kernel} columns)")
        rows = None if self.rows is None else prod(found[each] for each in self.rows)
        columns = None if self.columns is None else prod(found[each] for each in self.columns)
        return rows, columns if columns is None or not self.inputs else columns * kernel

    def rank(self, factors: Factors) -> int | None:
        """What alpha is divided by; None where alpha is no scale. Raises ValueError."""
        return sizes(self.axes, factors)["r"] if self.scaled else None

    def splits(self, factors: Factors, take: Take) -> bool:
        """True if a part of the change's rows has some of a unit without the others. Raises ValueError."""
        found = sizes(self.axes, factors)
        unit = prod(found[each] for each in self.unit)
        return unit > 1 and not _are_units(_places(prod(found[each] for each in self.rows or ""), take), unit)


def _places(rows: int, take: Take) -> np.ndarray:
    """Which of the change's rows are ours."""
    return np.asarray(take(np.arange(rows)[:, None]))[:, 0]


def _are_units(places: np.ndarray, unit: int) -> bool:
    """True if places are those of units, each of them whole."""
    whole = len(places) % unit == 0 and not np.any(places[::unit] % unit)
    return whole and not np.any(places.reshape(-1, unit) != places[::unit, None] + np.arange(unit))


def _skew(blocks: np.ndarray, limit: float) -> np.ndarray:
    """Blocks minus themselves transposed, made smaller if all together are longer than a limit that is not 0."""
    skew: np.ndarray = blocks - blocks.swapaxes(-1, -2)
    length = np.sqrt(np.sum(np.square(skew)))
    return skew * (limit / length) if 0 < limit < length else skew


def _cayley(skew: np.ndarray) -> np.ndarray:
    """The rotations (1 + skew) (1 - skew)^-1."""
    one = np.eye(skew.shape[-1])
    return np.asarray(np.linalg.solve((one - skew).swapaxes(-1, -2), (one + skew).swapaxes(-1, -2)).swapaxes(-1, -2))


def _constraint(factors: Factors, rows: int) -> float:
    """What alpha stands for beside rotations: how far they may go, for each row."""
    alpha = factors.get("alpha")
    return 0.0 if alpha is None else float(alpha.reshape(-1)[0]) * rows


def _stretched(turned: np.ndarray, weight: np.ndarray, scale: float, take: Take, factors: Factors) -> np.ndarray:
    """A turned weight, whose rows may also be made longer, as a change."""
    if (rescale := factors.get("rescale")) is not None:
        turned = turned * (1 + scale * (take(rescale.reshape(-1, 1).astype(weight.dtype)) - 1))
    return np.asarray(turned - weight)


def _turned_rows(
    weight: np.ndarray, kernel: int, scale: float, take: Take, turning: Turning, factors: Factors
) -> np.ndarray:
    """OFT of LyCORIS and kohya: rows are turned in blocks, each by its transposed rotation."""
    turned = np.empty_like(weight)
    for blocks, here, places in _parts(factors, take):
        size = blocks.shape[-1]
        rotations = _cayley(_skew(blocks.astype(np.float64), _constraint(factors, len(blocks) * size)))
        own = rotations[places[::size] // size].swapaxes(1, 2)
        turns = ((1 - scale) * np.eye(size) + scale * own).astype(weight.dtype)
        turned[here] = (turns @ weight[here].reshape(len(own), size, -1)).reshape(len(places), -1)
    return _stretched(turned, weight, scale, take, factors)


def _parts(factors: Factors, take: Take) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The blocks of each part of the rows in which some of ours are, which these are, and where there."""
    parts = [factors[name] for name in PARTS if name in factors]
    ends = np.cumsum([len(each) * each.shape[-1] for each in parts])
    places = _places(int(ends[-1]), take)
    for blocks, end in zip(parts, ends, strict=True):
        start = end - len(blocks) * blocks.shape[-1]
        here = (places >= start) & (places < end)
        if here.any():
            yield blocks, here, places[here] - start


@dataclass(frozen=True)
class OfParts(OfWeight):
    """Blocks of rows, in one part or, for several matrices one below the other, in parts with blocks of other sizes."""

    def shape(self, factors: Factors, kernel: int) -> tuple[int | None, int | None]:
        """The rows of all parts, and any number of columns."""
        found = sizes(self.axes, factors)
        return found["k"] * sum(found[letters[-1]] for letters in self.axes.values()), None

    def splits(self, factors: Factors, take: Take) -> bool:
        """True if only some rows of a block are ours."""
        return not all(_are_units(places, blocks.shape[-1]) for blocks, _, places in _parts(factors, take))


def _butterfly(
    weight: np.ndarray, kernel: int, scale: float, take: Take, turning: Turning, factors: Factors
) -> np.ndarray:
    """BOFT of LyCORIS: rotations of blocks one after the other, each of rows that lie twice as far from each other."""
    blocks = factors["boft_blocks"].astype(np.float64)
    size = blocks.shape[-1]
    rotations = (1 - scale) * np.eye(size) + scale * _cayley(_skew(blocks, _constraint(factors, len(weight))))
    turned = weight
    for level, own in enumerate(rotations.astype(weight.dtype)):
        apart = 2**level * (size // 2)
        mixed = turned.reshape(-1, 2, apart, weight.shape[1]).swapaxes(1, 2).reshape(-1, size, weight.shape[1])
        mixed = (own @ mixed).reshape(-1, apart, 2, weight.shape[1])
        turned = mixed.swapaxes(1, 2).reshape(weight.shape)
    return _stretched(turned, weight, scale, take, factors)


def _turned_columns(
    weight: np.ndarray, kernel: int, scale: float, take: Take, turning: Turning, factors: Factors
) -> np.ndarray:
    """OFT of PEFT and OneTrainer: inputs are turned in blocks; the numbers are those above a block's diagonal."""
    numbers = factors["oft_R"].astype(np.float64)
    size = block_of(numbers)
    skew = np.zeros((len(numbers), size, size))
    skew[:, *np.triu_indices(size, 1)] = numbers / (2 * np.sqrt(size - 1) if "scaled_oft" in factors else 1)
    rotations = _rotations(skew - skew.swapaxes(1, 2), turning.terms)
    if not (turning.kernels_back and kernel > 1):
        rotations = rotations.swapaxes(1, 2)
    turns = (scale * (rotations - np.eye(size))).astype(weight.dtype)
    return np.asarray((weight.reshape(len(weight), -1, 1, size) @ turns).reshape(weight.shape))


def _rotations(skew: np.ndarray, terms: int) -> np.ndarray:
    """1 + 2 skew + 2 skew^2 + … + skew^(terms - 1), or exactly (1 - skew) (1 + skew)^-1, which is the other way round."""
    if not terms:
        return _cayley(-skew)
    total, power = np.broadcast_to(np.eye(skew.shape[-1]), skew.shape).copy(), skew
    for place in range(1, terms):
        total += power * (1 if place == terms - 1 and terms > 3 else 2)
        power = power @ skew
    return total


def block_of(numbers: np.ndarray) -> int:
    """The rows of blocks of which a matrix has as many numbers above their diagonals as columns. Raises ValueError."""
    if numbers.ndim == 2:
        size = int((1 + np.sqrt(1 + 8 * numbers.shape[1])) / 2)
        if size * (size - 1) // 2 == numbers.shape[1] > 0:
            return size
    raise ValueError(f"oft_R {list(numbers.shape)} has no numbers of rotations")


@dataclass(frozen=True)
class OfInputs(OfWeight):
    """Rotations of inputs in blocks: one for each, or the same for all."""

    def shape(self, factors: Factors, kernel: int) -> tuple[int | None, int | None]:
        """Any number of rows, and as many columns as blocks have."""
        numbers = factors["oft_R"]
        return None, block_of(numbers) * len(numbers) if len(numbers) != 1 else None


def _scaled_rows(
    weight: np.ndarray, kernel: int, scale: float, take: Take, turning: Turning, factors: Factors
) -> np.ndarray:
    return np.asarray(weight * take(scale * factors["ia3_rows"].reshape(-1, 1).astype(weight.dtype)))


def _scaled_columns(
    weight: np.ndarray, kernel: int, scale: float, take: Take, turning: Turning, factors: Factors
) -> np.ndarray:
    return np.asarray(weight * np.repeat(scale * factors["ia3_columns"].reshape(-1).astype(weight.dtype), kernel))


def _multiplied(
    weight: np.ndarray, kernel: int, scale: float, take: Take, turning: Turning, factors: Factors
) -> np.ndarray:
    """GLoRA: W a1 a2 + b1 b2, where a1 and a2 are of inputs, at each place of a kernel alike."""
    a1, a2, b1, b2 = (
        factors[each].astype(weight.dtype).reshape(len(factors[each]), -1) for each in ("a1", "a2", "b1", "b2")
    )
    of_inputs = weight.reshape(len(weight), -1, kernel).swapaxes(1, 2) @ a1 @ a2
    return np.asarray(scale * (of_inputs.swapaxes(1, 2).reshape(weight.shape) + take(b1) @ b2))


def _multiplied_before(
    weight: np.ndarray, kernel: int, scale: float, take: Take, turning: Turning, factors: Factors
) -> np.ndarray:
    """The same of LyCORIS's first files, in which either of two has the other's name."""
    renamed = {name: factors[other] for name, other in (("a1", "a2"), ("a2", "a1"), ("b1", "b2"), ("b2", "b1"))}
    return _multiplied(weight, kernel, scale, take, turning, renamed)


PARTS = ("oft_blocks", "oft_blocks.1", "oft_blocks.2", "oft_blocks.3")
"""What the blocks of each part are called: kohya's queries, keys, values and feed-forward layer of Flux."""

KINDS_OF_WEIGHT = [
    *(
        OfParts(dict(zip(PARTS[:count], ("knn", "kmm", "kpp", "kqq"), strict=False)), "", None, _turned_rows)
        for count in range(1, len(PARTS) + 1)
    ),
    OfWeight({"boft_blocks": "sknn"}, "kn", None, _butterfly, unit="kn"),
    OfInputs({"oft_R": "kn"}, None, "kn", _turned_columns),
    OfWeight({"ia3_rows": "o"}, "o", None, _scaled_rows),
    OfWeight({"ia3_columns": "i"}, None, "i", _scaled_columns, inputs=True),
    OfWeight({"a1": "ir", "a2": "ri", "b1": "or", "b2": "rn"}, "o", "n", _multiplied, scaled=True),
    OfWeight({"a1": "ri", "a2": "ir", "b1": "rn", "b2": "or"}, "o", "n", _multiplied_before, scaled=True),
]
