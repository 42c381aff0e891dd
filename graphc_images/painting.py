"""One pass from noise, or from a noised latent, to a latent: conditionings, guidance and the sampler together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from graphc_images.conditions import Conditioner
from graphc_images.errors import SettingError
from graphc_images.models import Conditioning, ImageModel
from graphc_images.models.free_u import freed
from graphc_images.models.together import ROOM, alike, joined
from graphc_images.modes import Mode
from graphc_images.noise import NoiseSource, brownian_noise, noise_source
from graphc_images.prompts.embeddings import Embedding
from graphc_images.reading import Canvas, Reader
from graphc_images.refining import InTurn
from graphc_images.sampling import (
    Guidance,
    Guided,
    Levels,
    Plan,
    Prediction,
    Request,
    Weakened,
    Weakening,
    edm,
    find_sampler,
    levels_of_model,
    model_for,
    prediction_of,
)
from graphc_images.sampling.guidance import (
    Moment,
    classifier_free,
    lengthened,
    mahiro,
    normed,
    perpendicular,
    rescaled,
    tangential,
    with_image,
    zero_star,
)
from graphc_images.sampling.names import Sampler, chosen_scheduler
from graphc_images.sampling.plan import plan
from graphc_images.sampling.samplers import PairDenoiser
from graphc_images.sampling.samplers.unipc import unipc, unipc_times
from graphc_images.seen import NOTHING
from graphc_images.settings import Settings
from graphc_images.steering import Steering

Wrapper = Callable[[PairDenoiser, Plan, NoiseSource], PairDenoiser]
"""What makes another denoiser of one: for inpainting."""


@dataclass(frozen=True)
class Stroke:
    """A step of a pass: how many are done of how many, the latent, and what the model takes the finished one to be."""

    done: int
    steps: int
    latent: np.ndarray
    estimate: np.ndarray


def paint(
    conditioner: Conditioner,
    settings: Settings,
    canvas: Canvas,
    wrapped: Wrapper | None = None,
    hires_of: int | None = None,
    embeddings: tuple[Embedding, ...] = (),
    refiner: Conditioner | None = None,
    steering: Steering | None = None,
) -> Iterator[Stroke]:
    """The steps of a pass; the last one's latent is the result, and there is none if there is nothing to do. `settings` are
    resolved (see `resolving.py`).

    `hires_of` is the number of steps of the first pass, where this is the second. A `refiner` goes on at
    `settings.refiner_switch_at`.
    """
    model = conditioner.model
    levels = levels_of(model, settings.mode, settings.zero_snr, settings.half_alphas)
    way = planned(settings, levels, canvas, model, again=hires_of is not None)

    def guided_by(conditioner: Conditioner, canvas: Canvas) -> Guided:
        prompts = Reader(conditioner, settings, canvas, hires_of, embeddings).prompts(way.evaluations)
        guidance = guidance_of(settings, way, canvas.seen.without is not None)
        own = conditioner.model
        denoise = steering.denoise if steering is not None and own is model else own.denoise
        return Guided(Network(own, way, freed(denoise, settings.free_u)), prompts, guidance, way.evaluations)

    if steering is not None:
        steering.begin(way)

    first = guided_by(conditioner, canvas)
    guided: PairDenoiser = first
    if refiner is not None:
        alike = refiner.model.architecture.added == model.architecture.added
        theirs = canvas if alike else replace(canvas, seen=NOTHING)
        guided = InTurn(
            first,
            lambda: guided_by(refiner, theirs),
            levels,
            settings.refiner_switch_at,
            by_steps=settings.refiner_by_steps,
        )
    source = noise_of(settings, canvas)
    noise = source.first() if settings.noise is None else as_shape("noise", settings.noise, canvas.shape)
    x = way.start(noise * settings.initial_noise_multiplier, canvas.latent, settings.extra_noise)
    denoiser: PairDenoiser = guided if steering is None else steering.wrap(guided)
    denoiser = denoiser if wrapped is None else wrapped(denoiser, way, source)
    more = noise_for(way, settings, canvas, source)
    for step in way.run(denoiser, x.astype(np.float32), more, **sampler_settings(settings, way.sampler)):
        if steering is not None:
            steering.step = step.index + 1
        yield Stroke(step.index + 1, max(way.steps, step.index + 1), step.x, step.denoised)


def as_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A setting that is an array, float32. Raises SettingError if it has another shape."""
    if np.shape(array) != shape:
        raise SettingError(f"{name}: its shape is {list(np.shape(array))}, and that of the latents {list(shape)}")
    return np.asarray(array, np.float32)


