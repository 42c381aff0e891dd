"""torchsde's Brownian tree in NumPy: noise that depends on the seed and on the two noise levels between which it is added.

torchsde 0.2.6, BrownianTree: Li, Wong, Chen, Duvenaud, Scalable Gradients for Stochastic Differential Equations (2020). Half of
an interval is known when its middle is drawn, from a seed that its place in the tree gives; so the values do not depend on
the order of the questions. Times are rounded to six digits.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

DIGITS = 6
POOL = 24
"""Size of NumPy's pool of entropy, as torchsde has it."""

REMEMBERED = 96
"""Increments that are kept: the paths to the ends of the last question, about forty nodes each."""


SHARED = 1 << 13
"""Elements from which nodes are drawn by several threads."""


@dataclass(frozen=True)
class Node:
    """An interval of the tree: its number within its depth, and its ends."""

    key: int
    depth: int
    start: float
    end: float


def halves(node: Node) -> tuple[Node, Node]:
    """The left and the right half of an interval."""
    middle = round(0.5 * (node.end + node.start), DIGITS)
    left = Node(2 * node.key, node.depth + 1, node.start, middle)
    return left, Node(2 * node.key + 1, node.depth + 1, middle, node.end)


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        self.drawn: dict[Node, np.ndarray] = {}

    def __call__(self, start: float, end: float) -> np.ndarray:
        """The increment from `start` to `end`, of which the first is the smaller; what lies outside counts as the boundary."""
        low, high = self.whole.start, self.whole.end
        start, end = (round(min(max(time, low), high), DIGITS) for time in (start, end))
        if start == end:
            return np.zeros(self.shape, np.float32)
        self._draw(list(self._unknown(self.whole, start, end)))
        total, *others = self._pieces(self.whole, self.increment, start, end)
        for piece in others:
            total = total + piece
        while len(self.remembered) > REMEMBERED:
            self.remembered.popitem(last=False)
        return total

    def _pieces(self, node: Node, increment: np.ndarray, start: float, end: float) -> Iterator[np.ndarray]:
        """The increments of the nodes that make up [start, end], from left to right."""
        if start == node.start and end == node.end:
            yield increment
            return
        left, right = halves(node)
        middle = left.end
        of_left = self._left_half(node, left, increment)
        if start < middle:
            yield from self._pieces(left, of_left, start, min(end, middle))
        if end > middle:
            yield from self._pieces(right, increment - of_left, max(start, middle), end)

    def _unknown(self, node: Node, start: float, end: float) -> Iterator[Node]:
        """The nodes on the way to the pieces of [start, end] whose left halves are not remembered."""
        if start == node.start and end == node.end:
            return
        left, right = halves(node)
        if left not in self.remembered:
            yield node
        if start < left.end:
            yield from self._unknown(left, start, min(end, left.end))
        if end > left.end:
            yield from self._unknown(right, max(start, left.end), end)

    def _draw(self, nodes: Sequence[Node]) -> None:
        """Draw the noise of nodes, by several threads where that pays."""

        def drawn(node: Node) -> np.ndarray:
            sequence = np.random.SeedSequence(self.seed, spawn_key=(node.key, node.depth), pool_size=POOL)
            return self.draw(int(sequence.generate_state(4)[0]), self.shape)

        count = min(processors(), len(nodes)) if math.prod(self.shape) >= SHARED else 1
        if count < 2:
            self.drawn = dict(zip(nodes, map(drawn, nodes), strict=True))
            return
        with ThreadPoolExecutor(count) as threads:
            self.drawn = dict(zip(nodes, threads.map(drawn, nodes), strict=True))

    def _left_half(self, node: Node, left: Node, increment: np.ndarray) -> np.ndarray:
        """Brownian bridge: what falls to the left half, given the whole increment."""
        if left in self.remembered:
            self.remembered.move_to_end(left)
            return self.remembered[left]
        noise = self.drawn.pop(node)
        before, after, share = left.end - left.start, node.end - left.end, 1 / (node.end - node.start)
        mean = np.float32(before) * increment * np.float32(share)
        found = mean + np.float32(math.sqrt(before * after * share)) * noise
        self.remembered[left] = found
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
