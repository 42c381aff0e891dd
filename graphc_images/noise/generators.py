"""Generators of normally distributed numbers, by the names that people know them under."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from graphc_images.noise.philox import Philox
from graphc_images.noise.torch_cpu import TorchCpu


class NormalGenerator(Protocol):
    """A generator with a state: each call gives further numbers."""

    def normal(self, shape: Sequence[int]) -> np.ndarray:
        """float32 numbers from the standard normal distribution."""
        ...


GENERATORS: dict[str, Callable[[int], NormalGenerator]] = {
    "gpu": Philox,
    "nv": Philox,
    "cuda": Philox,
    "philox": Philox,
    "cpu": TorchCpu,
}
"""A1111's "RNG" (GPU, NV, CPU) and stable-diffusion.cpp's `--rng` (cuda, cpu), in lower case."""
