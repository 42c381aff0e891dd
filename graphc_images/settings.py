"""What a picture is asked for with: one record, whose names and usual values are A1111's, where it has them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal

from graphc_images.errors import SettingError
from graphc_images.modes import Mode, mode_of

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from graphc_images.control_units import ControlUnit
    from graphc_images.models.parts import Use
    from graphc_images.pictures.blending import SoftInpainting
    from graphc_images.pictures.sizes import ResizeMode
    from graphc_images.prompts.chunks import Emphasis
    from graphc_images.sampling.guidance import DynamicThreshold, FreeU, Frequencies, Projected

Fill = Literal["fill", "original", "latent noise", "latent nothing"]
LARGEST_SEED = 2**32 - 1


def seed_after(seed: int, number: int) -> int:
    """The seed that comes so many after another; behind the largest is 0."""
    return (seed + number) % (LARGEST_SEED + 1)


@dataclass(frozen=True)
class Settings:
    """A picture, or several. What is None is what the model is usually used with.

    Raises SettingError that names the setting, for a value that it cannot have.
    """

    prompt: str = ""
    negative_prompt: str = ""

    width: int | None = None
    """In pixels; a multiple of what the model's latents stand for, 8 or 16."""
    height: int | None = None
    batch_size: int = 1
    """Pictures that go through the model together."""
    batches: int = 1

    steps: int | None = None
    sampler: str | None = None
    scheduler: str | None = None
    cfg_scale: float | None = None
    guidance: float | None = None
    """The distilled one, of models that take it as an input: Flux dev."""
    mode: Mode = "a1111"
    """Whose pictures these are, seed by seed, where A1111 and ComfyUI differ."""

    seed: int = -1
    """-1 for one by chance. A batch's pictures have the seeds that follow."""
    generator: str | None = None
    """Where random numbers come from: `gpu` (as A1111 on CUDA), `cpu` (as PyTorch), `nv`; the mode's own if None."""
    subseed: int = -1
    subseed_strength: float = 0.0
    seed_resize_from: tuple[int, int] | None = None
    """The width and height at which the noise is drawn."""
    eta_noise_seed_delta: int = 0

    noise: np.ndarray | None = None
    """The noise to begin with [batch, channels, height, width], in place of what the seed gives."""
    latent: np.ndarray | None = None
    """The latent to begin with, of that shape, in place of one that `image` is encoded to."""

    clip_skip: int | None = None
    emphasis: Emphasis = "Original"
    comma_backtrack: int = 20
    """A chunk of tokens ends behind a comma, if one is among so many at its end (A1111)."""
    old_emphasis: bool = False
    """Brackets are tokens that change weights, without numbers, and what is behind 75 tokens is left out (A1111's first way)."""
    old_timelines: bool = False
    """In `[from:to:when]`, a number below 1 is a share of the steps, another one a step, in both passes (A1111's first way)."""
    pad_prompts: Literal["off", "empty", "last"] = "off"
    """True if the shorter of prompt and negative prompt is filled up: by the empty prompt, or the negative one by its last
    vector, and cut where it is longer (A1111's pad_cond_uncond and pad_cond_uncond_v0)."""
    t5_mask_pad: int = 0
    """Padding behind the text that Chroma sees; it was trained with 1, and Forge and ComfyUI leave it out."""

    eta: float | None = None
    s_churn: float = 0.0
    s_tmin: float = 0.0
    s_tmax: float = math.inf
    s_noise: float = 1.0
    sigmas: tuple[float, ...] = ()
    """Noise levels in place of a scheduler's, with the 0 at the end."""
    sigma_min: float | None = None
    sigma_max: float | None = None
    rho: float | None = None
    discard_next_to_last_sigma: bool | None = None
    beta_alpha: float = 0.6
    beta_beta: float = 0.6
    """The two numbers of the Beta scheduler."""
    more_noise: bool = False
    """As much noise at the start as ComfyUI has (A1111's SGM noise multiplier)."""
    zero_snr: bool = False
    """The highest noise level is noise alone, also for models that do not say so themselves (zero terminal SNR)."""
    half_alphas: bool = False
    """The model's noise levels come from numbers of 16 bits (A1111's use_downcasted_alpha_bar)."""
    shared_brownian: bool = False
    """One tree of Brownian noise for a batch, with a seed drawn by its last one's generator (A1111's
    no_dpmpp_sde_batch_determinism)."""
    uni_pc_variant: Literal["bh1", "bh2"] = "bh1"
    uni_pc_skip: Literal["time_uniform", "time_quadratic"] = "time_uniform"
    uni_pc_order: int = 3
    uni_pc_lower_order_final: bool = True
    """True if UniPC's last steps look back less far."""

    cfg_rescale: float = 0.0
    skip_early_cfg: float = 0.0
    s_min_uncond: float = 0.0
    s_min_uncond_all: bool = False
    """True if that counts in every step, not only in every second one."""
    image_cfg_scale: float = 1.5
    """How strongly the picture guides that instruct-pix2pix changes."""
    pag_scale: float = 0.0
    """How far from the model with perturbed attention; 3 is usual. Of U-Nets."""
    free_u: FreeU | None = None
    """What a U-Net's decoder takes in is scaled."""
    slg_scale: float = 0.0
    """How far from the model without `slg_layers`; 3 is usual for Stable Diffusion 3.5 medium. Of transformers."""
    slg_layers: tuple[int, ...] = (7, 8, 9)
    slg_start: float = 0.01
    slg_end: float = 0.15
    """Shares of the way from noise to picture, between which that guides."""

    apg: Projected | None = None
    """Adaptive projected guidance. Of this and the six below one can be chosen, or `cfg_rescale`."""
    dynamic_thresholding: DynamicThreshold | None = None
    """A high scale with the spread of a lower one."""
    cfg_zero_star: bool = False
    mahiro: bool = False
    cfg_lengths: bool = False
    """Guidance leaves the noise of each square of 2 x 2 as strong as with the prompt alone, as diffusers' does for Qwen-Image."""
    cfg_norm: float = 0.0
    """No pixel's vector is longer than the positive estimate's, times this."""
    perp_neg: float = 0.0
    """Of the negative prompt, what lies across the prompt, times this."""
    tangential_damping: bool = False
    fresca: Frequencies | None = None
    """The guidance's fine structure is stronger."""
    epsilon_scaling: float = 1.0
    """What the noise that is removed is divided by; 1.005 is usual where it is used."""
    refiner: str | None = None
    """A checkpoint that goes on from `refiner_switch_at`, a share of the way from noise to picture: a file, or its name."""
    refiner_switch_at: float = 0.8
    refiner_by_steps: bool = False
    """That share is one of the steps, not of the model's times."""
    hires_refiner: Literal["first pass", "second pass", "both passes"] = "second pass"
    """Where a picture has two passes, the one in which the refiner has its turn."""

    image: Image.Image | None = None
    """The picture to begin with."""
    denoising_strength: float = 0.75
    resize_mode: ResizeMode | Literal["latent"] = "stretch"
    """How `image` comes to the size that is painted; "latent" stretches not its pixels, but its latent."""
    resize_upscaler: str = "None"
    """What makes `image` larger on the way there: Lanczos, a file, or a name in the folders."""
    background: str = "#ffffff"
    """The colour of what is transparent in `image`."""
    initial_noise_multiplier: float = 1.0
    extra_noise: float = 0.0
    fix_steps: bool = False
    """As many steps as asked for, also where only the last part of the way is gone."""
    color_correction: bool = False

    control_image: Image.Image | None = None
    """Of edges or depth, for Flux Canny and Flux Depth."""
    crop_top: int = 0
    crop_left: int = 0
    """Pixels that Stable Diffusion XL is told to have been cut off."""
    low_score: float = 2.5
    high_score: float = 6.0
    """Aesthetic scores that Stable Diffusion XL's refiner is told of the negative prompt and of the prompt."""
    reference_images: tuple[Image.Image, ...] = ()
    """Pictures that Flux Kontext, Flux.2 and Qwen-Image-Edit look at."""
    numbered_references: bool = False
    """Qwen-Image-Edit is told of one picture as of several, by its number: so it was trained since 2509."""

    mask: Image.Image | None = None
    """White where `image` is painted anew."""
    mask_blur: float = 4.0
    mask_blur_y: float | None = None
    """The same down, if it is another than across."""
    overlay: bool = True
    """True if the picture outside of the mask is put over the result."""
    invert_mask: bool = False
    round_mask: bool = True
    inpainting_fill: Fill = "original"
    only_masked: bool = False
    only_masked_padding: int = 32
    latent_mask: Image.Image | None = None
    """In the place of the mask, what is painted anew in the latent; white there. `mask` still says what stays of the picture."""
    mask_weight: float = 1.0
    """How much models for inpainting see of the picture under the mask: nothing at 1, all at 0."""
    soft_inpainting: SoftInpainting | None = None
    differential: bool = False
    """A grey mask says when a pixel begins to change."""

    hires_scale: float = 1.0
    """Above 1, the picture is made again larger, from itself."""
    hires_width: int | None = None
    hires_height: int | None = None
    hires_upscaler: str = "Latent"
    hires_steps: int | None = None
    hires_denoising_strength: float = 0.7
    hires_sampler: str | None = None
    hires_scheduler: str | None = None
    hires_prompt: str | None = None
    hires_negative_prompt: str | None = None
    hires_cfg_scale: float | None = None
    hires_guidance: float | None = None
    hires_checkpoint: str | None = None
    """Another model for the second pass: a file, or its name. It has the same kind of latents."""
    hires_modules: tuple[str, ...] | None = None
    """Its autoencoder and text encoders: files, or names in the folders; none for those of its checkpoint, None for those of the
    first pass."""
    hires_same_networks: bool = False
    """The LoRAs of the first pass are on its text encoders too, whatever its prompt names (A1111's
    hires_fix_use_firstpass_conds)."""
    firstpass_image: Image.Image | None = None
    """What the second pass goes on from, in place of a first pass."""

    tiling: Literal["off", "on", "x", "y"] = "off"
    """The picture can be laid beside itself without a seam: in both directions (`on`), or in one."""
    vae_tiling: Use = "auto"
    """True if the autoencoder works on tiles: by itself, where the whole picture would not fit into memory."""
    vae_tile: int = 512
    """The side of a tile in pixels."""
    upscale_tile: int = 192
    """The same of networks that make pictures larger; 0 for the whole at once."""
    upscale_overlap: int = 8
    """Pixels by which those tiles overlap."""
    controls: tuple[ControlUnit, ...] = ()
    """ControlNets and T2I-Adapters, with their pictures; what they add is summed."""

    loras: Mapping[str, float] = field(default_factory=dict)
    """Strengths by name or path, beside those that the prompt names."""
    embeddings: Mapping[str, str] = field(default_factory=dict)
    """Files of textual inversion by the name that a prompt gives them, beside those in the folders of models."""

    def __post_init__(self) -> None:
        mode_of(self.mode)
        for name, (what, fits) in KINDS.items():
            value = getattr(self, name)
            if not (value is None and name in OPTIONAL) and not fits(value):
                raise SettingError(f"{name}: {_short(value)} is not {what}")
        for name, (low, high, what) in RANGES.items():
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) and name in KINDS else (value,):
                if number is None and name in OPTIONAL:
                    continue
                if not (_is_number(number) and low <= number <= high):
                    limit = f" to {high:.0f}" if _is_number(number) and number > high and " to " not in what else ""
                    raise SettingError(f"{name}: {_short(number)} is not {what}{limit}")
                if isinstance(number, float) and name in WHOLE:
                    raise SettingError(f"{name}: {number!r} is not a whole number")
        for name in RECORDS:
            record = getattr(self, name)
            if record is not None and not is_dataclass(record):
                raise SettingError(f"{name}: {_short(record)} is no record of such settings")
            for part in fields(record) if record is not None else ():
                number = getattr(record, part.name)
                if part.init and isinstance(number, float) and not math.isfinite(number):
                    raise SettingError(f"{name}: {part.name}: {number!r} is not a number")
        for name, choices in CHOICES.items():
            if not isinstance(getattr(self, name), str) or getattr(self, name) not in choices:
                raise SettingError(f"{name}: {getattr(self, name)!r} is none of {', '.join(choices)}")
        if self.mask is not None and self.image is None:
            raise SettingError("mask: there is no image that it belongs to")
        if self.latent_mask is not None and self.mask is None:
            raise SettingError("latent_mask: there is no mask that it belongs to")
        if self.sigmas and (len(self.sigmas) < 2 or list(self.sigmas) != sorted(set(self.sigmas), reverse=True)):
            raise SettingError("sigmas: at least two noise levels are needed, each below the one before")

    @classmethod
    def of(cls, prompt: str = "", **given: Any) -> Settings:
        """From names and values. Raises SettingError for a name that there is not, too."""
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise SettingError(f"there is no setting {unknown[0]!r}; there are {', '.join(sorted(known))}")
        return cls(prompt, **given)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # NaN is not


