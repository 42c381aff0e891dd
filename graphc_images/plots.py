"""X/Y/Z plots: the same picture with other values of settings, in grids with a legend.

Source: AUTOMATIC1111's scripts/xyz_grid.py, for the names of axes and what their values look like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.pictures.grids import labelled_grid
from graphc_images.pictures.parameters import SIZE
from graphc_images.pipeline import Picture, Pipeline, Progress
from graphc_images.prompts.variations import axis_values, in_orders, search_and_replace
from graphc_images.settings import Settings

NUMBERS: Mapping[str, tuple[str, type[int] | type[float] | type[str]]] = {
    "Seed": ("seed", int),
    "Var. seed": ("subseed", int),
    "Var. strength": ("subseed_strength", float),
    "Steps": ("steps", int),
    "Hires steps": ("hires_steps", int),
    "CFG Scale": ("cfg_scale", float),
    "Distilled CFG Scale": ("guidance", float),
    "Sampler": ("sampler", str),
    "Hires sampler": ("hires_sampler", str),
    "Schedule type": ("scheduler", str),
    "Schedule min sigma": ("sigma_min", float),
    "Schedule max sigma": ("sigma_max", float),
    "Schedule rho": ("rho", float),
    "Sigma Churn": ("s_churn", float),
    "Sigma min": ("s_tmin", float),
    "Sigma max": ("s_tmax", float),
    "Sigma noise": ("s_noise", float),
    "Eta": ("eta", float),
    "Clip skip": ("clip_skip", int),
    "Denoising": ("denoising_strength", float),
    "Initial noise multiplier": ("initial_noise_multiplier", float),
    "Extra noise": ("extra_noise", float),
    "Hires upscaler": ("hires_upscaler", str),
    "Hires denoising": ("hires_denoising_strength", float),
    "Mask blur": ("mask_blur", float),
    "Image CFG Scale": ("image_cfg_scale", float),
    "Beta schedule alpha": ("beta_alpha", float),
    "Beta schedule beta": ("beta_beta", float),
    "UniPC Order": ("uni_pc_order", int),
    "Cond. Image Mask Weight": ("mask_weight", float),
    "Refiner switch at": ("refiner_switch_at", float),
    "NGMS": ("s_min_uncond", float),
    "Skip early CFG": ("skip_early_cfg", float),
    "RescaleCFG": ("cfg_rescale", float),
    "RNG source": ("generator", str),
    "Emphasis": ("emphasis", str),
    "Mode": ("mode", str),
}
"""Axes that are one setting: A1111's names, ours, and the kind of their values."""


@dataclass(frozen=True)
class Axis:
    """A name, the texts of the values, and what makes each value's settings."""

    name: str
    labels: tuple[str, ...]
    changes: tuple[Callable[[Settings], Settings], ...]


NOTHING = Axis("Nothing", ("",), (lambda settings: settings,))


def axis_of(name: str, values: str) -> Axis:
    """An axis from A1111's name, in any case, and its text of values. Raises SettingError."""
    known = {each.lower(): each for each in (*NUMBERS, *SPECIAL, NOTHING.name)}
    found = known.get(name.strip().lower())
    if found is None:
        raise SettingError(f"there is no axis {name!r}; there are {', '.join(known.values())}")
    if found == NOTHING.name:
        return NOTHING
    if found in SPECIAL:
        pairs = SPECIAL[found](axis_values(values, str))
    else:
        setting, kind = NUMBERS[found]
        pairs = [(f"{found}: {value}", _setting(setting, value)) for value in axis_values(values, kind)]
    if not pairs:
        raise SettingError(f"axis {found}: there are no values")
    return Axis(found, tuple(label for label, _ in pairs), tuple(change for _, change in pairs))


Change = Callable[[Settings], Settings]
Pairs = list[tuple[str, Change]]


def _setting(name: str, value: Any) -> Change:
    return lambda settings: replace(settings, **{name: value})


