"""The refiner's turn: another model goes on from a share of the way, on the same latent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.models import ImageModel
from graphc_images.sampling import Guided, Levels


class InTurn:
    """Two denoisers, the second of which takes over when a share of the model's times is behind them.

    Source: A1111's apply_refiner (modules/sd_samplers_common.py); the same as diffusers' denoising_end and denoising_start.
    """

    def __init__(
        self, first: Guided, second: Callable[[], Guided], levels: Levels, share: float, *, by_steps: bool = False
    ) -> None:
        """`second` is called once, when it is needed. `by_steps`: the share is one of the evaluations, not of the times."""
        self.now, self.second, self.levels, self.share, self.by_steps = first, second, levels, share, by_steps
        self.refines = False

    def __call__(self, x: np.ndarray, sigma: float) -> np.ndarray:
        """The estimate of the one whose turn it is."""
        return self._whose(sigma)(x, sigma)

    def pair(self, x: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
        """The same, and the one for the negative prompt."""
        return self._whose(sigma).pair(x, sigma)

    def _whose(self, sigma: float) -> Guided:
        behind = self.now.count / self.now.evaluations if self.by_steps else passed(self.levels, sigma)
        if not self.refines and behind >= self.share:
            count, self.now, self.refines = self.now.count, self.second(), True
            self.now.count = count
        return self.now


def passed(levels: Levels, sigma: float) -> float:
    """The share of a model's times that lies behind a noise level."""
    most = len(levels.sigmas)
    return float(most - 1 - np.abs(levels.sigmas - sigma).argmin()) / most


def check_other(setting: str, model: ImageModel, other: ImageModel) -> None:
    """Raises SettingError, which names the setting, for a model that works on other latents."""
    if other.architecture.latent != model.architecture.latent:
        names = other.architecture.name, model.architecture.name
        raise SettingError("{}: {} does not go on from latents of {}".format(setting, *names))
