"""What a file is, in words: a picture, a checkpoint, a LoRA with what it was trained on, an embedding, an autoencoder, …"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import graphc
from graphc import GraphcError
from graphc_images.describing import settings_in
from graphc_images.errors import SettingError
from graphc_images.headers import metadata_of
from graphc_images.inversions import BUNDLED
from graphc_images.models import load_model
from graphc_images.models.components import TINY_MARKS
from graphc_images.models.ip_adapters import encoder_in, is_ip_adapter
from graphc_images.pictures.files import FORMATS, open_picture
from graphc_images.prompts.embeddings import Embedding
from graphc_images.upscalers.networks import network_of

Tensors = Mapping[str, Any]

READABLE = (*FORMATS, ".gif")
MOST_TAGS = 12
LORA_MARKS = re.compile(
    r"lora_(up|down|A|B|embedding_A)\b|\.lora\.|lora\d?\.(up|down)\.|hada_w1|lokr_w|\.oft_(blocks|R)\b|dora_scale"
    r"|\.(on_input|a1\.weight|diff|diff_b|w_norm|lambda_layer)$"
)
"""In names of tensors of LoRAs and their relatives."""

DOWN = ("lora_down.weight", "lora_A.weight", "lora_A.default.weight")

SAID_OF_LORAS: Mapping[str, tuple[str, ...]] = {
    "title": ("modelspec.title", "ss_output_name"),
    "author": ("modelspec.author",),
    "made for": ("modelspec.architecture", "ss_base_model_version"),
    "trained on": ("ss_sd_model_name",),
    "with the autoencoder": ("ss_vae_name",),
    "clip skip": ("ss_clip_skip",),
    "trigger words": ("modelspec.trigger_phrase",),
    "usage": ("modelspec.usage_hint",),
    "resolution": ("modelspec.resolution", "ss_resolution"),
    "rank": ("ss_network_dim",),
    "alpha": ("ss_network_alpha",),
    "pictures": ("ss_num_train_images",),
    "steps": ("ss_steps", "ss_max_train_steps"),
    "epochs": ("ss_epoch", "ss_num_epochs"),
    "written": ("modelspec.date",),
    "licence": ("modelspec.license",),
}
"""What LoRAs say of themselves, and the names that trainers (kohya's, by the modelspec) write it under: the first counts."""


class Kind(NamedTuple):
    """A kind of file: what it is called, whether tensors are of it, and what else is to be said."""

    name: str
    fits: Callable[[Tensors], bool]
    told: Callable[[Tensors, Path], Iterator[str]]


def told(path: Path) -> list[str]:
    """Lines about a file. Raises ImageError and graphc.GraphcError for one that cannot be read or is nothing that is known."""
    if path.suffix.lower() in READABLE:
        return list(_picture(path))
    tensors = graphc.open_checkpoint(path)
    for kind in KINDS:
        if kind.fits(tensors):
            return [kind.name, *kind.told(tensors, path)]
    return list(_model(path))


def _picture(path: Path) -> Iterator[str]:
    notes = open_picture(path)[1]
    found = settings_in(notes)
    if notes.parameters:
        yield notes.parameters
    elif found:
        yield "ComfyUI's graph says:"
        yield from (f"{name}: {value}" for name, value in found.items() if value != "")
    else:
        yield "the file does not say how the picture was made"


def _model(path: Path) -> Iterator[str]:
    model = load_model(path)
    usual = model.architecture.defaults
    yield f"{model.architecture.name}, predicts {model.recognized.prediction}"
    yield f"has {', '.join(model.components)}"
    missing = [name for name in ("vae", *model.architecture.text) if name not in model.components]
    if missing:
        yield f"has no {', '.join(missing)}: they are files of their own"
    yield f"usual: {usual.width} x {usual.height}, {usual.steps} steps, CFG {usual.cfg:g}, {usual.sampler}"


def _lora(tensors: Tensors, path: Path) -> Iterator[str]:
    said = metadata_of(path)
    for label, names in SAID_OF_LORAS.items():
        value = next((said[name] for name in names if said.get(name) not in (None, "", "None")), None)
        if value is not None:
            yield f"{label}: {value}"
    ranks = sorted({tensor.shape[0] for name, tensor in tensors.items() if name.endswith(DOWN)})
    if ranks and "ss_network_dim" not in said:
        yield f"rank: {', '.join(map(str, ranks))}"
    parts = {
        "the text encoder": ("lora_te", "text_encoder"),
        "the denoiser": ("lora_unet", "oft_unet", "lora_transformer", "unet.", "transformer.", "diffusion_model."),
    }
    touched = [part for part, begins in parts.items() if any(name.startswith(begins) for name in tensors)]
    if touched:
        yield f"changes {' and '.join(touched)}"
    if bundled := dict.fromkeys(found[1] for name in tensors if (found := BUNDLED.fullmatch(name))):
        yield f"embeddings, which prompts may name while it is on: {', '.join(bundled)}"
    tags = tags_of(said)
    if tags:
        yield "tags: " + ", ".join(f"{tag} ({count})" for tag, count in tags)


def tags_of(said: Mapping[str, str]) -> list[tuple[str, int]]:
    """The words that stood most often at the pictures that a LoRA was trained on, with how often."""
    counts: Counter[str] = Counter()
    try:
        for folder in json.loads(said.get("ss_tag_frequency", "{}")).values():
            for tag, count in folder.items():
                counts[str(tag).strip()] += int(count)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return []
    return counts.most_common(MOST_TAGS)


def _is_embedding(tensors: Tensors) -> bool:
    try:
        return bool(len(tensors) <= 3 and Embedding.from_tensors("", dict(tensors)))
    except SettingError:
        return False


def _embedding(tensors: Tensors, path: Path) -> Iterator[str]:
    for encoder, vectors in Embedding.from_tensors(path.stem, dict(tensors)).vectors.items():
        yield f"{vectors.shape[0]} vectors of {vectors.shape[1]} for {encoder}"
    yield f"in a prompt: {path.stem}; in ComfyUI's: embedding:{path.stem}"


def _has(*names: str) -> Callable[[Tensors], bool]:
    """True if there is a tensor of one of these names, or one that begins so."""
    return lambda tensors: any(name in tensors or any(each.startswith(name) for each in tensors) for name in names)


def _autoencoder(tensors: Tensors, path: Path) -> Iterator[str]:
    first = next(
        (
            tensors[name]
            for name in ("decoder.conv_in.weight", "first_stage_model.decoder.conv_in.weight")
            if name in tensors
        ),
        None,
    )
    if first is not None:
        yield f"latents of {first.shape[1]} channels"


def _is_upscaler(tensors: Tensors) -> bool:
    try:
        return bool(network_of(tensors))
    except GraphcError:
        return False


def _upscaler(tensors: Tensors, path: Path) -> Iterator[str]:
    network = network_of(tensors)
    yield f"{network.kind}, {network.scale} times as wide and high"


def _nothing(tensors: Tensors, path: Path) -> Iterator[str]:
    yield from ()


DENOISERS = (
    "model.diffusion_model.",
    "input_blocks.",
    "double_blocks.",
    "joint_blocks.",
    "down_blocks.",
    "transformer_blocks.",
)


def _tiny(tensors: Tensors, path: Path) -> Iterator[str]:
    (first,) = (first for mark, first in TINY_MARKS.items() if mark in tensors)
    if first in tensors:
        yield f"latents of {tensors[first].shape[1]} channels"


KINDS: tuple[Kind, ...] = (
    Kind("an IP-Adapter", is_ip_adapter, _nothing),
    Kind("CLIP's encoder of pictures", lambda tensors: bool(encoder_in(tensors)), _nothing),
    Kind("a LoRA", lambda tensors: any(map(LORA_MARKS.search, tensors)), _lora),
    Kind("an embedding", _is_embedding, _embedding),
    Kind(
        "a ControlNet",
        _has("control_model.", "controlnet_cond_embedding.", "controlnet_blocks.", "lora_controlnet"),
        _nothing,
    ),
    Kind(
        "an autoencoder",
        lambda tensors: _has("decoder.conv_in.weight")(tensors) and not _has(*DENOISERS)(tensors),
        _autoencoder,
    ),
    Kind("a tiny autoencoder", lambda tensors: any(mark in tensors for mark in TINY_MARKS), _tiny),
    Kind(
        "a text encoder (CLIP)",
        lambda tensors: _has("text_model.", "transformer.resblocks.")(tensors) and not _has(*DENOISERS)(tensors),
        _nothing,
    ),
    Kind("an upscaler", _is_upscaler, _upscaler),
    Kind("a text encoder (T5)", _has("encoder.block.0.layer.0.SelfAttention", "enc.blk.0."), _nothing),
)
"""What is asked in this order; what is none of them is a checkpoint."""
