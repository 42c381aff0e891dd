"""Guidance: how the estimate with the prompt and the one with the negative prompt become one.

Each rule is a function of a `Moment`; arrays are [batch, channels, height, width]. Defaults are those of ComfyUI's nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.sampling.levels import EXPLODING, Path

IMAGE = (1, 2, 3)
"""The axes of one image of a batch."""


@dataclass(frozen=True)
class Moment:
    """What a guidance rule sees: x at a noise level, and what the picture is taken to be."""

    x: np.ndarray
    sigma: float
    positive: np.ndarray
    """The estimate for the prompt."""

    negative: np.ndarray
    """The estimate for the negative prompt."""

    scale: float
    """The guidance scale, CFG."""

    step: int = 0
    steps: int = 1

    def mixed(self, positive: np.ndarray | None = None) -> np.ndarray:
        """From the negative estimate through the positive one (or another), as far as the scale says."""
        positive = self.positive if positive is None else positive
        return np.asarray(self.negative + (positive - self.negative) * self.scale)


def classifier_free(moment: Moment) -> np.ndarray:
    """Ho, Salimans, Classifier-Free Diffusion Guidance (2022)."""
    return moment.mixed()


def composed(estimates: Sequence[np.ndarray], weights: Sequence[float], negative: np.ndarray) -> np.ndarray:
    """Liu, Li, Du, Torralba, Tenenbaum, Compositional Visual Generation (2022): AND. One estimate in the place of several."""
    total = negative
    for estimate, weight in zip(estimates, weights, strict=True):
        total = total + (estimate - negative) * weight
    return total


def with_image(moment: Moment, nothing: np.ndarray, image_scale: float = 1.5) -> np.ndarray:
    """Brooks, Holynski, Efros, InstructPix2Pix (2023), equation 3; `nothing` is the negative estimate without the picture."""
    prompt, image = moment.positive - moment.negative, moment.negative - nothing
    return np.asarray(nothing + image * image_scale + prompt * moment.scale)


def rescaled(moment: Moment, share: float = 0.7) -> np.ndarray:
    """Lin, Liu, Li, Yang, Common Diffusion Noise Schedules and Sample Steps are Flawed (2023), section 3.4, for v as ComfyUI."""
    start = moment.x / (moment.sigma**2 + 1)
    positive, negative = (start - estimate for estimate in (moment.positive, moment.negative))
    mixed = negative + (positive - negative) * moment.scale
    like = mixed * (positive.std(IMAGE, keepdims=True) / mixed.std(IMAGE, keepdims=True))
    return np.asarray(start - (like * share + mixed * (1 - share)))


def rescaled_noise(noise: np.ndarray, positive: np.ndarray, share: float = 0.7) -> np.ndarray:
    """The same of Lin et al. for predicted noise, as diffusers' guidance_rescale: `noise` with guidance, like `positive`."""
    like = noise * (positive.std(IMAGE, keepdims=True) / noise.std(IMAGE, keepdims=True))
    return np.asarray(like * share + noise * (1 - share))


def perpendicular(moment: Moment, empty: np.ndarray, negative_scale: float = 1.0) -> np.ndarray:
    """Armandpour, Sadeghian, Zheng, Perp-Neg (2023): of the negative prompt, what lies across the prompt. `empty`: no prompt."""
    positive, negative = moment.positive - empty, moment.negative - empty
    across = negative - positive * ((negative * positive).sum() / (positive**2).sum())
    return np.asarray(empty + (positive - across * negative_scale) * moment.scale)


@dataclass
class Projected:
    """Sadat, Hilliges, Weber, Adaptive Projected Guidance (2024): less of what points where the estimate points already."""

    eta: float = 1.0
    """How much is left of the part along the estimate."""

    norm: float = 5.0
    """The guidance is not longer than this; 0 for any length."""

    momentum: float = 0.0
    average: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)
    sigma: float = field(default=math.inf, init=False, repr=False, compare=False)

    def __call__(self, moment: Moment) -> np.ndarray:
        """As ComfyUI, whose estimate is the positive one plus `scale` (not scale - 1) times the projected guidance."""
        guidance = moment.positive - moment.negative
        if self.momentum > 0:
            if self.average is not None and moment.sigma <= self.sigma:
                guidance = guidance + self.average * self.momentum
            self.average, self.sigma = guidance, moment.sigma
        if self.norm > 0:
            guidance = guidance * np.minimum(1, self.norm / np.maximum(length(guidance), 1e-12))
        direction = moment.positive / np.maximum(length(moment.positive), 1e-12)
        along = (guidance * direction).sum(IMAGE, keepdims=True) * direction
        return np.asarray(moment.positive + (guidance + along * (self.eta - 1)) * moment.scale)


def length(array: np.ndarray) -> np.ndarray:
    """The norm of each image."""
    return np.asarray(np.sqrt((array**2).sum(IMAGE, keepdims=True)))


