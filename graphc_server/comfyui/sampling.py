"""A sampler's run over a latent, with a model, what it is told, and noise.

Source: ComfyUI's comfy/samplers.py (CFGGuider, KSampler, KSAMPLER) and comfy/sample.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc_images import SettingError
from graphc_images.image_prompts import ImagePrompt, image_prompt, looking
from graphc_images.inpainting import Region
from graphc_images.models.free_u import freed
from graphc_images.noise import brownian_noise
from graphc_images.noise.sources import BatchNoise
from graphc_images.painting import levels_of, predicted_by, table_family
from graphc_images.pictures.masks import bilinear
from graphc_images.sampling import Guidance, Guided, Levels, Plan, Prompts, Request, Weakened, find_scheduler
from graphc_images.sampling.guidance import classifier_free, perpendicular
from graphc_images.sampling.plan import plan
from graphc_images.sampling.samplers import PairDenoiser
from graphc_server.comfyui.steered import Steering
from graphc_server.comfyui.telling import Mixture, Teller, beside, controlled_as
from graphc_server.comfyui.values import ChosenSampler, Guider, Latent, Looked, Model, Texts

if TYPE_CHECKING:
    from graphc_server.comfyui.executor import Room

SETTINGS: dict[str, Any] = {"eta": None, "s_churn": 0.0, "s_tmin": 0.0, "s_tmax": math.inf, "s_noise": 1.0}
"""Usual values of what samplers take."""


def levels_for(model: Model) -> Levels:
    """The noise levels of a model, its own or others."""
    return model.levels or levels_of(model.image_model, "comfyui")


def fitting(model: Model, latent: Latent) -> np.ndarray:
    """The samples; an empty latent gets as many channels as the model has. Raises SettingError for others that do not fit."""
    channels, samples = model.image_model.architecture.latent.channels, latent.samples
    if samples.shape[1] == channels:
        return samples
    if samples.any():
        raise SettingError(f"latent: it has {samples.shape[1]} channels, and {_name(model)} works on {channels}")
    return np.zeros((len(samples), channels, *samples.shape[2:]), np.float32)


def _name(model: Model) -> str:
    return model.image_model.architecture.name


def schedule(
    model: Model, sampler: ChosenSampler, scheduler: str, steps: int, denoise: float, tokens: int = 4096, **more: Any
) -> list[float]:
    """The noise levels of a scheduler; of a part of the way they are the last of more."""
    asked = Request(
        steps,
        "comfyui",
        None if denoise >= 1 else denoise,
        family=table_family(model.image_model),
        tokens=tokens,
        **more,
    )
    return plan(sampler.sampler, find_scheduler(scheduler), levels_for(model), asked).sigmas


def plan_of(model: Model, sampler: ChosenSampler, sigmas: Sequence[float]) -> Plan:
    """A plan over noise levels. Raises SettingError for levels that do not fall, or that the sampler cannot have."""
    found, levels = [float(each) for each in sigmas], levels_for(model)
    if not found:
        return Plan(sampler.sampler, levels, "comfyui", [], [])
    if any(
        later > earlier or not math.isfinite(earlier) for earlier, later in zip(found, [*found[1:], 0.0], strict=True)
    ):
        raise SettingError("sigmas: noise levels must fall, and end at 0 or above")
    found = list(dict.fromkeys(found))  # a level that comes twice would be a step of no length
    plan(sampler.sampler, None, levels, Request(1, "comfyui", sigmas=[1.0, 0.0]))
    first = math.isclose(levels.highest, found[0], rel_tol=1e-5) or found[0] > levels.highest
    return Plan(sampler.sampler, levels, "comfyui", found, found, more_noise=first)


def run(
    room: Room,
    guider: Guider,
    latent: Latent,
    sampler: ChosenSampler,
    sigmas: Sequence[float],
    seed: int,
    *,
    noisy: bool = True,
) -> tuple[Latent, Latent]:
    """The latent after the steps, and what the model takes the finished one to be then. Without `noisy` there is no noise but
    what samplers add. Raises Interrupted and GraphcError."""
    model = guider.model
    samples, way = fitting(model, latent), plan_of(model, sampler, sigmas)
    if len(way.sigmas) < 2:
        same = replace(latent, samples=samples)
        return same, same
    form = model.image_model.architecture.latent
    begun = form.from_encoded(samples) if samples.any() else np.zeros_like(samples)
    room.library.put_on(model.image_model, model.loras, "denoiser")
    source = BatchNoise(begun.shape, seed, latent.numbers)
    noise = source.first() if noisy else np.zeros(begun.shape, np.float32)
    guided = guided_by(room, guider, latent, begun, way)
    denoiser: PairDenoiser = guided
    if latent.mask is not None:
        mask = mask_for(latent.mask, begun)
        region = Region(mask, begun, differential=model.differential is not None)
        denoiser = region.wrap(guided, way, _Silent(source) if not noisy else source)
    x = way.start(noise, begun if samples.any() else None).astype(np.float32)
    more: Any = source
    if sampler.sampler.brownian:
        more = brownian_noise("comfyui", begun.shape, [seed], way.whole, sampler.sampler.brownian)
    found, estimate = x, x

    def drawn(estimate: np.ndarray) -> np.ndarray:
        return np.asarray(form.preview(estimate)[0])

    for step in way.run(denoiser, x, more, **{**SETTINGS, **dict(sampler.settings)}):
        found, estimate = step.x, step.denoised
        room.step(step.index + 1, max(way.steps, step.index + 1), partial(drawn, estimate))
    if way.levels.path.flow and way.sigmas[-1] > 0:
        found = found / np.float32(1 - way.sigmas[-1])
    done, estimated = (replace(latent, samples=form.to_encoded(each)) for each in (found, estimate))
    return done, estimated


class _Silent:
    """A source without the noise that a picture starts from."""

    def __init__(self, source: BatchNoise) -> None:
        self.source = source

    def first(self) -> np.ndarray:
        """Zeros."""
        return np.zeros(self.source.shape, np.float32)

    def next(self) -> np.ndarray:
        """The source's."""
        return self.source.next()

    def __call__(self, sigma: float, sigma_next: float) -> np.ndarray:
        """The source's."""
        return self.source(sigma, sigma_next)