def _search_and_replace(values: Sequence[str]) -> Pairs:
    """The first value is what a prompt has; each, also the first, takes its place."""

    def change(place: int) -> Change:
        def changed(settings: Settings) -> Settings:
            texts = [settings.prompt, settings.negative_prompt]
            if not any(values[0] in text for text in texts[1:]):
                texts[0] = search_and_replace(texts[0], list(values))[place]
            else:
                texts = [text.replace(values[0], values[place]) for text in texts]
            return replace(settings, prompt=texts[0], negative_prompt=texts[1])

        return changed

    return [(value, change(place)) for place, value in enumerate(values)]


def _order(values: Sequence[str]) -> Pairs:
    """The values stand in the prompt; their places there are taken in every order."""

    def change(place: int) -> Change:
        return lambda settings: replace(settings, prompt=in_orders(settings.prompt, list(values))[place])

    return [(", ".join(order), change(place)) for place, order in enumerate(permutations(values))]


def _sizes(values: Sequence[str]) -> Pairs:
    def change(width: int, height: int) -> Change:
        return lambda settings: replace(settings, width=width, height=height)

    pairs: Pairs = []
    for value in values:
        match = SIZE.fullmatch(value)
        if match is None:
            raise SettingError(f"axis Size: {value!r} is not a width x height, such as 512x768")
        pairs.append((value, change(int(match[1]), int(match[2]))))
    return pairs


def _switch(setting: str) -> Callable[[Sequence[str]], Pairs]:
    def pairs(values: Sequence[str]) -> Pairs:
        found = {"true": True, "false": False}
        if wrong := [value for value in values if value.lower() not in found]:
            raise SettingError(f"{wrong[0]!r} is neither True nor False")
        return [(value, _setting(setting, found[value.lower()])) for value in values]

    return pairs


SPECIAL: Mapping[str, Callable[[Sequence[str]], Pairs]] = {
    "Prompt S/R": _search_and_replace,
    "Prompt order": _order,
    "Size": _sizes,
    "Always discard next-to-last sigma": _switch("discard_next_to_last_sigma"),
    "SGM noise multiplier": _switch("more_noise"),
}


class Plot:
    """The same picture at each place of a grid, or of one for each value of Z. All have one seed, unless an axis changes it.

    Every value is tried when it is made, which raises SettingError. Iterating paints, X fastest, and gives the steps; `pictures`
    are those that are finished.
    """

    def __init__(
        self, pipeline: Pipeline, asked: Settings, x: Axis = NOTHING, y: Axis = NOTHING, z: Axis = NOTHING
    ) -> None:
        self.pipeline, self.x, self.y, self.z = pipeline, x, y, z
        fixed = replace(asked, batches=1, batch_size=1)
        fixed = replace(fixed, seed=pipeline.resolved(fixed).seed)
        places = product(z.changes, y.changes, x.changes)
        self.cells = [pipeline.resolved(changed(fixed, (in_x, in_y, in_z))) for in_z, in_y, in_x in places]
        self.pictures: list[Picture] = []

    def __iter__(self) -> Iterator[Progress]:
        for each in self.cells:
            for progress in self.pipeline.paint(each):
                self.pictures += progress.pictures
                yield progress

    def grids(self) -> list[tuple[str, Image.Image]]:
        """A grid for each value of Z, with the value's text. What is not painted yet is empty; a grid of nothing is left out."""
        size = len(self.x.labels) * len(self.y.labels)
        made = []
        for place, label in enumerate(self.z.labels):
            found = [each.image for each in self.pictures[place * size : (place + 1) * size]]
            if found:
                empty = [Image.new("RGB", found[0].size, "#ffffff")] * (size - len(found))
                made.append((label, labelled_grid([*found, *empty], self.x.labels, self.y.labels)))
        return made


def changed(settings: Settings, changes: Iterable[Change]) -> Settings:
    """Settings after several changes."""
    for change in changes:
        settings = change(settings)
    return settings
