"""The parts that files have of a model: which tensors are whose."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import graphc
from graphc_images.errors import ModelError, SettingError
from graphc_images.models.architectures import TEXT_PROJECTION, Architecture, Part
from graphc_images.models.encoders import encoder_of
from graphc_images.models.loras import Source
from graphc_images.models.recognize import Tensors, beginning

TINY = {
    "taesd": "taesd", "taesdxl": "taesd", "taesd3": "taesd16", "taef1": "taesd16", "taef2": "taef2", "taew2_1": "taew2_1",
}  # fmt: skip
"""The engines of tiny autoencoders, by what people call those (`LatentFormat.tiny`)."""

TINY_MARKS = {
    "decoder.layers.2.conv.0.weight": "decoder.layers.0.weight",
    "decoder.3.conv.0.weight": "decoder.1.weight",
    "3.conv.0.weight": "1.weight",
}
"""What tells a tiny autoencoder, or its decoder alone, in files of diffusers, TAEW2.1 and TAESD; and what reads the latent."""


@dataclass(frozen=True)
class Component:
    """A part of a model: which engines compute it, what graphc calls it in the tensors of its file, and what their names begin
    with."""

    part: Part
    component: str
    tensors: Tensors
    file: str
    prefix: str = ""

    @property
    def engine(self) -> str:
        """What its engine is called."""
        projects = any(name.startswith(self.prefix) and name.endswith(TEXT_PROJECTION) for name in self.tensors)
        return self.part.projected if projects and self.part.projected else self.part.engine

    def weight_bytes(self, half: str = "", type: str = "checkpoint") -> int:
        """About how much the weights take, or those of a half, in a type."""
        found = self._tensors(half)
        if type == "checkpoint":
            stored = [getattr(each, "raw", each) for each in found]
            return int(sum(each.nbytes for each in stored)) + self.widened_bytes(half) // 2
        bits = int(re.findall(r"\d+", type)[0]) if re.search(r"\d", type) else 32
        return bits * sum(int(prod(each.shape)) for each in found) // 8

    def widened_bytes(self, half: str = "") -> int:
        """How much those weights take in float16 that are floats of 8 bits in the file, which are not mapped."""
        stored = [getattr(each, "raw", each) for each in self._tensors(half)]
        return 2 * int(sum(each.nbytes for each in stored if each.dtype.name.startswith("float8")))

    def _tensors(self, half: str) -> list[Any]:
        names = [name for name in self.tensors if name.startswith(self.prefix)]
        if own := [name for name in names if half and f"{half}." in name]:
            names = own
        return [tensor for name in names if hasattr(tensor := self.tensors[name], "shape")]


def components_of(
    architecture: Architecture,
    tensors: Tensors,
    file: str,
    vae: Source | None,
    text: Mapping[str, Source] | Sequence[Source],
    tiny: Source | None,
) -> dict[str, Component]:
    """The parts of a checkpoint, called `file` in errors, and those of other files, which are taken before them; see
    `load_model`. Raises ModelError, SettingError and CheckpointError."""
    parts = {"denoiser": architecture.denoiser, "vae": architecture.vae, **architecture.text}
    components = {
        name: Component(part, part.component, tensors, file, prefix)
        for name, part in parts.items()
        if (prefix := beginning(tensors, part)) is not None
    }
    for name, (own, called) in _encoders(text, architecture).items():
        if name not in parts:
            raise SettingError(f"{called}: {architecture.name} has no {name}; it has {', '.join(parts)}")
        components[name] = Component(parts[name], "text_encoder", own, called)
    if vae is not None:
        own = graphc.open_checkpoint(vae)
        if any(mark in own for mark in TINY_MARKS):
            components["vae"] = components["tiny"] = _tiny(architecture, own, named(vae))
        else:
            components["vae"] = Component(architecture.vae, "vae", own, named(vae))
    if tiny is not None:
        components["tiny"] = _tiny(architecture, graphc.open_checkpoint(tiny), named(tiny))
    return components


def _tiny(architecture: Architecture, tensors: Tensors, file: str) -> Component:
    """A tiny autoencoder of the architecture's latents. Raises SettingError where there is none."""
    if architecture.latent.tiny not in TINY:
        raise SettingError(f"{file}: there is no tiny autoencoder for the latents of {architecture.name}")
    return Component(Part(TINY[architecture.latent.tiny], "tiny", ("",)), "tiny", tensors, file)


def _encoders(
    text: Mapping[str, Source] | Sequence[Source], architecture: Architecture
) -> dict[str, tuple[Tensors, str]]:
    """Files of text encoders by name. Raises ModelError for one that is none, SettingError for two of a kind."""
    if isinstance(text, Mapping):
        return {name: (graphc.open_checkpoint(each), named(each)) for name, each in text.items()}
    found: dict[str, tuple[Tensors, str]] = {}
    for source in text:
        tensors, called = graphc.open_checkpoint(source), named(source)
        try:
            name = encoder_of(tensors, architecture.text)
        except ModelError as error:
            raise ModelError(f"{called}: {error}") from error
        if name in found:
            raise SettingError(f"{called}: it is {name}, as {found[name][1]} is")
        found[name] = tensors, called
    return found


def named(source: Source) -> str:
    """What errors call it."""
    return "the weights" if isinstance(source, Mapping) else os.fspath(source)
