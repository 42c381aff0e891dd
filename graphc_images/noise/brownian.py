"""torchsde's Brownian tree in NumPy: noise that depends on the seed and on the two noise levels between which it is added.

torchsde 0.2.6, BrownianTree: Li, Wong, Chen, Duvenaud, Scalable Gradients for Stochastic Differential Equations (2020). Half of
an interval is known when its middle is drawn, from a seed that its place in the tree gives; so the values do not depend on
the order of the questions. Times are rounded to six digits.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

DIGITS = 6
POOL = 24
"""Size of NumPy's pool of entropy, as torchsde has it."""

REMEMBERED = 96
"""Increments that are kept: the paths to the ends of the last question, about forty nodes each."""


@dataclass(frozen=True)
class Node:
    """An interval of the tree: its number within its depth, and its ends."""

    key: int
    depth: int
    start: float
    end: float


class BrownianTree:
    """A Brownian motion on [start, end], a float32 array of `shape` at each time."""

    def __init__(
        self,
        start: float,
        end: float,
        shape: Sequence[int],
        seed: int,
        draw: Callable[[int, Sequence[int]], np.ndarray],
    ) -> None:
        """`draw(seed, shape)` gives normal numbers; each node draws with a seed of its own."""
        self.shape, self.seed, self.draw = tuple(shape), seed, draw
        self.whole = Node(0, 0, round(start, DIGITS), round(end, DIGITS))
        words = np.random.SeedSequence(seed, pool_size=POOL).generate_state(3)
        self.increment = draw(int(words[0]), self.shape) * np.float32(math.sqrt(end - start))
        self.remembered: OrderedDict[Node, np.ndarray] = OrderedDict()

    def __call__(self, start: float, end: float) -> np.ndarray:
        """The increment from `start` to `end`, of which the first is the smaller; what lies outside counts as the boundary."""
        low, high = self.whole.start, self.whole.end
        start, end = (round(min(max(time, low), high), DIGITS) for time in (start, end))
        if start == end:
            return np.zeros(self.shape, np.float32)
        total, *others = self._pieces(self.whole, self.increment, start, end)
        for piece in others:
            total = total + piece
        return total

    def _pieces(self, node: Node, increment: np.ndarray, start: float, end: float) -> Iterator[np.ndarray]:
        """The increments of the nodes that make up [start, end], from left to right."""
        if start == node.start and end == node.end:
            yield increment
            return
        middle = round(0.5 * (node.end + node.start), DIGITS)
        left = Node(2 * node.key, node.depth + 1, node.start, middle)
        right = Node(2 * node.key + 1, node.depth + 1, middle, node.end)
        of_left = self._left_half(node, left, increment)
        if start < middle:
            yield from self._pieces(left, of_left, start, min(end, middle))
        if end > middle:
            yield from self._pieces(right, increment - of_left, max(start, middle), end)

    def _left_half(self, node: Node, left: Node, increment: np.ndarray) -> np.ndarray:
        """Brownian bridge: what falls to the left half, given the whole increment."""
        if left in self.remembered:
            self.remembered.move_to_end(left)
            return self.remembered[left]
        sequence = np.random.SeedSequence(self.seed, spawn_key=(node.key, node.depth), pool_size=POOL)
        noise = self.draw(int(sequence.generate_state(4)[0]), self.shape)
        before, after, share = left.end - left.start, node.end - left.end, 1 / (node.end - node.start)
        mean = np.float32(before) * increment * np.float32(share)
        found = mean + np.float32(math.sqrt(before * after * share)) * noise
        self.remembered[left] = found
        if len(self.remembered) > REMEMBERED:
            self.remembered.popitem(last=False)
        return found


class BrownianNoise:
    """Normal noise for the way from one noise level to another, as k-diffusion's BrownianTreeNoiseSampler gives it."""

    def __init__(self, trees: Sequence[BrownianTree], batch: bool) -> None:
        """`batch`: one tree is for the whole batch; else each is for one image."""
        self.trees, self.batch = trees, batch

    def __call__(self, sigma: float, sigma_next: float) -> np.ndarray:
        """An array [batch, channels, height, width]; its sign turns where the noise level falls."""
        low, high = sorted((float(np.float32(sigma)), float(np.float32(sigma_next))))
        increments = [tree(low, high) for tree in self.trees]
        increment = increments[0] if self.batch else np.stack(increments)
        length = abs(np.float32(sigma_next) - np.float32(sigma))
        return np.asarray((-increment if sigma_next < sigma else increment) / np.sqrt(length))
