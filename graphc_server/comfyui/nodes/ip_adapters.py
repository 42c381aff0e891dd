"""Nodes by which a model looks at pictures: CLIP's encoder of pictures, and IP-Adapters under cubiq's names.

Source: ComfyUI's nodes.py; cubiq's ComfyUI_IPAdapter_plus (IPAdapterPlus.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

import graphc
from graphc_images import ModelError, SettingError
from graphc_images.image_prompts import SCALINGS, WEIGHT_TYPES
from graphc_images.models.ip_adapters import CLIPS, SIDE, IPAdapter, encoder_in, nothing, prepared
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.nodes.loaders import changed_with, file_in
from graphc_server.comfyui.pictures import to_picture
from graphc_server.comfyui.table import Input, choice, link, node, number
from graphc_server.comfyui.values import Looked, Model

GROUP = "ipadapter"
EMBEDS = "EMBEDS"
ADAPTER, IMAGE, MASK = link("ipadapter"), link("image"), link("mask", optional=True)
VISION = link("clip_vision", "CLIP_VISION", optional=True)
ATTENTION_MASK = link("attn_mask", "MASK", optional=True)
PART = (number("start_at", 0.0, 0.0, 1.0, 0.001), number("end_at", 1.0, 0.0, 1.0, 0.001))
KIND, SCALING = choice("weight_type", tuple(WEIGHT_TYPES)), choice("embeds_scaling", tuple(SCALINGS))

COMBINED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "concat": lambda seen: seen,
    "add": lambda seen: seen.sum(0, keepdims=True),
    "subtract": lambda seen: seen[:1] - seen[1:].mean(0, keepdims=True),
    "average": lambda seen: seen.mean(0, keepdims=True),
    "norm average": lambda seen: (seen / np.linalg.norm(seen, axis=0, keepdims=True)).mean(0, keepdims=True),
    "max": lambda seen: seen.max(0, keepdims=True),
    "min": lambda seen: seen.min(0, keepdims=True),
}
"""What is seen in several pictures as one, by name."""


def weight(high: float = 3.0, step: float = 0.05) -> Input:
    """How much a picture counts."""
    return number("weight", 1.0, -1.0, high, step)


@node(
    "CLIPVisionLoader", "loaders", file_in("clip_vision", "clip_name"), gives="CLIP_VISION", title="Load CLIP Vision",
    changed=changed_with("clip_vision", "clip_name"),
)  # fmt: skip
def clip_vision(room: Room, clip_name: str) -> Path:
    """Load CLIP's encoder of pictures."""
    return room.library.path("clip_vision", clip_name)


@node(
    "IPAdapterModelLoader", f"{GROUP}/loaders", file_in("ipadapter", "ipadapter_file"), gives="IPADAPTER",
    title="IPAdapter Model Loader", changed=changed_with("ipadapter", "ipadapter_file"),
)  # fmt: skip
def ip_adapter(room: Room, ipadapter_file: str) -> Path:
    """Load an IP-Adapter."""
    return room.library.path("ipadapter", ipadapter_file)


@node(
    "IPAdapterEncoder", f"{GROUP}/embeds", ADAPTER, IMAGE, weight(step=0.01), MASK, VISION, gives=f"{EMBEDS} {EMBEDS}",
    title="IPAdapter Encoder",
)  # fmt: skip
def encode(
    room: Room, ipadapter: Path, image: np.ndarray, weight: float, mask: np.ndarray | None, clip_vision: Path | None
) -> tuple[np.ndarray, np.ndarray]:
    """What CLIP sees in pictures, for an IP-Adapter, and what it sees where there are none."""
    adapter = room.library.ip_adapter(ipadapter)
    return _seen(room, adapter, clip_vision, image, mask) * np.float32(weight), _unseen(room, adapter, clip_vision)


@node(
    "IPAdapterCombineEmbeds", f"{GROUP}/embeds", link("embed1", EMBEDS), choice("method", tuple(COMBINED)),
    *(link(f"embed{number}", EMBEDS, optional=True) for number in range(2, 6)), gives=EMBEDS, title="IPAdapter Combine Embeds",
)  # fmt: skip
def combine(room: Room, method: str, **embeds: np.ndarray | None) -> np.ndarray:
    """What is seen in several pictures, all of it or as one."""
    seen = [embeds[name] for name in sorted(embeds)]
    given = [each for each in seen if each is not None]
    if len({each.shape[1:] for each in given}) > 1:
        raise SettingError("embed2: it is of another encoder than embed1")
    return _combined(np.concatenate(given), method)


@node(
    "IPAdapterEmbeds", f"{GROUP}/embeds", link("model"), ADAPTER, link("pos_embed", EMBEDS), weight(), KIND, *PART, SCALING,
    link("neg_embed", EMBEDS, optional=True), ATTENTION_MASK, VISION, gives="MODEL", title="IPAdapter Embeds",
)  # fmt: skip
def apply_embeds(
    room: Room, model: Model, ipadapter: Path, pos_embed: np.ndarray, weight: float, weight_type: str, start_at: float,
    end_at: float, embeds_scaling: str, neg_embed: np.ndarray | None, attn_mask: np.ndarray | None, clip_vision: Path | None,
) -> Model:  # fmt: skip
    """A model that looks at what was seen in pictures, by an IP-Adapter."""
    adapter = room.library.ip_adapter(ipadapter)
    none = _unseen(room, adapter, clip_vision) if neg_embed is None else neg_embed
    return _looking(
        model, Looked(ipadapter, pos_embed, none, weight, weight_type, embeds_scaling, attn_mask, start_at, end_at)
    )


