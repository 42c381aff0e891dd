"""A model with its prompts and guidance, as samplers see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.sampling.guidance import Moment, away_from, classifier_free, composed, noise_scaled
from graphc_images.sampling.predictions import Denoiser, Network


@dataclass(frozen=True)
class Weakening:
    """What a model leaves out of itself for one estimate; nothing, if all is empty."""

    layers: tuple[int, ...] = ()
    """Numbers of transformer blocks that are skipped (skip-layer guidance)."""

    attention: tuple[str, ...] = ()
    """Blocks whose self-attention gives its values as they are (perturbed attention): "middle", "input.4", "output.0", …"""


class ConditionedModel(Protocol):
    """What guidance needs from a model. The room of the models supplies it."""

    def __call__(
        self, x: np.ndarray, sigma: float, conditionings: Sequence[Any], weakening: Weakening | None = None
    ) -> list[np.ndarray]:
        """The estimate of the picture for each conditioning, in one batch or one after the other.

        What a conditioning is, the model knows. One that cannot leave out what a `weakening` says raises an `ImageError`.
        """
        ...


class Conditioned:
    """A model that takes (x, time, conditioning) and predicts, as guidance wants it: a conditioning after the other."""

    def __init__(
        self, predict: Callable[[np.ndarray, float, Any], np.ndarray], denoiser: Callable[[Network], Denoiser]
    ) -> None:
        """`denoiser` makes a denoiser of a network (`plan.model_for`)."""
        self.predict, self.denoiser = predict, denoiser

    def __call__(
        self, x: np.ndarray, sigma: float, conditionings: Sequence[Any], weakening: Weakening | None = None
    ) -> list[np.ndarray]:
        """See `ConditionedModel`. It cannot leave out anything."""
        if weakening is not None:
            raise SettingError("this model cannot skip layers or perturb its attention")
        return [self.denoiser(partial(self._network, conditioning))(x, sigma) for conditioning in conditionings]

    def _network(self, conditioning: Any, x: np.ndarray, time: float) -> np.ndarray:
        return self.predict(x, time, conditioning)


@dataclass(frozen=True)
class Prompts:
    """What the model is told in one step."""

    positives: Sequence[tuple[Any, float]]
    """Conditionings and their weights: several for AND."""

    negative: Any = None
    third: Any = None
    """What a rule of three estimates wants (`Guidance.third`): no prompt, or no picture."""


@dataclass(frozen=True)
class Weakened:
    """Guidance away from a weakened model, between two noise levels."""

    weakening: Weakening
    scale: float = 3.0
    highest: float = math.inf
    lowest: float = 0.0
    rescale: float = 0.0


@dataclass(frozen=True)
class Guidance:
    """How strongly, and by which rules, the prompt guides."""

    scale: float = 7.0
    combine: Callable[[Moment], np.ndarray] = classifier_free
    third: Callable[[Moment, np.ndarray], np.ndarray] | None = None
    """A rule of three estimates in the place of `combine`: `perpendicular` (a third without prompt), `with_image` (picture)."""

    before: tuple[Callable[[Moment], Moment], ...] = ()
    """Rules that change one of the estimates first: `tangential`, `Frequencies`."""

    weakened: tuple[Weakened, ...] = ()
    noise_factor: float = 1.0
    """Epsilon scaling's."""

    skip_below: float = 0.0
    """NGMS (s_min_uncond): below this noise level, the negative prompt is left out in each second evaluation."""

    skip_below_always: bool = False
    """… in each evaluation."""

    skip_early: float = 0.0
    """The negative prompt is left out in the first evaluations, to this share of all."""


class Guided:
    """A denoiser of a model, its prompts and a guidance. It counts its evaluations, which choose among scheduled prompts."""

    def __init__(
        self, model: ConditionedModel, prompts: Callable[[int], Prompts], guidance: Guidance, evaluations: int
    ) -> None:
        """`prompts` gives those of an evaluation, from 0; `evaluations` is how many there will be (`Plan.evaluations`)."""
        self.model, self.prompts, self.guidance, self.evaluations = model, prompts, guidance, evaluations
        self.count = 0

    def __call__(self, x: np.ndarray, sigma: float) -> np.ndarray:
        """The estimate with guidance. Where the scale is 1, or a rule says so, the negative prompt is not evaluated."""
        return self._evaluate(x, sigma, self.skips(sigma))[0]

    def pair(self, x: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
        """The estimate with guidance, and the one for the negative prompt: for samplers of CFG++."""
        return self._evaluate(x, sigma, None)

    def skips(self, sigma: float) -> bool:
        """True if skip-early or NGMS leaves out the negative prompt now."""
        guidance = self.guidance
        if guidance.skip_early > 0 and self.count / self.evaluations <= guidance.skip_early:
            return True
        return (
            (self.count % 2 == 1 or guidance.skip_below_always)
            and guidance.skip_below > 0
            and sigma < guidance.skip_below
        )

    def _alone(self, prompts: Prompts, skipped: bool | None) -> bool:
        """True if the negative prompt is not evaluated: it is skipped, is not there, or does not count."""
        guidance = self.guidance
        if skipped or prompts.negative is None:
            return True
        plain = guidance.combine is classifier_free and guidance.third is None and not guidance.before
        single = [weight for _, weight in prompts.positives] == [1.0]
        return skipped is not None and plain and single and math.isclose(guidance.scale, 1.0)

    def _evaluate(self, x: np.ndarray, sigma: float, skipped: bool | None) -> tuple[np.ndarray, np.ndarray]:
        """Both estimates; `skipped` is None where the negative one is needed by itself."""
        prompts, guidance = self.prompts(self.count), self.guidance
        conditionings = [conditioning for conditioning, _ in prompts.positives]
        weights = [weight for _, weight in prompts.positives]
        alone = self._alone(prompts, skipped)
        others = [] if alone else [prompts.negative] if guidance.third is None else [prompts.negative, prompts.third]
        estimates = self.model(x, sigma, [*conditionings, *others])
        negative = estimates[0 if alone else len(weights)]
        positive = estimates[0] if weights == [1.0] else composed(estimates[: len(weights)], weights, negative)
        moment = Moment(x, sigma, positive, negative, guidance.scale, self.count, self.evaluations)
        for rule in guidance.before:
            moment = rule(moment)
        if alone:
            denoised = positive
        else:
            denoised = guidance.combine(moment) if guidance.third is None else guidance.third(moment, estimates[-1])
        for each in guidance.weakened:
            if each.scale and each.lowest <= sigma <= each.highest:
                (weak,) = self.model(x, sigma, conditionings[:1], each.weakening)
                denoised = away_from(denoised, positive, weak, each.scale, each.rescale)
        if guidance.noise_factor != 1:
            denoised = noise_scaled(x, denoised, guidance.noise_factor)
        self.count += 1
        return denoised, negative
