"""What a network predicts, and what estimate of the picture follows from it.

Karras, Aittala, Aila, Laine, Elucidating the Design Space of Diffusion-Based Generative Models (2022), section 5, for the
form: the network sees `scale * x`, and the estimate is `skip * x + out * prediction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.sampling.levels import DiscreteLevels, Levels

Network = Callable[[np.ndarray, float], np.ndarray]
"""A model as it was trained: (its input, its time) -> its prediction, an array as large as the input."""

Denoiser = Callable[[np.ndarray, float], np.ndarray]
"""A model as samplers see it: (x, its noise level) -> an estimate of the picture without noise."""


@dataclass(frozen=True)
class Prediction:
    """How the picture follows from a network's prediction at a noise level."""

    name: str
    scale: Callable[[float], float]
    """What x is multiplied by before the network sees it."""

    skip: Callable[[float], float]
    out: Callable[[float], float]

    def denoised(self, x: np.ndarray, prediction: np.ndarray, sigma: float) -> np.ndarray:
        """The estimate of the picture."""
        return x * self.skip(sigma) + prediction * self.out(sigma)


def one(sigma: float) -> float:
    """Flow models see x as it is."""
    return 1.0


EPS = Prediction("eps", lambda s: 1 / math.hypot(s, 1), one, lambda s: -s)
"""The noise, as nearly all of Stable Diffusion 1 and SDXL."""

V = Prediction("v", lambda s: 1 / math.hypot(s, 1), lambda s: 1 / (s * s + 1), lambda s: -s / math.hypot(s, 1))
"""Salimans, Ho, Progressive Distillation (2022): Stable Diffusion 2, v-prediction checkpoints, CosXL."""

FLOW = Prediction("flow", one, one, lambda s: -s)
"""Liu, Gong, Liu, Flow Straight and Fast (2022): the direction from picture to noise."""


def edm(data: float = 0.5) -> Prediction:
    """EDM's, for pictures with the standard deviation `data`: Playground 2.5."""
    return Prediction(
        "edm",
        lambda s: 1 / math.hypot(s, data),
        lambda s: data * data / (s * s + data * data),
        lambda s: s * data / math.hypot(s, data),
    )


X0 = Prediction("x0", lambda s: 1 / math.hypot(s, 1), lambda s: 0.0, one)
"""The picture itself."""

PREDICTIONS = {"eps": EPS, "v": V, "edm": edm(), "flow": FLOW}
"""By name; also those that stable-diffusion.cpp and diffusers give them."""
PREDICTIONS |= {
    "epsilon": EPS,
    "v_prediction": V,
    "edm_v": V,
    "sd3_flow": FLOW,
    "flux_flow": FLOW,
    "flow_prediction": FLOW,
}


def prediction_of(name: str) -> Prediction:
    """The prediction of this name."""
    if name not in PREDICTIONS:
        raise SettingError(f"there is no prediction {name!r}; there are {', '.join(PREDICTIONS)}")
    return PREDICTIONS[name]


def denoiser(network: Network, prediction: Prediction, levels: Levels, whole: bool = True) -> Denoiser:
    """A network as samplers see it. `whole`: its times are rounded (ComfyUI, Forge), else lie between (A1111)."""

    def denoise(x: np.ndarray, sigma: float) -> np.ndarray:
        predicted = network(x * prediction.scale(sigma), levels.timestep(sigma, whole))
        return prediction.denoised(x, predicted, sigma)

    return denoise


class OnTimes:
    """A denoiser as A1111's DDIM, PLMS and UniPC want it: the noise in x, as the model was trained to see x, at a time."""

    def __init__(self, model: Denoiser, levels: Levels) -> None:
        self.model, self.levels = model, levels

    def __call__(self, x: np.ndarray, timestep: float) -> np.ndarray:
        """The noise."""
        sigma = self.levels.sigma(timestep)
        x = x * math.hypot(1, sigma)
        return np.asarray((x - self.model(x, sigma)) / sigma)

    def pair(self, x: np.ndarray, timestep: float) -> tuple[np.ndarray, np.ndarray]:
        """The noise with guidance, and that of the negative prompt alone."""
        sigma = self.levels.sigma(timestep)
        x = x * math.hypot(1, sigma)
        denoised, negative = self.model.pair(x, sigma)  # type: ignore[attr-defined]
        return (x - denoised) / sigma, (x - negative) / sigma


LCM_STEPS = 50
LCM_DATA = 0.5
LCM_SCALE = 10.0


def lcm_levels(levels: DiscreteLevels) -> DiscreteLevels:
    """The 50 levels on which latent consistency models are distilled: every twentieth, from the highest."""
    return DiscreteLevels(levels.sigmas[len(levels.sigmas) // LCM_STEPS - 1 :: len(levels.sigmas) // LCM_STEPS])


class DistilledLevels(DiscreteLevels):
    """These 50 levels with the times of the whole table: ComfyUI's ModelSamplingDiscreteDistilled."""

    def __init__(self, whole: DiscreteLevels) -> None:
        super().__init__(lcm_levels(whole).sigmas)
        self.skipped = len(whole.sigmas) // LCM_STEPS

    def timestep(self, sigma: float, whole: bool = True) -> float:
        """See `Levels.timestep`."""
        return super().timestep(sigma, whole) * self.skipped + self.skipped - 1

    def sigma(self, timestep: float) -> float:
        """See `Levels.sigma`."""
        return super().sigma(max((timestep - self.skipped + 1) / self.skipped, 0.0))

    def sigma_at(self, share: float) -> float:
        """See `Levels.sigma_at`."""
        if 0 < share < 1:
            return self.sigma((1 - share) * (len(self.sigmas) * self.skipped - 1))
        return super().sigma_at(share)


def distilled(levels: DistilledLevels) -> Prediction:
    """The noise, with the boundary condition of consistency models: of LCM in ComfyUI."""

    def shares(sigma: float) -> tuple[float, float]:
        scaled = levels.timestep(sigma) * LCM_SCALE
        return LCM_DATA**2 / (scaled**2 + LCM_DATA**2), scaled / math.hypot(scaled, LCM_DATA)

    return Prediction("lcm", EPS.scale, lambda s: sum(shares(s)), lambda s: -s * shares(s)[1])


def lcm_denoiser(network: Network, prediction: Prediction, levels: DiscreteLevels) -> Denoiser:
    """A1111's model of the LCM sampler: the nearest of the 50 levels, and the consistency model's boundary condition.

    Luo, Tan, Huang, Li, Zhao, Latent Consistency Models (2023), equation 9; A1111 modules/sd_samplers_lcm.py.
    """
    few = lcm_levels(levels)
    skipped = len(levels.sigmas) // LCM_STEPS

    def denoise(x: np.ndarray, sigma: float) -> np.ndarray:
        timestep = few.timestep(sigma) * skipped + skipped - 1
        estimate = prediction.denoised(x, network(x * prediction.scale(sigma), timestep), sigma)
        scaled = timestep * LCM_SCALE
        share = LCM_DATA**2 / (scaled**2 + LCM_DATA**2)
        return estimate * (scaled / math.hypot(scaled, LCM_DATA)) + x * share

    return denoise