def zero_star(moment: Moment) -> np.ndarray:
    """Fan, Zheng, Yeh, Liu, CFG-Zero* (2025): the negative noise is scaled to lie as near as can be to the positive one."""
    positive, negative = moment.x - moment.positive, moment.x - moment.negative
    factor = (positive * negative).sum(IMAGE, keepdims=True) / ((negative**2).sum(IMAGE, keepdims=True) + 1e-8)
    return np.asarray(moment.mixed() + moment.negative * ((factor - 1) * (1 - moment.scale)))


def tangential(moment: Moment) -> Moment:
    """Kwon, Jeong, Hsiao, Uh, Tangential Damping Classifier-free Guidance (2025): another negative estimate."""
    noises = np.stack([moment.x - moment.negative, moment.x - moment.positive], axis=1)
    flat = noises.reshape(len(noises), 2, -1)
    direction = np.linalg.svd(flat, full_matrices=False)[2][:, :1]
    kept = (flat[:, :1] @ direction.transpose(0, 2, 1)) * direction
    return replace(moment, negative=moment.x - kept.reshape(moment.x.shape).astype(moment.x.dtype))


def frequency_scaled(array: np.ndarray, low: float, high: float, cutoff: int) -> np.ndarray:
    """Frequencies below the cutoff times `low`, the others times `high`."""
    rows, columns = array.shape[-2:]
    factors = np.full((rows, columns), high)
    top, left = rows // 2 - cutoff, columns // 2 - cutoff
    factors[max(top, 0) : rows // 2 + cutoff, max(left, 0) : columns // 2 + cutoff] = low
    spectrum = np.fft.fft2(array) * np.fft.ifftshift(factors)
    return np.fft.ifft2(spectrum).real.astype(array.dtype)


@dataclass(frozen=True)
class Frequencies:
    """Huang, Liang, Zhang et al., FreSca (2025): the guidance's fine structure is stronger; another positive estimate."""

    low: float = 1.0
    high: float = 1.25
    cutoff: int = 20

    def __call__(self, moment: Moment) -> Moment:
        """The moment with the other estimate."""
        guidance = frequency_scaled(moment.positive - moment.negative, self.low, self.high, self.cutoff)
        return replace(moment, positive=moment.negative + guidance)


def mahiro(moment: Moment) -> np.ndarray:
    """ComfyUI's node Mahiro: more of the prompt's direction where both estimates are alike."""
    leap, mixed = moment.positive * moment.scale, moment.mixed()
    first, second = (
        np.sqrt(np.abs(each)) * np.sign(each) for each in (moment.negative * moment.scale, (leap + mixed) / 2)
    )
    lengths = np.sqrt((first**2).sum(1)) * np.sqrt((second**2).sum(1))
    alike = 2 * (float(((first * second).sum(1) / np.maximum(lengths, 1e-8)).mean()) + 1)
    return np.asarray((mixed * alike + leap * (4 - alike)) / 4)


def normed(moment: Moment, strength: float = 1.0) -> np.ndarray:
    """ComfyUI's node CFGNorm: no pixel's vector is longer than the positive estimate's."""
    mixed = moment.mixed()
    lengths = [np.sqrt((each**2).sum(1, keepdims=True)) for each in (moment.positive, mixed)]
    return np.asarray(mixed * np.clip(lengths[0] / (lengths[1] + 1e-8), 0, 1) * strength)


def lengthened(moment: Moment) -> np.ndarray:
    """Qwen-Image's own, in diffusers: guidance changes the direction of the noise of each square of 2 x 2, and not its length."""
    positive, mixed = moment.x - moment.positive, moment.x - moment.mixed()
    lengths = [np.sqrt(in_squares((each**2).sum(1, keepdims=True))) for each in (positive, mixed)]
    return np.asarray(moment.x - mixed * (lengths[0] / np.maximum(lengths[1], 1e-12)))


def in_squares(array: np.ndarray) -> np.ndarray:
    """In the place of each number the sum of its square of 2 x 2; at odd ends there are fewer."""
    for axis in (2, 3):
        size = array.shape[axis]
        array = np.repeat(np.add.reduceat(array, np.arange(0, size, 2), axis), 2, axis).take(np.arange(size), axis)
    return array


SHAPES: dict[str, Callable[[float, float], float]] = {
    "Constant": lambda share, power: 1.0,
    "Linear Down": lambda share, power: 1 - share,
    "Cosine Down": lambda share, power: math.cos(share * 1.5707),
    "Half Cosine Down": lambda share, power: math.cos(share),
    "Linear Up": lambda share, power: share,
    "Cosine Up": lambda share, power: 1 - math.cos(share * 1.5707),
    "Half Cosine Up": lambda share, power: 1 - math.cos(share),
    "Power Up": lambda share, power: share**power,
    "Power Down": lambda share, power: 1 - share**power,
    "Linear Repeating": lambda share, power: abs((share * power) % 1 - 0.5) * 2,
    "Cosine Repeating": lambda share, power: math.cos(share * 6.28318 * power) * 0.5 + 0.5,
    "Sawtooth": lambda share, power: (share * power) % 1,
}
"""How dynamic thresholding lets a scale fall or rise over the steps."""


@dataclass(frozen=True)
class DynamicThreshold:
    """Saharia et al., Imagen (2022), in the form of sd-dynamic-thresholding: a high scale, with the spread of a lower one."""

    mimic: float = 7.0
    percentile: float = 1.0
    mimic_shape: str = "Constant"
    mimic_lowest: float = 0.0
    shape: str = "Constant"
    lowest: float = 0.0
    power: float = 1.0
    each_channel: bool = True
    from_mean: bool = True
    """Start from each channel's mean; else from 0."""

    by_deviation: bool = False
    """The spread is the standard deviation; else the largest distance, or the `percentile` of distances."""

    share: float = 1.0

    def __post_init__(self) -> None:
        for shape in (self.mimic_shape, self.shape):
            if shape not in SHAPES:
                raise SettingError(f"dynamic thresholding: there is no {shape!r}; there are {', '.join(SHAPES)}")
        if not 0 <= self.percentile <= 1:
            raise SettingError(f"dynamic thresholding: percentile: {self.percentile} is not from 0 to 1")

    def __call__(self, moment: Moment) -> np.ndarray:
        """The estimate."""
        way = moment.step / max(moment.steps - 1, 1)
        mimic = (self.mimic - self.mimic_lowest) * SHAPES[self.mimic_shape](way, self.power) + self.mimic_lowest
        scale = (moment.scale - self.lowest) * SHAPES[self.shape](way, self.power) + self.lowest
        like, target = (replace(moment, scale=each).mixed() for each in (mimic, scale))
        means = target.mean((2, 3), keepdims=True)
        centred, like = target - means, like - like.mean((2, 3), keepdims=True)
        wanted, found = self.spread(like, 1.0), self.spread(centred, self.percentile)
        if not self.from_mean:
            result = target * (wanted / found)
        elif self.by_deviation:
            result = centred / found * wanted + means
        else:
            largest = np.maximum(wanted, found)
            result = np.clip(centred, -largest, largest) / largest * wanted + means
        return np.asarray(result * self.share + target * (1 - self.share)).astype(target.dtype)

    def spread(self, centred: np.ndarray, percentile: float) -> np.ndarray:
        """How far values lie from 0, of each channel or of all."""
        axes = (2, 3) if self.each_channel else None
        if self.by_deviation:
            return np.asarray(centred.std(axes, ddof=1, keepdims=True))
        return np.asarray(np.quantile(np.abs(centred), percentile, axis=axes, keepdims=True))


def noise_scaled(x: np.ndarray, denoised: np.ndarray, factor: float = 1.005) -> np.ndarray:
    """Ning, Li, Su, Salah, Ertugrul, Elucidating the Exposure Bias in Diffusion Models (2024): a little less noise is removed."""
    return np.asarray(x - (x - denoised) / factor)


def score_rescaled(
    x: np.ndarray, denoised: np.ndarray, sigma: float, k: float = 0.95, deviation: float = 1.0, path: Path = EXPLODING
) -> np.ndarray:
    """Xu, Nair, Patel et al., Temporal Score Rescaling (2025), equation 6."""
    alpha = path.alpha(sigma)
    if sigma == 0 or alpha == 0 or k == 1:
        return denoised
    snr = (alpha / sigma) ** 2 * deviation**2
    return np.asarray(x / alpha + (denoised - x / alpha) * ((snr + 1) / (snr / k + 1)))


def away_from(
    denoised: np.ndarray, positive: np.ndarray, weak: np.ndarray, scale: float, rescale: float = 0.0
) -> np.ndarray:
    """Away from the estimate of a model that leaves something out of itself.

    Ahn et al., Perturbed-Attention Guidance (2024), scale 3; skip-layer guidance of Stability AI's SD 3.5, scale 3. `rescale` is
    the share to which the deviation becomes the positive estimate's, as ComfyUI's SkipLayerGuidanceDiT.
    """
    result = denoised + (positive - weak) * scale
    if rescale:
        result = result * (float(positive.std()) / float(result.std()) * rescale + 1 - rescale)
    return np.asarray(result)


@dataclass(frozen=True)
class FreeU:
    """Si, Huang, Jiang, Liu, FreeU: Free Lunch in Diffusion U-Net (2023): what the blocks of a U-Net's decoder take in is scaled.

    Half of the channels that come from below are scaled by `b1` or `b2`, and the four lowest frequencies of those that come
    from the encoder by `s1` or `s2`.

    The first are for blocks where four times the model's channels come from below, the second for those with two times (the
    authors, ComfyUI, Forge); with `by_blocks` for the first and the second level of the decoder (diffusers). In the second
    version channels are scaled less where their mean is lower. Usual is what ComfyUI's FreeU_V2 has; its first version has 1.1,
    1.2, 0.9, 0.2, and Forge 1.01, 1.02, 0.99, 0.95.
    """

    b1: float = 1.3
    b2: float = 1.4
    s1: float = 0.9
    s2: float = 0.2
    second_version: bool = True
    by_blocks: bool = False

    def numbers(self) -> np.ndarray:
        """For `Conditioning.free` [1, 6]."""
        return np.array([[self.b1, self.b2, self.s1, self.s2, self.second_version, self.by_blocks]], np.float32)
