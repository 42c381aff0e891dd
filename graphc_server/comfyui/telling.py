"""What a denoiser is told in a run: texts as it takes them, each for its place and time, and their estimates made one.

Source: ComfyUI's comfy/samplers.py (get_area_and_mult, calc_cond_batch, create_cond_with_same_area_if_none) and model_base.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc_images import SettingError
from graphc_images.conditions import Reading
from graphc_images.describing import USUAL_GUIDANCE
from graphc_images.models import Conditioning, ImageModel
from graphc_images.painting import Network
from graphc_images.pictures.masks import bilinear
from graphc_images.sampling import Levels, Plan, Prediction, Weakening
from graphc_server.comfyui.values import Applied, Area, Latent, Texts, Told

Box = tuple[int, int, int, int]
"""Height, width, top, left, in cells of a latent."""

SEAM = 8
"""Cells over which an area fades out at its edges."""

GREY = (0.8223, -0.6876, 0.6364, 0.1380)
"""The latent of a grey picture, for models that look at one where there is none."""


@dataclass(frozen=True, eq=False)
class Piece:
    """One text as the denoiser takes it: where it counts (None for everywhere), how much each cell counts (None for fully), and
    between which noise levels."""

    told: Conditioning
    box: Box | None
    weight: np.ndarray | None
    highest: float | None
    lowest: float | None
    controls: tuple[Applied, ...]

    def counts(self, sigma: float) -> bool:
        """True if it does at a noise level."""
        return (self.highest is None or sigma <= self.highest) and (self.lowest is None or sigma >= self.lowest)


Pieces = tuple[Piece, ...]


def beside(texts: Texts, others: Texts) -> Texts:
    """Texts, and for each area of the others the smallest of them around it once more, for that area."""
    found = list(texts)
    for other in others:
        if other.area is None:
            continue
        fitting = [each for each in found if each.area is None or _inside(other.area, each.area)]
        if fitting:
            nearest = min(fitting, key=lambda each: np.inf if each.area is None else each.area.height * each.area.width)
            if nearest.area != other.area:
                here = replace(nearest, area=other.area, strength=other.strength, mask=other.mask, start=other.start)
                found.append(replace(here, end=other.end, mask_strength=other.mask_strength))
    return tuple(found)


def _inside(area: Area, other: Area) -> bool:
    return (
        area.shares == other.shares
        and other.top <= area.top
        and other.left <= area.left
        and area.top + area.height <= other.top + other.height
        and area.left + area.width <= other.left + other.width
    )


def controlled_as(texts: Texts, others: Texts) -> Texts:
    """Texts without controls get those of the others that are for both."""
    shared = [tuple(each for each in other.controls if each.everywhere) for other in others]
    shared = [each for each in shared if each]
    return tuple(replace(told, controls=shared[0]) if shared and not told.controls else told for told in texts)


class Teller:
    """Makes pieces of texts for latents of a shape."""

    def __init__(
        self, model: ImageModel, levels: Levels, latent: Latent, start: np.ndarray, *, signed: bool = False
    ) -> None:
        """`start` [batch, channels, height, width] is the latent as the denoiser takes it. If `signed`, each says whether it is
        of the prompt or of the negative one, for a model that looks at pictures."""
        self.model, self.levels, self.latent, self.start, self.signed = model, levels, latent, start, signed
        self.rows, self.columns = start.shape[2:]

    def pieces(self, texts: Texts, *, negative: bool) -> Pieces:
        """In order."""
        return tuple(self._piece(told, negative) for told in texts)

    def _piece(self, told: Told, negative: bool) -> Piece:
        pixels = self.model.architecture.latent.pixels
        mask = None if told.mask is None else np.stack([bilinear(each, self.rows, self.columns) for each in told.mask])
        box = None if told.area is None else told.area.cells(self.rows, self.columns, pixels)
        if mask is not None and told.to_bounds:
            box = bounds_of(mask)
        whole = (self.rows, self.columns, 0, 0)
        made = self._conditioning(told, negative)
        if box is not None and made.latents is not None:
            made = replace(made, latents=cut(made.latents, box))
        highest, lowest = (None if share is None else self.levels.sigma_at(share) for share in (told.start, told.end))
        weight = self._weight(told, mask, box or whole)
        return Piece(made, box, weight, highest, lowest, told.controls)

    def _weight(self, told: Told, mask: np.ndarray | None, box: Box) -> np.ndarray | None:
        """How much each cell of the box counts [1 or batch, 1, height, width]."""
        if mask is None and told.area is None and told.strength == 1:
            return None
        if mask is not None:
            weight = cut(mask[:, None], box) * np.float32(told.mask_strength)
            if len(weight) not in (1, len(self.start)):
                weight = weight[np.arange(len(self.start)) % len(weight)]
        else:
            weight = np.ones((1, 1, *box[:2]), np.float32)
            fade_out(weight, box, (self.rows, self.columns))
        return np.asarray(weight * np.float32(told.strength), np.float32)

    def _conditioning(self, told: Told, negative: bool) -> Conditioning:
        """A text as this model takes it, for the whole latent."""
        architecture = self.model.architecture
        found: dict[str, Any] = {"latents": self._joined(told)}
        if self.signed:
            found["positive"] = np.array([0.0 if negative else 1.0], np.float32)
        if architecture.sizes:
            found["sizes"] = self._sizes(told, negative)
        if architecture.defaults.guidance is not None:
            found["guidance"] = np.array([USUAL_GUIDANCE if told.guidance is None else told.guidance], np.float32)
        if architecture.refers:
            found["references"] = tuple(self._own(each, "reference") for each in told.references)
        return replace(told.read, **found)

    def _own(self, samples: np.ndarray, what: str) -> np.ndarray:
        """Another latent as the denoiser takes it. Raises SettingError if it has other channels."""
        latent = self.model.architecture.latent
        if samples.shape[1] != latent.channels:
            raise SettingError(f"{what}: it has {samples.shape[1]} channels, and the model works on {latent.channels}")
        return latent.from_encoded(samples)

    def _sizes(self, told: Told, negative: bool) -> np.ndarray:
        """The numbers about sizes that Stable Diffusion XL and its refiner are told."""
        pixels = self.model.architecture.latent.pixels
        own = (self.columns * pixels, self.rows * pixels)
        width, height, left, top, target_width, target_height = told.sizes or (*own, 0, 0, *own)
        numbers: list[float] = [height, width, top, left, target_height, target_width]
        if self.model.architecture.sizes == 5:
            numbers = [*numbers[:4], Reading.scores[not negative] if told.score is None else told.score]
        return np.array([numbers], np.float32)

    def _joined(self, told: Told) -> np.ndarray | None:
        """The channels that models with more of them look at, for the whole batch."""
        added, latent = self.model.architecture.added, self.model.architecture.latent
        if not added:
            return None
        if told.joined is not None:
            own = self._own(told.joined, "picture beside the latent")
            seen = told.joined if added == "edit" else own
        elif self.start.any() and added != "edit":
            seen = self.start
        else:
            grey = np.array(GREY, np.float32) if latent.channels == len(GREY) and added == "inpaint" else np.zeros(1)
            seen = np.broadcast_to(grey.astype(np.float32)[:, None, None], self.start.shape)
        batch = len(self.start)
        seen = np.stack([_sized(each, self.rows, self.columns) for each in seen])
        seen = seen[np.arange(batch) % len(seen)]
        if added in ("edit", "control"):
            return seen
        mask = self.latent.mask if told.joined_mask is None else told.joined_mask
        masks = np.ones((1, 1, 1), np.float32) if mask is None else mask
        masks = masks[np.arange(batch) % len(masks)]
        if added == "inpaint":
            small = np.stack([np.rint(bilinear(each, self.rows, self.columns)) for each in masks])[:, None]
            return np.concatenate([small, seen], 1).astype(np.float32)
        unit = latent.pixels
        large = np.stack([bilinear(each, self.rows * unit, self.columns * unit) for each in masks])
        squares = large.reshape(batch, self.rows, unit, self.columns, unit).transpose(0, 2, 4, 1, 3)
        squares = squares.reshape(batch, unit * unit, self.rows, self.columns)
        return np.concatenate([seen, squares], 1).astype(np.float32)


def _sized(latent: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """A latent [channels, height, width] of this size."""
    if latent.shape[1:] == (rows, columns):
        return latent
    return np.stack([bilinear(each, rows, columns) for each in latent])


def cut(array: np.ndarray, box: Box) -> np.ndarray:
    """The part of [batch, channels, height, width] in a box."""
    high, wide, top, left = box
    return np.ascontiguousarray(array[..., top : top + high, left : left + wide])


def fade_out(weight: np.ndarray, box: Box, size: tuple[int, int]) -> None:
    """Have a box count less and less towards those of its edges that are not the picture's."""
    for axis, (length, place, whole) in enumerate(zip(box[:2], box[2:], size, strict=True)):
        reach = min(SEAM, length // 4)
        rising = np.ones(length, np.float32)
        for step in range(reach):
            if place:
                rising[step] *= np.float32((step + 1) / reach)
            if place + length < whole:
                rising[length - 1 - step] *= np.float32((step + 1) / reach)
        weight *= rising[:, None] if axis == 0 else rising


def bounds_of(mask: np.ndarray) -> Box:
    """The smallest box around what a mask [batch, height, width] has, of 8 cells at least."""
    rows, columns = mask.shape[1:]
    there = np.abs(mask).max(0) > 0
    if not there.any():
        return min(8, rows), min(8, columns), 0, 0
    ys, xs = np.flatnonzero(there.any(1)), np.flatnonzero(there.any(0))
    high, wide = max(int(ys[-1] - ys[0]) + 1, min(8, rows)), max(int(xs[-1] - xs[0]) + 1, min(8, columns))
    return high, wide, min(int(ys[0]), rows - high), min(int(xs[0]), columns - wide)


Steered = Callable[[tuple[Applied, ...], int, int], Callable[..., np.ndarray]]
"""What evaluates the denoiser with some controls, for latents of some size."""


class Mixture:
    """A model as guidance sees it (see `guided.ConditionedModel`), for which a conditioning is several pieces."""

    def __init__(self, model: ImageModel, way: Plan, prediction: Prediction, steered: Steered) -> None:
        self.model, self.way, self.prediction, self.steered = model, way, prediction, steered

    def __call__(
        self, x: np.ndarray, sigma: float, conditionings: Sequence[Pieces], weakening: Weakening | None = None
    ) -> list[np.ndarray]:
        """The estimate for each conditioning: of what counts of it now, by how much it does where."""
        counting = [[piece for piece in pieces if piece.counts(sigma)] for pieces in conditionings]
        estimates = iter(self._estimates(x, sigma, [each for pieces in counting for each in pieces], weakening))
        return [self._mixed(x, [(piece, next(estimates)) for piece in pieces]) for pieces in counting]

    def _mixed(self, x: np.ndarray, found: Sequence[tuple[Piece, np.ndarray]]) -> np.ndarray:
        if len(found) == 1 and found[0][0].box is None and found[0][0].weight is None:
            return found[0][1]
        total, counted = np.zeros_like(x), np.full_like(x, 1e-37)
        for piece, estimate in found:
            high, wide, top, left = piece.box or (*x.shape[2:], 0, 0)
            here = (slice(None), slice(None), slice(top, top + high), slice(left, left + wide))
            weight = np.float32(1) if piece.weight is None else piece.weight
            total[here] += estimate * weight
            counted[here] += np.broadcast_to(weight, estimate.shape)
        return np.asarray(total / counted)

    def _estimates(
        self, x: np.ndarray, sigma: float, pieces: Sequence[Piece], weakening: Weakening | None
    ) -> list[np.ndarray]:
        """The estimate of each piece; those of one size and with the same controls go through the model together."""
        found: dict[int, np.ndarray] = {}
        for place, piece in enumerate(pieces):
            if place in found:
                continue
            alike = [
                other
                for other in range(place, len(pieces))
                if pieces[other].box == piece.box and pieces[other].controls == piece.controls
            ]
            part = x if piece.box is None else cut(x, piece.box)
            network = Network(self.model, self.way, self.steered(piece.controls, *part.shape[2:]))
            network.prediction = self.prediction
            estimates = network(part, sigma, [pieces[other].told for other in alike], weakening)
            found |= dict(zip(alike, estimates, strict=True))
        return [found[place] for place in range(len(pieces))]
