"""IP-Adapters: which one a file is, and what it makes of pictures for the attention of a U-Net.

Ye, Zhang, Liu, Han, Yang, IP-Adapter: Text Compatible Image Prompt Adapter for Text-to-Image Diffusion Models (2023). CLIP sees a
picture, the adapter makes tokens of that, and of those keys and values for each layer that attends to words. All of it happens
once for a picture, in NumPy. Source: tencent-ailab/IP-Adapter (ip_adapter.py, resampler.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import erf
from typing import Literal

import numpy as np
from PIL import Image

import graphc
from graphc_images.errors import ModelError
from graphc_images.models import architectures as known
from graphc_images.models.architectures import Part, Sizes
from graphc_images.models.components import Component, named
from graphc_images.models.loras import Source
from graphc_images.models.model import ImageModel
from graphc_images.models.recognize import Tensors, nearest

Place = Literal["encoder", "middle", "decoder"]
Weights = Mapping[str, np.ndarray]
What = Literal["projected", "states"]
"""What an adapter reads of a picture: CLIP's projection of the whole, or its states before the last layer."""

SIDE = 224
"""Pixels of a side that CLIP sees."""

MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)[:, None, None]
DEVIATION = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)[:, None, None]
"""Of the colours that CLIP was trained on."""

HEAD = 64
"""How wide the heads of a resampler's attention are."""


@dataclass(frozen=True)
class AdapterKind:
    """A kind of adapter, for models of a family. `encoder` is how many transformers in the U-Net's encoder attend to words,
    `decoder` the same; each has some layers. The middle has one transformer."""

    name: str
    family: str
    marks: Sizes
    encoder: tuple[int, ...]
    middle: int
    decoder: tuple[int, ...]

    @property
    def layers(self) -> list[tuple[int, Place]]:
        """Of each layer, in the file's order, the number of its transformer as the U-Net goes through them, and where that is."""
        first, last = len(self.encoder), len(self.encoder) + 1
        found: list[tuple[int, Place]] = [(n, "encoder") for n, count in enumerate(self.encoder) for _ in range(count)]
        found += [(last + n, "decoder") for n, count in enumerate(self.decoder) for _ in range(count)]
        return found + [(first, "middle")] * self.middle


def adapter(
    family: str, first: tuple[int, int], last: tuple[int, int], layers: tuple[Sequence[int], int, Sequence[int]]
) -> AdapterKind:
    """A row of the table, by the sizes of the first keys and of the last."""
    encoder, middle, decoder = layers
    count = sum(encoder) + middle + sum(decoder)
    marks: Sizes = {"ip_adapter.1.to_k_ip.weight": first, f"ip_adapter.{2 * count - 1}.to_k_ip.weight": last}
    return AdapterKind(f"an IP-Adapter of {family}", family, marks, tuple(encoder), middle, tuple(decoder))


ADAPTERS = (
    adapter(known.SD1, (320, 768), (1280, 768), ((1,) * 6, 1, (1,) * 9)),
    adapter(known.SDXL, (640, 2048), (1280, 2048), ((2, 2, 10, 10), 10, (10, 10, 10, 2, 2, 2))),
)

ENCODERS: Mapping[tuple[What, int], str] = {
    ("projected", 1024): "clip_vision_h",
    ("states", 1280): "clip_vision_h",
    ("projected", 1280): "clip_vision_g",
    ("states", 1664): "clip_vision_g",
}
"""The engine of CLIP's encoder, by what an adapter reads of it, and how wide that is."""

CLIPS = {"clip_vision_h": "ViT-H", "clip_vision_g": "ViT-bigG"}
"""What people call them."""

VISION = "vision_model.embeddings.class_embedding"
PATCHES = "vision_model.embeddings.position_embedding.weight"
PROJECTION = "visual_projection.weight"


