"""The noise levels that a model was trained on, its own times for them, and where on the way to the picture they lie.

A noise level (sigma) is the standard deviation of the noise. Where noise is added to the picture ("exploding", eps and v
models, EDM) it goes up to 14.6 and more; where noise takes the picture's place (rectified flow), from 0 to 1.
Sizes of tables and their rounding are those of ComfyUI (comfy/model_sampling.py) and of A1111 with k-diffusion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.modes import Mode

ZERO_SNR = 4.8973451890853435e-08
"""The last level's alpha where there would be none: the picture's share in it must not be 0."""

NEVER = 999999999.9
"""The noise level of 0% of the way: above all others."""


def rounded(values: np.ndarray) -> np.ndarray:
    """float64 numbers that float32 has: what the programs that are followed compute in."""
    return np.asarray(values, np.float32).astype(np.float64)


@dataclass(frozen=True)
class Path:
    """How picture and noise mix at a noise level: x = alpha * picture + sigma * noise."""

    flow: bool = False
    """True if alpha is 1 - sigma; else it is 1."""

    largest: float = math.inf
    """The largest noise level at which something of the picture is left; samplers that need its share start there, not at 1."""

    def alpha(self, sigma: float) -> float:
        """The picture's factor."""
        return 1 - sigma if self.flow else 1.0

    def half_log_snr(self, sigma: float) -> float:
        """log(alpha / sigma)."""
        return math.log(self.alpha(sigma) / sigma) if sigma > 0 else math.inf

    def sigma_at(self, half_log_snr: float) -> float:
        """The noise level with this logarithm of alpha / sigma."""
        return 1 / (1 + math.exp(half_log_snr)) if self.flow else math.exp(-half_log_snr)

    def started(self, sigmas: Sequence[float]) -> list[float]:
        """The noise levels, the first one lowered where nothing of the picture would be in it."""
        first, *others = sigmas
        if self.flow and first >= 1:
            second = max(others, default=0.0)
            first = self.largest if self.largest > second else (1 + second) / 2
        return [first, *others]

    def noised(self, picture: np.ndarray, noise: np.ndarray, sigma: float) -> np.ndarray:
        """The picture at a noise level."""
        return picture * self.alpha(sigma) + noise * sigma


EXPLODING = Path()


class Levels:
    """A model's noise levels in ascending order, and its times."""

    sigmas: np.ndarray
    """float64 [levels], each a float32 number."""

    path: Path = EXPLODING

    @property
    def lowest(self) -> float:
        """The lowest noise level of the training."""
        return float(self.sigmas[0])

    @property
    def highest(self) -> float:
        """The highest noise level of the training."""
        return float(self.sigmas[-1])

    def timestep(self, sigma: float, whole: bool = True) -> float:
        """What the model is told for a noise level. `whole`: the nearest of its times (ComfyUI, Forge); else between them."""
        raise NotImplementedError

    def sigma(self, timestep: float) -> float:
        """The noise level at a time, which need not be whole."""
        raise NotImplementedError

    def sigma_at(self, share: float) -> float:
        """The noise level after a share of the way from noise (0) to picture (1), as ComfyUI counts it."""
        raise NotImplementedError


