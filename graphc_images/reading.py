"""What a pass paints on, and what its model is told there: prompts as conditionings for each evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc_images.conditions import Conditioner, Reading, Told
from graphc_images.models import Conditioning
from graphc_images.prompts.embeddings import Embedding
from graphc_images.prompts.lengths import pad_with_empty, pad_with_last
from graphc_images.prompts.plan import PromptPlan, read_prompt
from graphc_images.prompts.schedule import Stage
from graphc_images.sampling import Prompts
from graphc_images.seen import NOTHING, Seen
from graphc_images.settings import Settings


@dataclass(frozen=True)
class Canvas:
    """What a pass paints on: the latent's shape [batch, channels, height, width], the pictures' seeds, and for a pass that goes
    on from a picture the latent to begin with. `seen` is what the model looks at besides.
    """

    shape: tuple[int, int, int, int]
    seeds: Sequence[int]
    subseeds: Sequence[int]
    latent: np.ndarray | None = None
    seen: Seen = NOTHING


class Reader:
    """The prompts of a pass, as conditionings for each evaluation."""

    def __init__(
        self,
        conditioner: Conditioner,
        settings: Settings,
        canvas: Canvas,
        hires_of: int | None,
        embeddings: tuple[Embedding, ...],
    ) -> None:
        self.conditioner, self.settings, self.canvas, self.hires_of = conditioner, settings, canvas, hires_of
        pixels = conditioner.model.architecture.latent.pixels
        self.reading = Reading(
            settings.mode,
            settings.emphasis,
            settings.clip_skip,
            embeddings,
            size=(canvas.shape[2] * pixels, canvas.shape[3] * pixels),
            guidance=settings.guidance,
            t5_mask_pad=settings.t5_mask_pad,
            comma_backtrack=settings.comma_backtrack,
            old_emphasis=settings.old_emphasis,
            crop=(settings.crop_top, settings.crop_left),
            scores=(settings.low_score, settings.high_score),
            looks=canvas.seen.looks,
        )

    def prompts(self, evaluations: int) -> Callable[[int], Prompts]:
        """What the model is told at an evaluation, counted from 0."""
        without = self.canvas.seen.without
        positive = self._plan(self.settings.prompt, evaluations, negative=False)
        negative = self._plan(self.settings.negative_prompt, evaluations, negative=True)
        wanted = [_texts(part.stages) for part in positive.parts]
        if self.settings.cfg_scale != 1 or without is not None:
            wanted.append(replace(_texts(negative.parts[0].stages), negative=True))
        if self.settings.perp_neg or self.settings.pad_prompts == "empty":
            wanted.append(Told(("",)))
        encoded = self._encoded(wanted)
        told = encoded[: len(positive.parts)]
        against = next((each for one, each in zip(wanted, encoded, strict=True) if one.negative), {})
        nothing = encoded[-1].get("")
        empty = nothing if self.settings.perp_neg else None

        def at(evaluation: int) -> Prompts:
            texts = positive.at(evaluation)
            said = [(told[place][text], weight) for place, (text, weight) in enumerate(texts)]
            if not against:
                return Prompts(said, None, empty)
            other = against[negative.at(evaluation)[0].text]
            said, other = self._padded(said, other, nothing)
            return Prompts(said, other, empty if without is None else replace(other, latents=without))

        return at

    def _padded(
        self, said: list[tuple[Conditioning, float]], other: Conditioning, nothing: Conditioning | None
    ) -> tuple[list[tuple[Conditioning, float]], Conditioning]:
        """The prompt and the negative prompt, the shorter one filled up as `pad_prompts` says."""
        if self.settings.pad_prompts == "off" or other.mask is not None:
            return said, other
        longest = max(each.words.shape[1] for each, _ in said)
        if self.settings.pad_prompts == "last":
            return said, replace(other, words=pad_with_last(other.words, longest))
        assert nothing is not None
        fill = nothing.words
        whole = other.words.shape[1]
        longer = [(replace(each, words=pad_with_empty(each.words, fill, whole)), weight) for each, weight in said]
        return longer, replace(other, words=pad_with_empty(other.words, fill, longest))

    def _plan(self, prompt: str, evaluations: int, *, negative: bool) -> PromptPlan:
        settings = self.settings
        return read_prompt(
            prompt,
            evaluations,
            settings.mode,
            negative=negative,
            hires_of=self.hires_of,
            old_timelines=settings.old_timelines,
        )

    def _encoded(self, wanted: Sequence[Told]) -> list[dict[str, Conditioning]]:
        """What the model is told by each text."""
        seen = self.canvas.seen
        added: dict[str, Any] = {"latents": seen.channels, "references": seen.references}
        found = []
        for told, conditionings in zip(wanted, self.conditioner(wanted, self.reading), strict=True):
            if self.settings.controls:
                added["positive"] = np.array([0.0 if told.negative else 1.0], np.float32)
            texts = zip(told.texts, conditionings, strict=True)
            found.append({text: replace(each, **added) for text, each in texts})
        return found


def _texts(stages: Sequence[Stage]) -> Told:
    """Each text of a sub-prompt once."""
    return Told(tuple(dict.fromkeys(stage.text for stage in stages)))