def levels_of(model: ImageModel, mode: Mode, zero_snr: bool = False, half: bool = False) -> Levels:
    """The noise levels that a model was trained on; with `zero_snr`, moved so that the highest is noise alone; from numbers of 16
    bits with `half`."""
    found, architecture = model.recognized, model.architecture
    family = "flux_schnell" if architecture.kind == "flux" and architecture.shift == 1 else architecture.kind
    return levels_of_model(
        found.prediction, mode, family, found.zero_snr or zero_snr, found.edm[:2] if found.edm else None, half=half
    )


def predicted_by(model: ImageModel) -> Prediction:
    """What its network predicts."""
    found = model.recognized
    return edm(found.edm[2]) if found.prediction == "edm" and found.edm else prediction_of(found.prediction)


def table_family(model: ImageModel) -> str:
    """Whose searched-for noise levels fit it (see `level_tables.py`)."""
    kind = model.architecture.kind
    return ("sdxl" if model.architecture.sizes else "sd1") if kind == "unet" else kind


def tokens_of(model: ImageModel, canvas: Canvas) -> int:
    """Pieces of 2 x 2 pixels of the autoencoder's latent: schedules of flow models depend on their number."""
    return canvas.shape[2] * canvas.shape[3] * model.architecture.latent.packed**2 // 4


def planned(settings: Settings, levels: Levels, canvas: Canvas, model: ImageModel, *, again: bool) -> Plan:
    """The noise levels of a pass; `again` for one that goes on from a picture that was just made."""
    assert settings.sampler is not None
    assert settings.steps is not None
    sampler, own = find_sampler(settings.sampler, settings.mode)
    scheduler = chosen_scheduler(settings.scheduler, own)
    return plan(
        sampler,
        scheduler,
        levels,
        Request(
            steps=settings.steps,
            mode=settings.mode,
            denoise=settings.denoising_strength if canvas.latent is not None else None,
            fix_steps=settings.fix_steps or again,
            sigmas=settings.sigmas or None,
            low=settings.sigma_min,
            high=settings.sigma_max,
            rho=settings.rho,
            family=table_family(model),
            tokens=tokens_of(model, canvas),
            discard_penultimate=bool(settings.discard_next_to_last_sigma),
            alpha=settings.beta_alpha,
            beta=settings.beta_beta,
            more_noise=settings.more_noise,
        ),
    )


RULES: Mapping[str, Callable[[Any], Callable[[Moment], np.ndarray]]] = {
    "cfg_rescale": lambda share: partial(rescaled, share=share),
    "apg": replace,  # one of its own for each pass, because it remembers
    "dynamic_thresholding": lambda rule: rule,
    "cfg_zero_star": lambda on: zero_star,
    "mahiro": lambda on: mahiro,
    "cfg_lengths": lambda on: lengthened,
    "cfg_norm": lambda strength: partial(normed, strength=strength),
}
"""Settings that say how two estimates become one, of which one can be chosen, and their rules."""


def rule_of(settings: Settings) -> Callable[[Moment], np.ndarray]:
    """How the estimates become one. Raises SettingError where that is said twice."""
    chosen = [name for name in (*RULES, "perp_neg") if getattr(settings, name)]
    if len(chosen) > 1:
        raise SettingError(f"{', '.join(chosen)}: one of them says how the negative prompt counts")
    rules = [RULES[name](getattr(settings, name)) for name in chosen if name in RULES]
    return rules[0] if rules else classifier_free


def guidance_of(settings: Settings, way: Plan, by_picture: bool = False) -> Guidance:
    """How strongly, and by which rules, the prompt guides, and the picture that is edited, if it does. Raises SettingError for
    rules of which one alone can be."""
    third = partial(perpendicular, negative_scale=settings.perp_neg) if settings.perp_neg else None
    if by_picture:
        if third or rule_of(settings) is not classifier_free:
            raise SettingError("instruct-pix2pix has a rule of its own for guidance: take off the others")
        third = partial(with_image, image_scale=settings.image_cfg_scale)
    assert settings.cfg_scale is not None
    before = (tangential if settings.tangential_damping else None, settings.fresca)
    return Guidance(
        settings.cfg_scale / (way.sampler.scale_divisor if settings.mode == "a1111" else 1.0),
        rule_of(settings),
        third,
        tuple(rule for rule in before if rule is not None),
        weakened(settings, way.levels),
        settings.epsilon_scaling,
        skip_below=settings.s_min_uncond,
        skip_below_always=settings.s_min_uncond_all,
        skip_early=settings.skip_early_cfg,
    )