class DiscreteLevels(Levels):
    """A table of noise levels, whose numbers are the times: Stable Diffusion 1 and 2, SDXL and their like."""

    def __init__(self, sigmas: np.ndarray, alphas: np.ndarray | None = None) -> None:
        """`sigmas` ascend and are above 0. `alphas` are what they were made of, where that cannot be told from them."""
        self.sigmas = rounded(sigmas)
        # NumPy's logarithm of a float32 depends on the processor; rounded from float64, it is the same everywhere.
        self.logarithms = rounded(np.log(sigmas, dtype=np.float64).astype(sigmas.dtype))
        self._alphas = alphas

    @property
    def alphas(self) -> np.ndarray:
        """The squares of the picture's factors in the form in which the model sees it (alphas_cumprod)."""
        return 1 / (self.sigmas**2 + 1) if self._alphas is None else rounded(self._alphas)

    def timestep(self, sigma: float, whole: bool = True) -> float:
        """The nearest number of the table, or one between two, by the logarithm; see `Levels.timestep`."""
        logarithm = math.log(sigma)
        if whole:
            return float(np.abs(self.logarithms - np.float32(logarithm)).argmin())
        return float(np.interp(logarithm, self.logarithms, np.arange(len(self.logarithms))))

    def sigma(self, timestep: float) -> float:
        """Between two numbers of the table, by the logarithm; see `Levels.sigma`."""
        return math.exp(np.interp(timestep, np.arange(len(self.logarithms)), self.logarithms))

    def sigma_at(self, share: float) -> float:
        """See `Levels.sigma_at`."""
        if share <= 0:
            return NEVER
        return 0.0 if share >= 1 else self.sigma((1 - share) * (len(self.sigmas) - 1))


class ContinuousLevels(Levels):
    """Noise levels of EDM, between two ends, with a quarter of the logarithm as the time: Playground 2.5, CosXL."""

    def __init__(self, lowest: float, highest: float) -> None:
        """Both above 0."""
        self.sigmas = rounded(np.exp(np.linspace(math.log(lowest), math.log(highest), 1000)))

    def timestep(self, sigma: float, whole: bool = True) -> float:
        """Never rounded; see `Levels.timestep`."""
        return 0.25 * math.log(sigma)

    def sigma(self, timestep: float) -> float:
        """See `Levels.sigma`."""
        return math.exp(4 * timestep)

    def sigma_at(self, share: float) -> float:
        """See `Levels.sigma_at`."""
        if share <= 0:
            return NEVER
        low, high = math.log(self.lowest), math.log(self.highest)
        return 0.0 if share >= 1 else math.exp((high - low) * (1 - share) + low)


class FlowLevels(Levels):
    """Rectified flow, whose even times are shifted towards the noise: SD 3, Flux and most models since. They see the level."""

    scale = 1.0
    """The model's time at a noise level of 1."""

    def __init__(self, shift: float = 1.0, of_flux: bool = False) -> None:
        """`shift` is the factor a in a * t / (1 + (a - 1) * t), which for Flux is e**mu; `of_flux`: one of Flux' kind."""
        if shift <= 0:
            raise SettingError(f"the shift of the noise levels must be above 0, not {shift}")
        self.shift, self.of_flux = shift, of_flux
        count = 10000 if of_flux else 1000
        self.sigmas = rounded(self._shifted(np.arange(1, count + 1) / count))
        self.path = Path(flow=True, largest=self.sigma_at(1e-4))

    def _shifted(self, time: np.ndarray) -> np.ndarray:
        return np.asarray(self.shift * time / (1 + (self.shift - 1) * time))

    def timestep(self, sigma: float, whole: bool = True) -> float:
        """The level itself, never rounded; see `Levels.timestep`. What SD 3 sees is a thousand times it."""
        return sigma

    def sigma(self, timestep: float) -> float:
        """The noise level at an even time from 0 to 1. `timestep` is not its inverse."""
        return float(self._shifted(np.array(timestep)))

    def sigma_at(self, share: float) -> float:
        """See `Levels.sigma_at`."""
        return self.sigma(min(max(1 - share, 0.0), 1.0))


