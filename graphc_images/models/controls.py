"""ControlNets and T2I-Adapters: which one a file is, and what it adds to a U-Net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import graphc
from graphc_images.errors import ModelError
from graphc_images.models import architectures as known
from graphc_images.models.architectures import FIRST, LATER, POOLED, Part, Sizes
from graphc_images.models.components import Component, named
from graphc_images.models.denoisers import KINDS, Conditioning
from graphc_images.models.loras import Source
from graphc_images.models.model import ImageModel
from graphc_images.models.recognize import Tensors, nearest

UNION = ("openpose", "depth", "softedge", "canny", "normal", "segmentation", "tile", "inpaint")
"""The kinds of pictures that ControlNets for several kinds tell apart, in their order; the first ones knew the first six."""


@dataclass(frozen=True)
class ControlKind:
    """A kind of control, recognized by the names and sizes of `marks`, for models of a family.

    `first` is the engine of the layers that look at the picture alone, and `engine` that of those that run in each step; adapters
    have only the first. `kinds` is how many kinds of pictures it tells apart. The picture of an adapter has so many `channels`,
    and is cut into squares of `square` pixels.
    """

    name: str
    family: str
    marks: Sizes
    first: str
    engine: str = ""
    kinds: int = 0
    channels: int = 3
    square: int = 0

    @property
    def adapter(self) -> bool:
        """True if it adds within the encoder, the same in all steps."""
        return not self.engine

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the names of its tensors may begin with."""
        return ("",) if self.adapter else ("control_model.", "controlnet/", "")


TELLS = ("task_embedding", "transformer_layes.", "spatial_ch_projs.", "control_add_embedding.")
"""How the names of tensors begin that know kinds of pictures."""
LOOKS = ("input_hint_block.", "controlnet_cond_embedding.", *TELLS)
"""… and of all that look at the picture alone. Those of the first two also say whose names the others are."""

ZERO, TASKS, DEEP = "zero_convs.0.0.weight", "task_embedding", "input_blocks.7.1.transformer_blocks.9.attn2.to_k.weight"


def controlnet(family: str, engine: str, marks: Sizes, first: str = "controlnet_hint", width: int = 320) -> ControlKind:
    """A ControlNet."""
    own = {ZERO: (width, width, 1, 1), FIRST: (width, 4, 3, 3), TASKS: None}
    return ControlKind(f"a ControlNet of {family}", family, {**own, **marks}, first, engine)


XL: Sizes = {LATER.format(4): (640, 2048), POOLED: (1280, 2816), DEEP: (1280, 2048)}
XL_MID: Sizes = {LATER.format(4): None, LATER.format(7): (1280, 2048), POOLED: (1280, 2816), DEEP: None}
XL_SMALL: Sizes = {**XL_MID, LATER.format(7): None}
"""diffusers' smaller ones: only the deepest level attends to words, or none."""


def union(name: str, kinds: int, first: str) -> ControlKind:
    """A ControlNet of Stable Diffusion XL for several kinds of pictures."""
    made = controlnet(known.SDXL, "controlnet_sdxl", {**XL, TASKS: (kinds, 320)}, first)
    return replace(made, name=f"{made.name} for {name}", kinds=kinds)


def adapter(family: str, engine: str, channels: int, square: int) -> ControlKind:
    """A T2I-Adapter."""
    marks: Sizes = {"body.0.block1.weight": (320, 320, 3, 3), "conv_in.weight": (320, channels * square**2, 3, 3)}
    return ControlKind(f"a T2I-Adapter of {family}", family, marks, engine, channels=channels, square=square)