def _short(value: object) -> str:
    """A value as it is written, but not longer than a line."""
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}…"


AT_LEAST_ONE = "a whole number from 1"
SHARE = "a number from 0 to 1"
POSITIVE = "a number from 0"
GUIDANCE = "a number from -10000 to 10000"
INFINITE = math.inf
RANGES: dict[str, tuple[float, float, str]] = {
    "width": (8, 2**16, "a number of pixels from 8"),
    "height": (8, 2**16, "a number of pixels from 8"),
    "batch_size": (1, 2**10, AT_LEAST_ONE),
    "batches": (1, 2**20, AT_LEAST_ONE),
    "steps": (1, 2**14, AT_LEAST_ONE),
    "cfg_scale": (-1e4, 1e4, GUIDANCE),
    "guidance": (0, 1e4, POSITIVE),
    "seed": (-1, LARGEST_SEED, "a seed: -1 for any, else from 0 to 4294967295"),
    "subseed": (-1, LARGEST_SEED, "a seed: -1 for any, else from 0 to 4294967295"),
    "subseed_strength": (0, 1, SHARE),
    "seed_resize_from": (8, 2**16, "a number of pixels from 8"),
    "eta_noise_seed_delta": (-(2**31), 2**31, "a whole number"),
    "clip_skip": (1, 64, AT_LEAST_ONE),
    "t5_mask_pad": (0, 512, "a number of tokens from 0 to 512"),
    "eta": (0, 100, POSITIVE),
    "s_churn": (0, INFINITE, POSITIVE),
    "s_tmin": (0, INFINITE, POSITIVE),
    "s_tmax": (0, INFINITE, POSITIVE),
    "s_noise": (0, 1e4, POSITIVE),
    "sigmas": (0, INFINITE, POSITIVE),
    "sigma_min": (0, INFINITE, POSITIVE),
    "sigma_max": (0, INFINITE, POSITIVE),
    "rho": (1e-6, 1e4, "a number above 0"),
    "cfg_rescale": (0, 1, SHARE),
    "skip_early_cfg": (0, 1, SHARE),
    "s_min_uncond": (0, INFINITE, POSITIVE),
    "cfg_norm": (0, 100, POSITIVE),
    "perp_neg": (0, 100, POSITIVE),
    "epsilon_scaling": (0.5, 2, "a number from 0.5 to 2"),
    "image_cfg_scale": (-1e4, 1e4, GUIDANCE),
    "pag_scale": (0, 100, "a number from 0 to 100"),
    "slg_scale": (0, 100, "a number from 0 to 100"),
    "slg_layers": (0, 1000, "a number of a layer"),
    "slg_start": (0, 1, SHARE),
    "refiner_switch_at": (0, 1, SHARE),
    "slg_end": (0, 1, SHARE),
    "denoising_strength": (0, 1, SHARE),
    "initial_noise_multiplier": (0, 100, POSITIVE),
    "extra_noise": (0, 100, POSITIVE),
    "mask_blur": (0, 4096, "a number of pixels from 0"),
    "mask_blur_y": (0, 4096, "a number of pixels from 0"),
    "only_masked_padding": (0, 2**16, "a number of pixels from 0"),
    "hires_scale": (1, 16, "a number from 1 to 16"),
    "hires_width": (8, 2**16, "a number of pixels from 8"),
    "hires_height": (8, 2**16, "a number of pixels from 8"),
    "hires_steps": (1, 2**14, AT_LEAST_ONE),
    "hires_denoising_strength": (0, 1, SHARE),
    "hires_cfg_scale": (-1e4, 1e4, GUIDANCE),
    "hires_guidance": (0, 1e4, POSITIVE),
    "beta_alpha": (0.01, 100, "a number from 0.01 to 100"),
    "beta_beta": (0.01, 100, "a number from 0.01 to 100"),
    "uni_pc_order": (1, 50, "a whole number from 1 to 50"),
    "comma_backtrack": (0, 75, "a number of tokens from 0 to 75"),
    "crop_top": (0, 2**14, "a number of pixels from 0"),
    "crop_left": (0, 2**14, "a number of pixels from 0"),
    "low_score": (0, 100, POSITIVE),
    "high_score": (0, 100, POSITIVE),
    "mask_weight": (0, 1, SHARE),
    "vae_tile": (64, 2**16, "a number of pixels from 64"),
    "upscale_tile": (0, 2**16, "a number of pixels from 0"),
    "upscale_overlap": (0, 2**12, "a number of pixels from 0"),
}
"""What a number may be: from, to, and how it is said."""

