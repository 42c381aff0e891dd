"""Pictures as prompts: what IP-Adapters make of them, and a denoiser that looks at it.

Source: tencent-ailab/IP-Adapter; cubiq's ComfyUI_IPAdapter_plus for the kinds of weights and scalings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Any

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.models import Conditioning
from graphc_images.models.ip_adapters import IPAdapter, Place
from graphc_images.pictures.masks import bilinear

Pair = tuple[np.ndarray, np.ndarray]
Denoise = Callable[..., np.ndarray]

SCALINGS: Mapping[str, Callable[[np.ndarray, np.ndarray, float], Pair]] = {
    "V only": lambda keys, values, weight: (keys, values * weight),
    "K+V": lambda keys, values, weight: (keys * weight, values * weight),
    "K+V w/ C penalty": lambda keys, values, weight: (
        keys * (weight * keys.shape[1] / 1280),
        values * (weight * keys.shape[1] / 1280),
    ),
    "K+mean(V) w/ C penalty": lambda keys, values, weight: (
        keys * (weight * keys.shape[1] / 1280),
        values - values.mean(0) + values.mean(0) * (weight * keys.shape[1] / 1280),
    ),
}
"""What a weight scales of keys and values [tokens, width], by ComfyUI's names."""


def _easing(share: Callable[[float], float]) -> Callable[[int, int, Place], float]:
    return lambda number, count, place: 0.05 + 0.95 * share(number / count)


def _weak(*places: Place) -> Callable[[int, int, Place], float]:
    return lambda number, count, place: 0.2 if place in places else 1.0


def _only(small: Mapping[int, float], large: Mapping[int, float]) -> Callable[[int, int, Place], float]:
    """Of some transformers alone: of those of a U-Net with 16, and of one with 11."""
    return lambda number, count, place: (small if count == 16 else large).get(number, 0.0)


STYLE, LAYOUT = dict.fromkeys((0, 1, 2, 3, 9, 10, 11, 12, 13, 14, 15), 1.0), {4: 0.25, 5: 1.0}
"""The transformers of Stable Diffusion 1 that follow a picture's style, and its composition."""

WEIGHT_TYPES: Mapping[str, Callable[[int, int, Place], float]] = {
    "linear": lambda number, count, place: 1.0,
    "ease in": _easing(lambda share: 1 - share),
    "ease out": _easing(lambda share: share),
    "ease in-out": _easing(lambda share: 1 - abs(2 * share - 1)),
    "reverse in-out": _easing(lambda share: abs(2 * share - 1)),
    "weak input": _weak("encoder"),
    "weak output": _weak("decoder"),
    "weak middle": _weak("middle"),
    "strong middle": _weak("encoder", "decoder"),
    "style transfer": _only(STYLE, {6: 1.0}),
    "composition": _only(LAYOUT, {3: 1.0}),
    "strong style transfer": _only(dict.fromkeys({*range(16)} - {4, 5}, 1.0), dict.fromkeys({*range(11)} - {3}, 1.0)),
    "style and composition": _only({**STYLE, **LAYOUT}, {3: 1.0, 6: 1.0}),
}
"""How much each transformer looks at a picture: by its number, of how many, and where it is."""


@dataclass(frozen=True, eq=False)
class ImagePrompt:
    """What an adapter made of pictures: keys and values [tokens, width] of each layer in its file's order, by its weights, for
    the prompt and for the negative prompt. It counts where `region` [height, width] is 1, between two shares of the way."""

    adapter: IPAdapter
    positive: Sequence[Pair]
    negative: Sequence[Pair]
    region: np.ndarray | None = None
    start: float = 0.0
    end: float = 1.0
    for_prompt: bool = False
    """True if the negative prompt looks at nothing at all."""

    @property
    def tokens(self) -> int:
        """How many there are to look at."""
        return len(self.positive[0][0])