CONTROLS: tuple[ControlKind, ...] = (
    controlnet(known.SD1, "controlnet_sd1", {LATER.format(1): (320, 768)}),
    controlnet(known.SD2, "controlnet_sd2", {LATER.format(1): (320, 1024)}),
    controlnet(known.SDXL, "controlnet_sdxl", XL),
    replace(controlnet(known.SDXL, "controlnet_sdxl_mid", XL_MID), name=f"a mid-sized ControlNet of {known.SDXL}"),
    replace(controlnet(known.SDXL, "controlnet_sdxl_small", XL_SMALL), name=f"a small ControlNet of {known.SDXL}"),
    controlnet(known.SMALL, "controlnet_shapes", {LATER.format(1): (32, 48)}, "controlnet_shapes_hint", 32),
    union("six kinds of pictures", 6, "controlnet_union_hint"),
    union("eight kinds of pictures", 8, "controlnet_promax_hint"),
    adapter(known.SD1, "adapter_sd1", 3, 8),
    adapter(known.SD1, "adapter_sd1_gray", 1, 8),
    adapter(known.SDXL, "adapter_sdxl", 3, 16),
    adapter(known.SDXL, "adapter_sdxl_gray", 1, 16),
    ControlKind(
        f"a light T2I-Adapter of {known.SD1}", known.SD1,
        {"body.0.body.0.block1.weight": (80, 80, 3, 3), "body.0.in_conv.weight": (80, 192, 1, 1)}, "adapter_light", square=8,
    ),
)  # fmt: skip
"""No two have marks that the same file has."""


@dataclass(frozen=True)
class Look:
    """What a control makes of a picture before the first step: a hint and what is added to the time, or an adapter's features."""

    hint: np.ndarray | None = None
    told: np.ndarray | None = None
    features: tuple[np.ndarray, ...] = ()