def layer_norm(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """Rows with the mean 0 and the deviation 1, scaled and shifted."""
    mean, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(spread + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"])


def linear(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """Rows times a matrix, and what is added."""
    found = x @ weights[f"{name}.weight"].T
    return found + weights[f"{name}.bias"] if f"{name}.bias" in weights else found


def gelu(x: np.ndarray) -> np.ndarray:
    """x times how likely a normal number is below it."""
    return np.asarray(x * (0.5 + 0.5 * ERF(x / np.sqrt(2))))


ERF = np.vectorize(erf, otypes=[np.float64])


def projected(weights: Weights, seen: np.ndarray, width: int) -> np.ndarray:
    """Tokens of the projection [batch, width] of pictures."""
    return layer_norm(linear(seen, weights, "proj").reshape(len(seen), -1, width), weights, "norm")


def transformed(weights: Weights, seen: np.ndarray, width: int) -> np.ndarray:
    """A token of each state [batch, states, width] (full face)."""
    return layer_norm(linear(gelu(linear(seen, weights, "proj.0")), weights, "proj.2"), weights, "proj.3")


def resampled(weights: Weights, seen: np.ndarray, width: int) -> np.ndarray:
    """A few tokens that look at the states [batch, states, width] (Plus)."""
    states = linear(seen, weights, "proj_in")
    tokens = np.repeat(weights["latents"], len(seen), 0)
    depth = sum(name.endswith(".0.to_q.weight") for name in weights)
    for number in range(depth):
        looks, thinks = f"layers.{number}.0", f"layers.{number}.1"
        around, own = layer_norm(states, weights, f"{looks}.norm1"), layer_norm(tokens, weights, f"{looks}.norm2")
        query = linear(own, weights, f"{looks}.to_q")
        keys, values = np.split(linear(np.concatenate([around, own], 1), weights, f"{looks}.to_kv"), 2, -1)
        query, keys, values = (each.reshape(*each.shape[:2], -1, HEAD).swapaxes(1, 2) for each in (query, keys, values))
        scores = query @ keys.swapaxes(2, 3) / np.sqrt(HEAD)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        found = (shares / shares.sum(-1, keepdims=True) @ values).swapaxes(1, 2)
        tokens = tokens + linear(found.reshape(*tokens.shape[:2], -1), weights, f"{looks}.to_out")
        wide = gelu(linear(layer_norm(tokens, weights, f"{thinks}.0"), weights, f"{thinks}.1"))
        tokens = tokens + linear(wide, weights, f"{thinks}.3")
    return layer_norm(linear(tokens, weights, "proj_out"), weights, "norm_out")


@dataclass(frozen=True)
class Projection:
    """How an adapter makes tokens: what it reads, the matrix that reads it, and the function."""

    reads: What
    reader: str
    made: Callable[[Weights, np.ndarray, int], np.ndarray]


PROJECTIONS = {
    "proj.weight": Projection("projected", "proj.weight", projected),
    "latents": Projection("states", "proj_in.weight", resampled),
    "proj.3.weight": Projection("states", "proj.0.weight", transformed),
}
"""By a tensor that tells them."""

OF_FACES = ("0.to_q_lora.down.weight", "perceiver_resampler.proj_in.weight")


class IPAdapter:
    """An adapter. What it reads of pictures comes from `encoder`, an engine of CLIP's encoder of pictures."""

    def __init__(self, kind: AdapterKind, tensors: Tensors, file: str) -> None:
        """Raises ModelError for one that reads what no encoder here gives."""
        self.kind, self.file, self._tensors = kind, file, tensors
        own = {name.removeprefix(BEGINNING) for name in tensors if name.startswith(BEGINNING)}
        mark = next((mark for mark in PROJECTIONS if mark in own), None)
        if mark is None or any(name.endswith(OF_FACES) for name in tensors):
            raise ModelError(f"{file}: it is {kind.name} that reads faces, for which there is no network here")
        self.projection = PROJECTIONS[mark]
        self.width = int(tensors[next(iter(kind.marks))].shape[1])
        reads = self.projection.reads, int(tensors[BEGINNING + self.projection.reader].shape[1])
        if reads not in ENCODERS:
            raise ModelError(f"{file}: it reads {reads[1]} numbers of a picture, which no encoder here gives")
        self.encoder = ENCODERS[reads]

    def check(self, model: ImageModel) -> None:
        """Raises ModelError if it is for other models than this one."""
        if self.kind.family != model.architecture.family:
            raise ModelError(f"{self.file}: it is {self.kind.name}, and the model is {model.architecture.name}")

    def tokens(self, seen: np.ndarray) -> np.ndarray:
        """The tokens [tokens, width] of what CLIP sees in pictures, those of all behind each other."""
        weights = {
            name.removeprefix(BEGINNING): np.asarray(tensor, np.float32)
            for name, tensor in self._tensors.items()
            if name.startswith(BEGINNING)
        }
        found = self.projection.made(weights, np.asarray(seen, np.float32), self.width)
        return np.asarray(found.reshape(-1, self.width), np.float32)

    def keys_values(self, tokens: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each layer, in the file's order, keys and values [tokens, width of the layer]."""
        return [
            (self._times(tokens, number, "k"), self._times(tokens, number, "v"))
            for number in range(len(self.kind.layers))
        ]

    def _times(self, tokens: np.ndarray, number: int, which: str) -> np.ndarray:
        matrix = self._tensors[f"ip_adapter.{2 * number + 1}.to_{which}_ip.weight"]
        return np.asarray(tokens @ np.asarray(matrix, np.float32).T, np.float32)


BEGINNING = "image_proj."


def load_ip_adapter(source: Source, kinds: Sequence[AdapterKind] = ADAPTERS) -> IPAdapter:
    """Recognize a file as an IP-Adapter. Raises ModelError and CheckpointError, as `load_control`."""
    file, tensors = named(source), graphc.open_checkpoint(source)
    try:
        kind, _ = nearest(tensors, [(kind, ("",)) for kind in kinds], "IP-Adapter")
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from error
    return IPAdapter(kind, tensors, file)


def is_ip_adapter(tensors: Tensors) -> bool:
    """True if a file is one, of whatever kind."""
    return any(name.startswith("ip_adapter.") for name in tensors)


class PictureEncoder:
    """CLIP's encoder of pictures, beside a model's own parts."""

    def __init__(self, model: ImageModel, source: Source) -> None:
        """Raises ModelError for a file that is none, or of other sizes."""
        self.model, self.file = model, named(source)
        tensors = graphc.open_checkpoint(source)
        self.engine = encoder_in(tensors)
        if not self.engine:
            raise ModelError(f"{self.file}: it is none of CLIP's encoders of pictures that are known (ViT-H, ViT-bigG)")
        own = {name: each for name, each in tensors.items() if name.startswith(("vision_model.", PROJECTION))}
        own.pop("vision_model.embeddings.position_ids", None)
        self._part = model.add_part(Component(Part(self.engine, "", ("",)), "", own, self.file))

    def see(self, pixels: np.ndarray) -> Mapping[What, np.ndarray]:
        """What is seen in pictures [batch, 3, 224, 224], as `prepared` makes them. Raises TooLarge."""
        found = self.model.run_part(self._part, {"image": np.ascontiguousarray(pixels, np.float32)})
        return {"projected": found["projected"], "states": found["states"]}

    def close(self) -> None:
        """Free it; it cannot be used any more."""
        self.model.remove_part(self._part)


def encoder_in(tensors: Tensors) -> str:
    """The engine of the encoder of pictures that a file is; nothing if it is none that is known."""
    if any(name not in tensors for name in (VISION, PROJECTION)):
        return ""
    sees = ENCODERS.get(("states", int(tensors[VISION].shape[0])), "")
    return sees if ENCODERS.get(("projected", int(tensors[PROJECTION].shape[0]))) == sees else ""


def prepared(picture: Image.Image) -> np.ndarray:
    """A picture as CLIP sees it [3, 224, 224]: the square in its middle, each channel about 0."""
    width, height = (SIDE * side // min(picture.size) for side in picture.size)
    small = picture.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - SIDE) // 2, (height - SIDE) // 2
    pixels = np.asarray(small.crop((left, top, left + SIDE, top + SIDE)), np.float32).transpose(2, 0, 1)
    return np.asarray((pixels / np.float32(255) - MEAN) / DEVIATION, np.float32)


def nothing(black: bool = False) -> np.ndarray:
    """What is seen in the place of a picture where there is to be none: zeros (the authors), or black (ComfyUI)."""
    return np.asarray(-MEAN / DEVIATION if black else np.zeros(1), np.float32) + np.zeros((3, SIDE, SIDE), np.float32)