def image_prompt(
    adapter: IPAdapter,
    seen: np.ndarray,
    nothing: np.ndarray,
    weight: float,
    kind: str = "linear",
    scaling: str = "V only",
    layers: Sequence[float] = (),
    **more: Any,
) -> ImagePrompt:
    """Of what CLIP sees in pictures, and where there are none. `layers` are weights for each transformer, as the U-Net goes
    through them, in the place of a `kind`. Raises SettingError for another number of them."""
    rows = adapter.kind.layers
    count = 1 + max(number for number, _ in rows)
    if layers and len(layers) != count:
        raise SettingError(f"advanced_weighting: {adapter.file} wants {count} weights, and not {len(layers)}")
    weights = [
        weight * (layers[number] if layers else WEIGHT_TYPES[kind](number, count, place)) for number, place in rows
    ]
    scaled = [
        [
            SCALINGS[scaling](*pair, each)
            for pair, each in zip(adapter.keys_values(adapter.tokens(what)), weights, strict=True)
        ]
        for what in (seen, nothing)
    ]
    silent = [
        [(keys, values * np.float32(each != 0)) for (keys, values), each in zip(pairs, weights, strict=True)]
        for pairs in scaled
    ]
    return ImagePrompt(adapter, silent[0], silent[1], **more)


class Looking:
    """The pictures that a pass looks at, as its denoiser is told of them."""

    def __init__(self, prompts: Sequence[ImagePrompt]) -> None:
        self.prompts = prompts
        self._joined: dict[bytes, tuple[np.ndarray, ...]] = {}

    def told(self, x: np.ndarray, given: Conditioning, counts: Sequence[bool]) -> Conditioning:
        """A conditioning of latents x [batch, channels, height, width] with the pictures, of which some count now."""
        rows = np.ones(len(x)) if given.positive is None else np.broadcast_to(given.positive, (len(x),))
        return replace(given, looked=self._looked(rows > 0), shares=self._shares(x, rows, counts))

    def _looked(self, positive: np.ndarray) -> tuple[np.ndarray, ...]:
        """Of each width of layers, the narrowest first, keys and then values [batch, layers, pictures, tokens, width].

        Tokens are repeated until there are as many of each picture: attention does not see that.
        """
        mark = positive.tobytes()
        if mark not in self._joined:
            count = lcm(*(each.tokens for each in self.prompts))
            signs = [
                [
                    np.stack([self._layers(prompt, sign, which, count)[w] for prompt in self.prompts], 1)
                    for w in self._widths
                    for which in (0, 1)
                ]
                for sign in (False, True)
            ]
            self._joined = {
                mark: tuple(np.stack([signs[int(row)][n] for row in positive]) for n in range(len(signs[0])))
            }
        return self._joined[mark]

    @property
    def _widths(self) -> list[int]:
        return sorted({keys.shape[1] for keys, _ in self.prompts[0].positive})

    def _layers(self, prompt: ImagePrompt, positive: bool, which: int, count: int) -> dict[int, np.ndarray]:
        found: dict[int, list[np.ndarray]] = {}
        for pair in prompt.positive if positive else prompt.negative:
            each = pair[which]
            found.setdefault(each.shape[1], []).append(np.tile(each, (count // len(each), 1)))
        return {width: np.stack(layers) for width, layers in found.items()}

    def _shares(self, x: np.ndarray, rows: np.ndarray, counts: Sequence[bool]) -> tuple[np.ndarray, ...]:
        """At each size of a U-Net's places, how much each picture counts [batch, pictures, places]."""
        found = []
        for level in range(LEVELS):
            height, width = (-(-size // 2**level) for size in x.shape[2:])
            planes = [
                np.ones((height, width), np.float32) if each.region is None else bilinear(each.region, height, width)
                for each in self.prompts
            ]
            shares = np.stack([plane.reshape(-1) * np.float32(now) for plane, now in zip(planes, counts, strict=True)])
            whole = np.repeat(shares[None], len(x), 0)
            for place, each in enumerate(self.prompts):
                if each.for_prompt:
                    whole[rows <= 0, place] = 0
            found.append(whole)
        return tuple(found)


LEVELS = 4
"""How many sizes of places a U-Net has at most."""


def looking(denoise: Denoise, prompts: Sequence[ImagePrompt]) -> Denoise:
    """A model's `denoise` that looks at pictures, if there are any; whether they count depends on the model's times (ComfyUI)."""
    if not prompts:
        return denoise
    looks = Looking(prompts)

    def run(x: np.ndarray, time: float | np.ndarray, conditioning: Conditioning, **more: Any) -> np.ndarray:
        now = float(np.max(time))
        counts = [by_times(now, each.start, each.end) for each in prompts]
        return denoise(x, time, conditioning=looks.told(x, conditioning, counts), **more)

    return run


def by_times(time: float, start: float, end: float) -> bool:
    """True if something counts at a time of the model's, 999 to 0, that does between two shares of the way."""
    first, last = (1 - start) * 999, (1 - end) * 999
    return (first >= 999 or time <= first) and (last <= 0 or time >= last)