class Control:
    """A control of a model; its engines are loaded when they are needed, and freed as the model's."""

    def __init__(self, model: ImageModel, kind: ControlKind, tensors: Tensors, file: str, prefix: str) -> None:
        self.model, self.kind, self.file = model, kind, file
        name = "adapter" if kind.adapter else "controlnet"
        looks = {each: tensor for each, tensor in tensors.items() if each.removeprefix(prefix).startswith(LOOKS)}
        steps = {each: tensor for each, tensor in tensors.items() if not each.removeprefix(prefix).startswith(TELLS)}
        own = {kind.first: tensors} if kind.adapter else {kind.first: looks, kind.engine: steps}
        self._parts = {
            engine: model.add_part(Component(Part(engine, name, (prefix,)), name, given, file, prefix))
            for engine, given in own.items()
        }

    def look(self, picture: np.ndarray, shows: str | None = None) -> Look:
        """At a picture [1, 3, height, width], 0 to 1 (-1 for what is to be made up), eight times as large as the latent.

        `shows` says of which kind it is, one of `UNION`, where that is told apart. Raises ModelError.
        """
        if self.kind.adapter:
            picture = picture[:, : self.kind.channels]
            found = self._run(self.kind.first, {"squares": squares(picture, self.kind.square)})
            return Look(features=tuple(found[f"feature_{number}"] for number in range(len(found))))
        image = {"image": np.ascontiguousarray(picture, np.float32)}
        if not self.kind.kinds:
            return Look(self._run(self.kind.first, image)["hint"])
        kinds = np.zeros((1, self.kind.kinds), np.float32)
        if shows is not None:
            if shows not in UNION[: self.kind.kinds]:
                raise ModelError(f"{self.file}: it knows no {shows!r}, but {', '.join(UNION[: self.kind.kinds])}")
            kinds[0, UNION.index(shows)] = 1
        found = self._run(self.kind.first, {**image, "kinds": kinds})
        return Look(found["hint"], found["told"])

    def residuals(self, look: Look, x: np.ndarray, time: np.ndarray, given: Conditioning) -> list[np.ndarray]:
        """What a ControlNet adds to the skips and to the middle, for latents x [batch, channels, height, width] and times
        [batch] as the denoiser gets them."""
        assert look.hint is not None
        plain = replace(given, latents=None, residuals=(), features=())
        inputs = KINDS["unet"].inputs(np.ascontiguousarray(x, np.float32), time, plain)
        inputs["hint"] = np.ascontiguousarray(np.broadcast_to(look.hint, (len(x), *look.hint.shape[1:])))
        if given.sizes is not None:
            told = np.zeros((1, 4 * look.hint.shape[1]), np.float32) if look.told is None else look.told
            inputs["told"] = np.ascontiguousarray(np.broadcast_to(told, (len(x), told.shape[1])))
        found = self._run(self.kind.engine, inputs)
        return [found[f"residual_{number}"] for number in range(len(found))]

    def close(self) -> None:
        """Free it; it cannot be used any more."""
        for name in self._parts.values():
            self.model.remove_part(name)

    def _run(self, engine: str, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.model.run_part(self._parts[engine], feed)


def squares(picture: np.ndarray, side: int) -> np.ndarray:
    """Each square of side x side pixels as the channels of one; what is missing of the last ones repeats the edge."""
    batch, channels, height, width = picture.shape
    more = [(0, 0), (0, 0), (0, -height % side), (0, -width % side)]
    picture = np.pad(picture, more, mode="edge")
    rows, columns = picture.shape[2] // side, picture.shape[3] // side
    cut = picture.reshape(batch, channels, rows, side, columns, side).transpose(0, 1, 3, 5, 2, 4)
    return np.ascontiguousarray(cut.reshape(batch, channels * side**2, rows, columns), np.float32)


def load_control(model: ImageModel, source: Source, kinds: Sequence[ControlKind] = CONTROLS) -> Control:
    """Recognize a file as a control of a model; nothing is loaded yet.

    Raises ModelError, with the file's name, for one that is not known or that is for other models, and CheckpointError for a
    damaged one.
    """
    file = named(source)
    tensors: Tensors = graphc.open_checkpoint(source)
    try:
        tensors = completed(tensors, model)
        kind, prefix = nearest(tensors, [(kind, kind.prefixes) for kind in kinds], "ControlNet or T2I-Adapter")
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from error
    if kind.family != model.architecture.family:
        raise ModelError(f"{file}: it is {kind.name}, and the model is {model.architecture.name}")
    return Control(model, kind, tensors, file, prefix)


LOW_RANK, CHANGES = "lora_controlnet", "difference"
"""Names in files that have only what differs from the model's own encoder: as products of small matrices, or as numbers."""

ENCODER = ("time_embed.", "label_emb.", "input_blocks.", "middle_block.")


def completed(tensors: Tensors, model: ImageModel) -> Tensors:
    """A control's tensors; what its file changes of a model's U-Net is added to that. Raises ModelError if it does not fit."""
    if LOW_RANK not in tensors and CHANGES not in tensors:
        return tensors
    denoiser = model.components["denoiser"]
    base = {
        name.removeprefix(denoiser.prefix): tensor
        for name, tensor in denoiser.tensors.items()
        if name.startswith(denoiser.prefix)
    }
    encoder = {name: tensor for name, tensor in base.items() if name.startswith(ENCODER)}
    if not encoder:
        raise ModelError(f"it changes the encoder of a U-Net as the authors name it, and {denoiser.file} has none")
    return _low_rank(tensors, encoder) if LOW_RANK in tensors else _different(tensors, encoder)


def _low_rank(tensors: Tensors, encoder: Tensors) -> dict[str, Any]:
    found = dict(encoder)
    for name, tensor in tensors.items():
        module, _, what = name.rpartition(".")
        if what == "up":
            if f"{module}.down" not in tensors:
                raise ModelError(f"it has {name!r} without the matrix that goes with it")
            up, down = (np.asarray(each, np.float32) for each in (tensor, tensors[f"{module}.down"]))
            up, down = up.reshape(len(up), -1), down.reshape(len(down), -1)
            if up.shape[1] != len(down):
                raise ModelError(
                    f"it is for another model: it changes {module}.weight by {up.shape[1]} and {len(down)} ranks"
                )
            change = up @ down
            found[f"{module}.weight"] = _added(f"{module}.weight", encoder, change)
        elif what != "down" and name != LOW_RANK:
            found[name] = tensor
    return found


def _different(tensors: Tensors, encoder: Tensors) -> dict[str, Any]:
    found = {}
    for name, tensor in tensors.items():
        if name != CHANGES:
            own = name.removeprefix("control_model.")
            found[name] = _added(own, encoder, np.asarray(tensor, np.float32)) if own in encoder else tensor
    return found


def _added(name: str, encoder: Mapping[str, Any], change: np.ndarray) -> np.ndarray:
    """A tensor with a change, in its own type."""
    before = encoder.get(name)
    if before is None or int(np.prod(before.shape)) != change.size or before.shape[0] != change.shape[0]:
        has = "has none" if before is None else f"has {list(before.shape)}"
        raise ModelError(f"it is for another model: it changes {name} of {list(change.shape)}, and the model {has}")
    numbers = np.asarray(before)
    return np.asarray(numbers.astype(np.float32) + change.reshape(numbers.shape)).astype(numbers.dtype)