def mask_for(mask: np.ndarray, latent: np.ndarray) -> np.ndarray:
    """A mask [batch, height, width] at the size of a latent, for each of its batch."""
    small = np.stack([bilinear(each, *latent.shape[2:]) for each in mask])[:, None]
    return small if len(small) == 1 else small[np.arange(len(latent)) % len(small)]


def guided_by(room: Room, guider: Guider, latent: Latent, begun: np.ndarray, way: Plan) -> Guided:
    """A denoiser that is told what the guider says."""
    model, image_model = guider.model, guider.model.image_model
    teller = Teller(image_model, way.levels, latent, begun, signed=bool(model.looks))
    positive, negative = guider.positive, guider.negative
    if negative is not None:
        positive, negative = beside(positive, negative), beside(controlled_as(negative, positive), positive)
    if not positive:
        raise SettingError("positive: there is nothing that the model is told")
    told = [
        None if each is None else teller.pieces(each, negative=place > 0)
        for place, each in enumerate((positive, negative, guider.empty))
    ]
    prompts = Prompts([(told[0], 1.0)], told[1], told[2])
    steering = Steering(room.library, image_model, way, _controls(positive, negative))
    looks = [_prompt(room, model, each) for each in model.looks]
    controlled = lambda *given: looking(freed(steering.with_controls(*given), model.free_u), looks)  # noqa: E731
    mixture = Mixture(image_model, way, model.prediction or predicted_by(image_model), controlled)
    return Guided(mixture, lambda evaluation: prompts, guidance_of(guider, way), way.evaluations)


def _prompt(room: Room, model: Model, looked: Looked) -> ImagePrompt:
    """What an IP-Adapter makes of pictures for a model. Raises ModelError if it is for others."""
    adapter = room.library.ip_adapter(looked.adapter)
    adapter.check(model.image_model)
    region = None if looked.mask is None else looked.mask[0]
    return image_prompt(
        adapter, looked.seen, looked.nothing, looked.weight, looked.kind, looked.scaling,
        region=region, start=looked.start, end=looked.end,
    )  # fmt: skip


def _controls(*given: Texts | None) -> bool:
    return any(told.controls for texts in given for told in texts or ())


def guidance_of(guider: Guider, way: Plan) -> Guidance:
    """How strongly, and by which rules."""
    model = guider.model
    weakened = tuple(
        Weakened(
            each.weakening, each.scale, way.levels.sigma_at(each.start), way.levels.sigma_at(each.end), each.rescale
        )
        for each in model.weaker
    )
    third: Callable | None = None
    if guider.empty is not None:
        third = lambda moment, empty: perpendicular(moment, empty, guider.across)  # noqa: E731
    rule = classifier_free if model.rule is None else model.rule()
    return Guidance(guider.scale, rule, third, model.before, weakened, model.noise_factor)