WHOLE = tuple(each.name for each in fields(Settings) if str(each.type).startswith(("int", "tuple[int")))
"""Settings that are whole numbers."""

OPTIONAL = tuple(each.name for each in fields(Settings) if "None" in str(each.type))
"""Settings that may be None."""


def _mapping(value: object, *of: type) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(each, of) for name, each in value.items()
    )


def _sequence(value: object, sign: str) -> bool:
    return isinstance(value, tuple | list) and all(hasattr(each, sign) for each in value)


BY_TYPE: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a text", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, int) or type(value).__name__.startswith("bool")),
    "Image.Image": ("a picture (PIL.Image)", lambda value: hasattr(value, "getbands")),
    "np.ndarray": ("an array of NumPy", lambda value: hasattr(value, "ndim")),
    "tuple[str, ...]": ("a sequence of texts", lambda value: _sequence(value, "casefold")),
    "tuple[float, ...]": ("a tuple of numbers", lambda value: isinstance(value, tuple)),
    "tuple[int, ...]": ("a tuple of numbers", lambda value: isinstance(value, tuple)),
    "tuple[int, int]": ("a tuple of two numbers", lambda value: isinstance(value, tuple) and len(value) == 2),
    "tuple[Image.Image, ...]": ("a sequence of pictures (PIL.Image)", lambda value: _sequence(value, "getbands")),
    "tuple[ControlUnit, ...]": ("a sequence of units (ControlUnit)", lambda value: _sequence(value, "guidance_start")),
    "Mapping[str, str]": ("a mapping from names to files", lambda value: _mapping(value, str, os.PathLike)),
    "Mapping[str, float]": ("a mapping from names to strengths", lambda value: _mapping(value, int, float)),
}
"""What settings that are no numbers must be, by their types as they are written; without what only these need being imported."""

KINDS = {
    each.name: BY_TYPE[kind] for each in fields(Settings) if (kind := str(each.type).removesuffix(" | None")) in BY_TYPE
}

RECORDS = ("soft_inpainting", "apg", "dynamic_thresholding", "fresca", "free_u")
"""Settings that are records of numbers, or None."""

CHOICES: dict[str, tuple[str, ...]] = {
    "emphasis": ("Original", "No norm", "Ignore", "None"),
    "pad_prompts": ("off", "empty", "last"),
    "hires_refiner": ("first pass", "second pass", "both passes"),
    "inpainting_fill": ("fill", "original", "latent noise", "latent nothing"),
    "resize_mode": ("stretch", "crop", "fill", "latent"),
    "uni_pc_variant": ("bh1", "bh2"),
    "uni_pc_skip": ("time_uniform", "time_quadratic"),
    "tiling": ("off", "on", "x", "y"),
    "vae_tiling": ("auto", "on", "off"),
}