@node(
    "IPAdapterAdvanced", GROUP, link("model"), ADAPTER, IMAGE, weight(5.0), KIND,
    choice("combine_embeds", tuple(COMBINED)[:5]), *PART, SCALING, link("image_negative", "IMAGE", optional=True),
    ATTENTION_MASK, VISION, gives="MODEL", title="IPAdapter Advanced",
)  # fmt: skip
def apply(
    room: Room, model: Model, ipadapter: Path, image: np.ndarray, weight: float, weight_type: str, combine_embeds: str,
    start_at: float, end_at: float, embeds_scaling: str, image_negative: np.ndarray | None, attn_mask: np.ndarray | None,
    clip_vision: Path | None,
) -> Model:  # fmt: skip
    """A model that looks at pictures, by an IP-Adapter; away from another one, if that is given."""
    adapter = room.library.ip_adapter(ipadapter)
    seen = _combined(_seen(room, adapter, clip_vision, image), combine_embeds)
    none = (
        _unseen(room, adapter, clip_vision)
        if image_negative is None
        else _seen(room, adapter, clip_vision, image_negative)
    )
    return _looking(
        model, Looked(ipadapter, seen, none, weight, weight_type, embeds_scaling, attn_mask, start_at, end_at)
    )


STANDARD = {"standard": "linear", "prompt is more important": "ease out", "style transfer": "style transfer"}


@node(
    "IPAdapter", GROUP, link("model"), ADAPTER, IMAGE, weight(), *PART, choice("weight_type", tuple(STANDARD)), ATTENTION_MASK,
    gives="MODEL",
)  # fmt: skip
def apply_simply(
    room: Room, model: Model, ipadapter: Path, image: np.ndarray, weight: float, start_at: float, end_at: float,
    weight_type: str, attn_mask: np.ndarray | None,
) -> Model:  # fmt: skip
    """The same with fewer choices; CLIP's encoder is the one of the folder clip_vision that the adapter reads."""
    adapter = room.library.ip_adapter(ipadapter)
    seen, none = _seen(room, adapter, None, image), _unseen(room, adapter, None)
    kind = STANDARD[weight_type]
    return _looking(model, Looked(ipadapter, seen, none, weight, kind, mask=attn_mask, start=start_at, end=end_at))


def _combined(seen: np.ndarray, method: str) -> np.ndarray:
    return np.asarray(COMBINED[method](seen) if len(seen) > 1 else seen, np.float32)


def _looking(model: Model, looked: Looked) -> Model:
    if looked.mask is not None and len(looked.mask) > 1:
        raise SettingError(f"attn_mask: there is one for all pictures of a batch, and not {len(looked.mask)}")
    none = looked.nothing[: len(looked.seen)]
    none = none[np.minimum(np.arange(len(looked.seen)), len(none) - 1)]
    return replace(model, looks=(*model.looks, replace(looked, nothing=none))) if looked.weight else model


def _encoder(room: Room, adapter: IPAdapter, given: Path | None) -> Path:
    """The file of CLIP's encoder of pictures that an adapter reads. Raises ModelError."""
    files = (
        [given] if given is not None else [each.path.absolute() for each in room.library.models.files("image encoder")]
    )
    for path in files:
        try:
            if encoder_in(graphc.open_checkpoint(path)) == adapter.encoder:
                return path
        except graphc.GraphcError:
            if given is not None:
                raise
    kind = CLIPS.get(adapter.encoder, adapter.encoder)
    where = f"{given} is another" if given is not None else "there is none in the folder clip_vision"
    raise ModelError(f"{adapter.file}: it reads what CLIP's {kind} sees in a picture, and {where}")


def _seen(
    room: Room, adapter: IPAdapter, vision: Path | None, image: np.ndarray, mask: np.ndarray | None = None
) -> np.ndarray:
    """What CLIP sees in pictures [batch, height, width, 3]; where a mask is black, nothing."""
    pixels = np.stack([prepared(to_picture(each)) for each in image])
    if mask is not None:
        pixels = pixels * np.stack([_square(each) for each in mask])[:, None]
    encoder = room.library.picture_encoder(_encoder(room, adapter, vision))
    return encoder.see(pixels)[adapter.projection.reads]


def _square(mask: np.ndarray) -> np.ndarray:
    """The square in a mask's middle, as large as what CLIP sees."""
    side = min(mask.shape)
    top, left = ((length - side) // 2 for length in mask.shape)
    cut = Image.fromarray(np.ascontiguousarray(mask[top : top + side, left : left + side], np.float32))
    return np.asarray(cut.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32)


def _unseen(room: Room, adapter: IPAdapter, vision: Path | None) -> np.ndarray:
    """What is seen where there is no picture: in black, or of the whole nothing at all."""
    encoder = room.library.picture_encoder(_encoder(room, adapter, vision))
    found = encoder.see(nothing(black=True)[None])[adapter.projection.reads]
    return found if adapter.projection.reads == "states" else np.zeros_like(found)