def weakened(settings: Settings, levels: Levels) -> tuple[Weakened, ...]:
    """Guidance away from the model with perturbed attention, and away from the model without some of its layers."""
    found = []
    if settings.pag_scale:
        found.append(Weakened(Weakening(attention=("middle",)), settings.pag_scale))
    if settings.slg_scale:
        ends = (levels.sigma_at(share) for share in (settings.slg_start, settings.slg_end))
        found.append(Weakened(Weakening(layers=settings.slg_layers), settings.slg_scale, *ends))
    return tuple(found)


def noise_of(settings: Settings, canvas: Canvas) -> NoiseSource:
    """The noise that pictures start from, and that samplers add."""
    if settings.mode == "comfyui":
        return noise_source(settings.mode, canvas.shape, canvas.seeds[0], settings.generator)
    scale = settings.width // canvas.shape[3] if settings.width else 8
    resized = settings.seed_resize_from
    return noise_source(
        settings.mode,
        canvas.shape,
        canvas.seeds[0],
        settings.generator,
        canvas.subseeds[0],
        subseed_strength=settings.subseed_strength,
        resize_from=(resized[1] // scale, resized[0] // scale) if resized else None,
        seed_delta=settings.eta_noise_seed_delta,
    )


def noise_for(way: Plan, settings: Settings, canvas: Canvas, source: NoiseSource) -> NoiseSource | Callable:
    """What a sampler draws from."""
    if not way.sampler.brownian or not way.whole:
        return source
    generator = settings.generator or (way.sampler.brownian if settings.mode == "comfyui" else None)
    levels = way.sigmas if settings.shared_brownian else way.whole
    return brownian_noise(settings.mode, canvas.shape, canvas.seeds, levels, generator, shared=settings.shared_brownian)


UNI_PC = {
    "uni_pc_variant": "variant",
    "uni_pc_skip": "skip",
    "uni_pc_order": "order",
    "uni_pc_lower_order_final": "lower_order_final",
}
"""Settings of UniPC alone, and what its functions call them."""


def sampler_settings(settings: Settings, sampler: Sampler) -> dict[str, Any]:
    """What a sampler takes, of those that have it."""
    found = {name: getattr(settings, name) for name in ("eta", "s_churn", "s_tmin", "s_tmax", "s_noise")}
    if sampler.function in (unipc, unipc_times):
        found |= {theirs: getattr(settings, ours) for ours, theirs in UNI_PC.items()}
    return found


class Network:
    """A model as guidance sees it (see `guided.py`). Small latents go through it with several conditionings together.

    `denoise` is the model's own, or one that is steered.
    """

    def __init__(self, model: ImageModel, way: Plan, denoise: Callable[..., np.ndarray]) -> None:
        self.denoise, self.way, self.prediction = denoise, way, predicted_by(model)

    def __call__(
        self, x: np.ndarray, sigma: float, conditionings: Sequence[Conditioning], weakening: Weakening | None = None
    ) -> list[np.ndarray]:
        """See `guided.ConditionedModel`."""
        found: list[np.ndarray] = []
        for group in grouped(conditionings, x):
            told, rows = group[0], x
            if len(group) > 1:
                told, rows = joined(group, [len(x)] * len(group)), np.concatenate([x] * len(group))
            network = partial(self.denoise, conditioning=told, weakening=weakening or Weakening())
            found += np.split(model_for(self.way, network, self.prediction)(rows, sigma), len(group))
        return found


def grouped(conditionings: Sequence[Conditioning], x: np.ndarray) -> list[list[Conditioning]]:
    """Neighbours that can go through the model in one batch. Large latents fill a device alone, and take half the memory one
    after the other."""
    groups: list[list[Conditioning]] = []
    most = ROOM // (len(x) * x.shape[2] * x.shape[3])
    for each in conditionings:
        if groups and len(groups[-1]) < most and alike(groups[-1][0], each):
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups
