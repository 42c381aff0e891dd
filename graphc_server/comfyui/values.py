"""What goes from node to node: models with what was changed about them, texts that were read, latents.

Pictures are arrays [batch, height, width, 3], float32, 0 to 1; masks are [batch, height, width], 1 where something is painted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphc_images.models import Conditioning, ImageModel
from graphc_images.sampling import Levels, Prediction, Weakening
from graphc_images.sampling.guidance import FreeU, Moment
from graphc_images.sampling.names import Sampler

LoraStrengths = tuple[tuple[Path, float], ...]


@dataclass(frozen=True)
class Weaker:
    """Guidance away from a weakened model, between two shares of the way."""

    weakening: Weakening
    scale: float
    start: float = 0.0
    end: float = 1.0
    rescale: float = 0.0


@dataclass(frozen=True, eq=False)
class Looked:
    """Pictures that a model looks at: an IP-Adapter's file, what CLIP sees in them and where there are none, their weight, its
    kind and what it scales, where they count [1, height, width], and between which shares of the way."""

    adapter: Path
    seen: np.ndarray
    nothing: np.ndarray
    weight: float
    kind: str = "linear"
    scaling: str = "V only"
    mask: np.ndarray | None = None
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class Model:
    """MODEL: a denoiser, its LoRAs, and what differs from its usual noise levels, prediction and guidance.

    `rule` makes the rule by which estimates become one, anew for each run, for some remember. `differential` is the strength of
    masks that let pixels go on later.
    """

    image_model: ImageModel
    loras: LoraStrengths = ()
    levels: Levels | None = None
    prediction: Prediction | None = None
    rule: Callable[[], Callable[[Moment], np.ndarray]] | None = None
    before: tuple[Callable[[Moment], Moment], ...] = ()
    weaker: tuple[Weaker, ...] = ()
    differential: float | None = None
    noise_factor: float = 1.0
    free_u: FreeU | None = None
    looks: tuple[Looked, ...] = ()


@dataclass(frozen=True)
class Clip:
    """CLIP: text encoders, their LoRAs, and which of the last layers counts (1 for the last)."""

    image_model: ImageModel
    loras: LoraStrengths = ()
    skip: int | None = None


@dataclass(frozen=True)
class Vae:
    """VAE: an autoencoder."""

    image_model: ImageModel


@dataclass(frozen=True)
class ControlFile:
    """CONTROL_NET: a file, and what it is told that pictures show, if it tells that apart."""

    path: Path
    shows: str | None = None


@dataclass(frozen=True, eq=False)
class Applied:
    """A control at work: its picture, its strength, between which shares of the way it counts, and whether it is for the negative
    prompt too though that does not have it."""

    file: ControlFile
    image: np.ndarray
    strength: float
    start: float = 0.0
    end: float = 1.0
    everywhere: bool = False


@dataclass(frozen=True)
class Area:
    """A rectangle: sides and place in pixels, or if `shares` in shares of the picture."""

    height: float
    width: float
    top: float
    left: float
    shares: bool = False

    def cells(self, rows: int, columns: int, pixels: int) -> tuple[int, int, int, int]:
        """Height, width, top and left in a latent's cells, of which there are so many; the part that lies in it."""
        if self.shares:
            high, wide = max(1, round(self.height * rows)), max(1, round(self.width * columns))
            top, left = round(self.top * rows), round(self.left * columns)
        else:
            high, wide, top, left = (int(each) // pixels for each in (self.height, self.width, self.top, self.left))
        top, left = min(top, rows - 1), min(left, columns - 1)
        return max(min(high, rows - top), 1), max(min(wide, columns - left), 1), top, left


@dataclass(frozen=True, eq=False)
class Told:
    """One entry of CONDITIONING: a text that was read, and where, when and how much it counts.

    `sizes` are width, height, crops (width, height) and target (width, height) in pixels, `score` the refiner's, `guidance` the
    distilled one. `area` is a rectangle, `mask` says how much it counts where. `joined` is a latent that models for inpainting
    look at, and `joined_mask` its mask; `references` are latents of other pictures.
    """

    read: Conditioning
    sizes: tuple[int, ...] | None = None
    score: float | None = None
    guidance: float | None = None
    strength: float = 1.0
    area: Area | None = None
    mask: np.ndarray | None = None
    mask_strength: float = 1.0
    to_bounds: bool = False
    start: float | None = None
    end: float | None = None
    controls: tuple[Applied, ...] = ()
    joined: np.ndarray | None = None
    joined_mask: np.ndarray | None = None
    references: tuple[np.ndarray, ...] = ()


Texts = tuple[Told, ...]
"""CONDITIONING: what counts together."""


def each_told(texts: Texts, **changes: Any) -> Texts:
    """The same with something changed of each."""
    return tuple(replace(told, **changes) for told in texts)


@dataclass(frozen=True, eq=False)
class Latent:
    """LATENT: samples [batch, channels, height, width] as the autoencoder has them, perhaps with a mask of what is painted, and
    the numbers of the pictures in a larger batch, whose noise they get."""

    samples: np.ndarray
    mask: np.ndarray | None = None
    numbers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ChosenSampler:
    """SAMPLER: one by name, with settings of its own."""

    sampler: Sampler
    settings: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Noise:
    """NOISE: a seed, or no noise."""

    seed: int
    none: bool = False


@dataclass(frozen=True, eq=False)
class Guider:
    """GUIDER: a model, what it is told, and how strongly. `empty` is told besides where the negative counts by `across`."""

    model: Model
    positive: Texts
    negative: Texts | None = None
    scale: float = 1.0
    empty: Texts | None = None
    across: float = 0.0


@dataclass(frozen=True)
class Shown:
    """What an output node shows: files, as `executed` and the history have them."""

    images: list[dict[str, str]] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)

    def ui(self) -> dict[str, Any]:
        """As ComfyUI has it."""
        return {**({"images": self.images} if self.images else {}), **self.said}
