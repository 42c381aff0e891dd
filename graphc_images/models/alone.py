"""Autoencoders and text encoders in files of their own, without a denoiser: as ComfyUI's nodes load them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import graphc
from graphc_images.errors import ModelError
from graphc_images.models.architectures import ARCHITECTURES, Architecture
from graphc_images.models.components import Component, named
from graphc_images.models.encoders import encoder_of
from graphc_images.models.loras import Source
from graphc_images.models.memory import Loaded
from graphc_images.models.model import ENGINES, ImageModel
from graphc_images.models.recognize import Recognized, Tensors

FIRSTS_OF_DECODER = ("decoder.conv_in.weight", "decoder.conv1.weight")
"""What reads the latent; the second is Wan's name."""

PREFIXES = ("first_stage_model.", "vae.", "")


@dataclass(frozen=True)
class Place:
    """Where engines are, what holds those that are loaded, and which architectures are known."""

    loaded: Loaded = field(default_factory=Loaded)
    threads: int | None = None
    engines: str | os.PathLike[str] = ENGINES
    architectures: Sequence[Architecture] = ARCHITECTURES

    def model(self, architecture: Architecture, components: Mapping[str, Component]) -> ImageModel:
        """A model that has these parts alone."""
        recognized = Recognized(architecture, "", architecture.prediction)
        return ImageModel(recognized, components, Path(self.engines), self.loaded, self.threads)


def load_autoencoder(source: Source, place: Place) -> ImageModel:
    """A model that is an autoencoder alone. Raises ModelError for a file that is none that is known."""
    tensors: Tensors = graphc.open_checkpoint(source)
    found = [
        (prefix, tensors[prefix + name])
        for prefix in PREFIXES
        for name in FIRSTS_OF_DECODER
        if prefix + name in tensors
    ]
    if not found:
        raise ModelError(f"{named(source)}: it is not an autoencoder; it has {', '.join(list(tensors)[:3])}, …")
    prefix, channels = found[0][0], found[0][1].shape[1]
    fitting = [each for each in place.architectures if each.latent.channels == channels * each.latent.packed**2]

    def made(architecture: Architecture) -> ImageModel:
        part = architecture.vae
        return place.model(architecture, {"vae": Component(part, "vae", tensors, named(source), prefix)})

    return _first_that_fits(named(source), {each.vae.engine: each for each in reversed(fitting)}, made, "vae decoder")


def load_encoders(sources: Sequence[Source], kind: Callable[[Architecture], bool], place: Place) -> ImageModel:
    """A model of some kind that has its text encoders alone, which are told by their tensors. Raises ModelError for files that
    are none, or not those that such a model reads."""
    files = ", ".join(map(named, sources))
    opened = [(graphc.open_checkpoint(source), named(source)) for source in sources]
    refused = f"{files}: there is no model of this kind that reads such text encoders"
    candidates: dict[str, Architecture] = {}
    for architecture in filter(kind, place.architectures):
        try:
            found = [encoder_of(tensors, architecture.text) for tensors, _ in opened]
        except ModelError as error:
            refused = f"{files}: {error}"
            continue
        if len(set(found)) == len(found) and set(found) <= set(architecture.text):
            candidates.setdefault("".join(architecture.text[name].engine for name in found), architecture)

    def made(architecture: Architecture) -> ImageModel:
        named_parts = {encoder_of(tensors, architecture.text): (tensors, file) for tensors, file in opened}
        return place.model(
            architecture,
            {
                name: Component(architecture.text[name], "text_encoder", tensors, file)
                for name, (tensors, file) in named_parts.items()
            },
        )

    if not candidates:
        raise ModelError(refused)
    return _first_that_fits(files, candidates, made, "")


def _first_that_fits(
    file: str, candidates: Mapping[str, Architecture], made: Callable[[Architecture], ImageModel], part: str
) -> ImageModel:
    """The first model whose engine takes the tensors: sizes alone tell some apart. Raises ModelError."""
    problem: ModelError | None = None
    for architecture in candidates.values():
        model = made(architecture)
        if len(candidates) == 1:
            return model
        try:
            for each in [part] if part else list(model.components):
                model.warm(each)
        except ModelError as error:
            problem = error
            continue
        return model
    raise problem or ModelError(f"{file}: it is not a part of a model that is known")