def scaled_linear(
    start: float = 0.00085,
    end: float = 0.012,
    count: int = 1000,
    zero_snr: bool = False,
    narrow: bool = False,
    half: bool = False,
) -> DiscreteLevels:
    """Stable Diffusion's levels: betas that are linear in their roots.

    `zero_snr`: shifted and scaled so that the last level is noise alone (Lin, Liu, Li, Yang, Common Diffusion Noise Schedules
    and Sample Steps are Flawed, 2023). `narrow`: computed from alphas in float32, as A1111 has them, which moves the lowest
    level in the sixth digit; ComfyUI and Forge compute in float64. `half`: all that comes after the alphas is computed with
    numbers of 16 bits; the lowest alpha of `zero_snr` is none of those, so there it raises SettingError.
    """
    betas = np.linspace(start**0.5, end**0.5, count) ** 2
    alphas = np.cumprod(1 - betas)
    if half and zero_snr:
        raise SettingError("half_alphas: noise alone (zero_snr) has no number of 16 bits")
    if half:
        alphas = alphas.astype(np.float16)
        return DiscreteLevels(np.sqrt((1 - alphas) / alphas), alphas)
    if narrow:
        alphas = alphas.astype(np.float32)
    sigmas = np.sqrt((1 - alphas) / alphas)
    if zero_snr:
        roots = np.sqrt(1 / (sigmas**2 + 1))
        roots = (roots - roots[-1]) * (roots[0] / (roots[0] - roots[-1]))
        alphas = roots**2
        alphas[-1] = ZERO_SNR
        sigmas = np.sqrt((1 - alphas) / alphas)
    return DiscreteLevels(sigmas)


def flux_mu(tokens: int, lowest: float = 0.5, highest: float = 1.15) -> float:
    """Flux' mu for an image of so many tokens (2 x 2 latent pixels each): linear through 256 and 4096 tokens."""
    return lowest + (highest - lowest) * (tokens - 256) / (4096 - 256)


def flux2_mu(tokens: int, steps: int) -> float:
    """Flux.2's mu: from lines that were fitted for 10 and for 200 steps; above 4300 tokens, the second alone."""
    few, many = 8.73809524e-5 * tokens + 1.89833333, 0.00016927 * tokens + 0.45666666
    if tokens > 4300:
        return many
    slope = (many - few) / 190
    return slope * steps + many - 200 * slope


FLOWS: dict[str, float] = {
    "sd3": 3.0,
    "flux": math.exp(1.15),
    "flux_schnell": 1.0,
    "chroma": math.exp(1.15),
    "flux2": math.exp(2.02),
    "auraflow": 1.73,
    "lumina2": 6.0,
    "z_image": 3.0,
    "qwen_image": math.exp(1.15),
    "wan": 8.0,
    "hunyuan_video": 7.0,
    "hunyuan_image": 5.0,
    "hidream": 3.0,
    "kandinsky5": 3.0,
    "omnigen2": 2.6,
    "ltx": math.exp(2.37),
}
"""The shift of each family, as ComfyUI has it (comfy/supported_models.py)."""

OF_FLUX = ("flux", "flux_schnell", "chroma", "flux2", "qwen_image", "ltx")
"""Families with a table of 10000 levels."""

FORGE = {"flux_schnell": math.e, "chroma": math.e}
"""Where Forge shifts by something else (backend/diffusion_engine)."""


def flow_levels(family: str, mode: Mode = "comfyui", shift: float | None = None) -> FlowLevels:
    """The levels of a family of flow models, with its own shift or another."""
    if family not in FLOWS:
        raise SettingError(f"there are no noise levels of {family!r}; there are those of {', '.join(FLOWS)}")
    usual = (FORGE if mode == "a1111" else {}).get(family, FLOWS[family])
    return FlowLevels(usual if shift is None else shift, family in OF_FLUX)


def levels_of_model(
    prediction: str,
    mode: Mode,
    family: str = "",
    zero_snr: bool = False,
    ends: tuple[float, float] | None = None,
    shift: float | None = None,
    half: bool = False,
) -> Levels:
    """The noise levels of a model: flows by their `family`; with `ends`, those of EDM; else Stable Diffusion's, of which some can
    be of 16 bits (`half`)."""
    if prediction == "flow":
        return flow_levels(family, mode, shift)
    return ContinuousLevels(*ends) if ends else scaled_linear(zero_snr=zero_snr, narrow=mode == "a1111", half=half)
