"""From prompts to what the denoiser is told: text encoders run, their states are weighed and joined, each text once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from graphc_images.from_files import stamp
from graphc_images.models import Architecture, Conditioning, ImageModel
from graphc_images.models.looking import Look
from graphc_images.modes import Mode
from graphc_images.prompts import conditioning as arithmetic
from graphc_images.prompts import encoders
from graphc_images.prompts.chunks import Chunk, Emphasis, chunk_prompt
from graphc_images.prompts.embeddings import Embedding
from graphc_images.prompts.emphasis import weigh_a1111, weigh_comfyui
from graphc_images.prompts.encoders import EncoderRules

ENCODERS: Mapping[str, EncoderRules] = {
    rules.name: rules for rules in (encoders.CLIP_L, encoders.CLIP_G, encoders.CLIP_H, encoders.T5)
}
FULL = 32
"""Z-Image's words are filled up to multiples of this."""


@dataclass(frozen=True)
class Reading:
    """How texts are read. `size` is the picture's (height, width), which Stable Diffusion XL is told; `guidance` the distilled
    one; `t5_mask_pad` is how much padding Chroma sees, `comma_backtrack` how far before its end a chunk may end at a comma.
    Stable Diffusion XL is told `crop`, pixels that are cut off at the top and at the left; its refiner aesthetic `scores` of the
    negative prompt and of the prompt. Qwen-Image-Edit reads texts behind pictures, `looks`."""

    mode: Mode = "a1111"
    emphasis: Emphasis = "Original"
    clip_skip: int | None = None
    embeddings: tuple[Embedding, ...] = ()
    size: tuple[int, int] = (512, 512)
    guidance: float | None = None
    t5_mask_pad: int = 0
    comma_backtrack: int = 20
    old_emphasis: bool = False
    crop: tuple[int, int] = (0, 0)
    scores: tuple[float, float] = (2.5, 6.0)
    looks: tuple[Look, ...] = ()


@dataclass(frozen=True)
class Told:
    """The texts of a prompt, of which one follows the other; in A1111's mode they are one batch, whose mean emphasis keeps."""

    texts: tuple[str, ...]
    negative: bool = False


@dataclass(frozen=True)
class Read:
    """What an encoder makes of some texts: states [texts, tokens, width], of the first chunk a vector [texts, width], and which
    tokens are no padding [texts, tokens]."""

    words: np.ndarray
    pooled: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True)
class Layer:
    """Which states count: those of the last layer, or of the `last`th from the end, with the encoder's norm or without. With
    `skips`, people may ask for an earlier one (clip skip)."""

    last: int = 1
    normed: bool = True
    skips: bool = False


@dataclass(frozen=True)
class Family:
    """How the texts of a family of models become conditionings. `t5` is the least number of T5's tokens, by mode; `masked` says
    that tokens of T5 and Qwen do not look at padding. `talk` is how it talks to a language model."""

    name: str
    layer: Layer
    joined: Callable[[Mapping[str, Read], Reading, bool], Conditioning]
    t5: Mapping[Mode, int] = field(default_factory=lambda: {"a1111": 256, "comfyui": 256})
    masked: bool = False
    talk: EncoderRules | None = None


class Conditioner:
    """The conditionings of a model: what was encoded last is kept, for the next picture of the same prompt."""

    KEPT = 32
    KEPT_BYTES = 1 << 28
    """Texts beside pictures are long: of those before the last, no more than this is kept."""

    def __init__(self, model: ImageModel) -> None:
        self.model = model
        self._made: OrderedDict[Hashable, list[Conditioning]] = OrderedDict()

    def __call__(self, told: Sequence[Told], reading: Reading) -> list[list[Conditioning]]:
        """As `conditionings`. A LoRA on the text encoders, another strength of it, or another file makes others."""
        put_on = self.model.loras.items()
        loras = tuple(sorted((name, str(strength), stamp(Path(name))) for name, strength in put_on))
        vectors = [array.tobytes() for each in reading.embeddings for array in each.vectors.values()]
        names = [each.name for each in reading.embeddings]
        looks = [(look.digest, look.number) for look in reading.looks]
        rest = replace(reading, embeddings=(), looks=())
        keys = {each: (each, loras, rest, *looks, *names, *vectors) for each in told}
        new = [each for each, key in keys.items() if key not in self._made]
        made = dict(zip(new, conditionings(self.model, new, reading), strict=True))
        found = {each: made[each] if each in made else self._made.pop(key) for each, key in keys.items()}
        self._made.update({keys[each]: one for each, one in found.items()})
        while len(self._made) > self.KEPT or (len(self._made) > len(keys) and self._bytes() > self.KEPT_BYTES):
            self._made.popitem(last=False)
        return [found[each] for each in told]

    def _bytes(self) -> int:
        return sum(each.words.nbytes for conditionings in self._made.values() for each in conditionings)


def conditionings(model: ImageModel, told: Sequence[Told], reading: Reading) -> list[list[Conditioning]]:
    """What the denoiser is told for each text. An encoder reads everything before the next one does: memory may hold one only."""
    family = FAMILIES[family_name(model.architecture)]
    read: list[dict[str, Read]] = [{} for _ in told]
    for name in needed(model) if told else ():
        for each, results in zip(told, read, strict=True):
            results[name] = _read(model, name, each.texts, reading, family)
    return [_joined(family, each, results, reading) for each, results in zip(told, read, strict=True)]


def _joined(family: Family, told: Told, read: Mapping[str, Read], reading: Reading) -> list[Conditioning]:
    """What all encoders say of each text."""
    found = [
        family.joined({name: _row(each, row) for name, each in read.items()}, reading, told.negative)
        for row in range(len(told.texts))
    ]
    if told.negative and arithmetic.is_zeroed(family.name, reading.mode, told.texts):
        found = [replace(each, words=np.zeros_like(each.words), pooled=_zeros(each.pooled)) for each in found]
    return found


def conditioning_of(model: ImageModel, texts: Mapping[str, str], reading: Reading) -> Conditioning:
    """What the denoiser is told where each text encoder reads a text of its own, of those by name. Of CLIP's encoders, one whose
    text is shorter by chunks reads empty chunks behind it (ComfyUI)."""
    family = FAMILIES[family_name(model.architecture)]
    read = {name: _read(model, name, [texts.get(name, "")], reading, family) for name in needed(model)}
    clips = [name for name in read if name in ENCODERS and ENCODERS[name].chunk is not None]
    longest = max((read[name].words.shape[1] for name in clips), default=0)
    for name in (each for each in clips if read[each].words.shape[1] < longest):
        empty = _read(model, name, [""], reading, family)
        while read[name].words.shape[1] < longest:
            words, mask = ([getattr(each, kind) for each in (read[name], empty)] for kind in ("words", "mask"))
            read[name] = replace(read[name], words=np.concatenate(words, 1), mask=np.concatenate(mask, 1))
    return family.joined(read, reading, False)


def family_name(architecture: Architecture) -> str:
    """The family, by the kind of denoiser and the text encoders."""
    unets = {("clip_l",): "sd1", ("clip_h",): "sd2", ("clip_l", "clip_g"): "sdxl", ("clip_g",): "sdxl-refiner"}
    return unets[tuple(architecture.text)] if architecture.kind == "unet" else architecture.kind


def needed(model: ImageModel) -> Sequence[str]:
    """The encoders that are read. Stable Diffusion 3 does without T5 where there is none."""
    spare = model.architecture.kind == "sd3" and "t5xxl" not in model.components
    return [name for name in model.architecture.text if not (spare and name == "t5xxl")]


def _row(read: Read, row: int) -> Read:
    return Read(read.words[row : row + 1], read.pooled[row : row + 1], read.mask[row : row + 1])


def _zeros(array: np.ndarray | None) -> np.ndarray | None:
    return None if array is None else np.zeros_like(array)


def _read(model: ImageModel, name: str, texts: Sequence[str], reading: Reading, family: Family) -> Read:
    """What one encoder makes of the texts."""
    rules = talked(family, reading.looks) if name == "llm" else ENCODERS[name]
    if name == "t5xxl":
        rules = replace(rules, shortest=family.t5[reading.mode])
    cut = [
        chunk_prompt(
            text,
            rules,
            reading.mode,
            emphasis=reading.emphasis,
            embeddings=reading.embeddings,
            comma_backtrack=reading.comma_backtrack,
            old=reading.old_emphasis,
        )
        for text in texts
    ]
    masked = family.masked and rules.chunk is None
    seen_pads = reading.t5_mask_pad if masked and not family.talk else 0
    most = max(map(len, cut))
    (empty,) = chunk_prompt("", rules, reading.mode)
    rows = [[*chunks, *[empty] * (most - len(chunks))] for chunks in cut]
    if rules.chunk is None:
        longest = max(len(chunk.ids) for chunks in rows for chunk in chunks) + seen_pads
        rows = [[_padded(chunk, longest, rules) for chunk in chunks] for chunks in rows]
    layer = family.layer
    skip = max(layer.last, reading.clip_skip or 1) if layer.skips else layer.last

    words, pooled, masks = [], None, []
    for chunks in zip(*rows, strict=True):
        ids = np.array([_ids(model, name, chunk) for chunk in chunks], np.int64)
        weights = np.array([chunk.weights for chunk in chunks], np.float32)
        if reading.looks:
            encoded = model.encode_seeing(name, ids, reading.looks)
        else:
            encoded = model.encode_tokens(name, ids, arithmetic.text_mask(ids, pad=rules.pad) if masked else None)
        states = encoded.skipping(skip if rules.chunk else 1, layer.normed)
        words.append(_weighed(model, states, weights, rules, skip, reading, layer))
        masks.append(arithmetic.text_mask(ids, pad=rules.pad, visible_pads=seen_pads))
        if pooled is None:
            pooled = encoded.pooled((ids == rules.end).argmax(1).tolist())
    assert pooled is not None
    return Read(np.concatenate(words, 1), pooled, np.concatenate(masks, 1))


def talked(family: Family, looks: Sequence[Look] = ()) -> EncoderRules:
    """How a family talks to its language model, beside these pictures."""
    assert family.talk is not None
    return encoders.edited([(look.number, look.words) for look in looks]) if looks else family.talk


def _ids(model: ImageModel, encoder: str, chunk: Chunk) -> list[int]:
    """The ids of a chunk, with those of its embeddings' vectors in their places."""
    ids = list(chunk.ids)
    for place, vectors, name in chunk.inserted:
        own = f"{name} {hashlib.sha256(np.ascontiguousarray(vectors).tobytes()).hexdigest()}"
        ids[place : place + len(vectors)] = model.embedding_ids(encoder, own, vectors)
    return ids


def _padded(chunk: Chunk, length: int, rules: EncoderRules) -> Chunk:
    more = length - len(chunk.ids)
    return replace(chunk, ids=(*chunk.ids, *[rules.pad] * more), weights=(*chunk.weights, *[1.0] * more))


def _weighed(
    model: ImageModel,
    states: np.ndarray,
    weights: np.ndarray,
    rules: EncoderRules,
    skip: int,
    reading: Reading,
    layer: Layer,
) -> np.ndarray:
    if (weights == 1).all():
        return states
    if reading.mode == "a1111":
        return weigh_a1111(states, weights, reading.emphasis)
    (chunk,) = chunk_prompt("", rules, reading.mode)
    empty = _padded(chunk, states.shape[1], rules)
    encoded = model.encode_tokens(rules.name, np.array([empty.ids], np.int64))
    return weigh_comfyui(states, weights, encoded.skipping(skip if rules.chunk else 1, layer.normed))


def _words_of(encoder: str) -> Callable[[Mapping[str, Read], Reading, bool], Conditioning]:
    def joined(read: Mapping[str, Read], reading: Reading, negative: bool) -> Conditioning:
        return Conditioning(read[encoder].words)

    return joined


def _sdxl(read: Mapping[str, Read], reading: Reading, negative: bool) -> Conditioning:
    both = _equally_long([read["clip_l"].words, read["clip_g"].words])
    numbers = [*reading.size, *reading.crop, *reading.size]
    return Conditioning(arithmetic.sdxl_context(*both), read["clip_g"].pooled, _numbers(numbers))


def _refiner(read: Mapping[str, Read], reading: Reading, negative: bool) -> Conditioning:
    numbers = [*reading.size, *reading.crop, reading.scores[not negative]]
    return Conditioning(read["clip_g"].words, read["clip_g"].pooled, _numbers(numbers))


def _sd3(read: Mapping[str, Read], reading: Reading, negative: bool) -> Conditioning:
    both = _equally_long([read["clip_l"].words, read["clip_g"].words])
    t5 = read["t5xxl"].words if "t5xxl" in read else None
    missing = arithmetic.SD3_ROWS_WITHOUT_T5[reading.mode]
    words = arithmetic.sd3_context(both[0], both[1], t5, rows_without_t5=missing)
    return Conditioning(words, arithmetic.sd3_vector(read["clip_l"].pooled, read["clip_g"].pooled))


def _flux(read: Mapping[str, Read], reading: Reading, negative: bool) -> Conditioning:
    guidance = None if reading.guidance is None else np.array([reading.guidance], np.float32)
    return Conditioning(read["t5xxl"].words, read["clip_l"].pooled, guidance=guidance)


def _chroma(read: Mapping[str, Read], reading: Reading, negative: bool) -> Conditioning:
    return Conditioning(read["t5xxl"].words, mask=read["t5xxl"].mask.astype(np.float32))


def _z_image(read: Mapping[str, Read], reading: Reading, negative: bool) -> Conditioning:
    words = own_words(read["llm"])
    more = -words.shape[1] % FULL
    mask = np.arange(words.shape[1] + more) < words.shape[1]
    return Conditioning(np.pad(words, ((0, 0), (0, more), (0, 0))), mask=mask[None].astype(np.float32))


def _flux2(read: Mapping[str, Read], reading: Reading, negative: bool) -> Conditioning:
    return Conditioning(read["llm"].words[:, : max(encoders.QWEN_ANSWERED.shortest, int(read["llm"].mask.sum()))])


def _qwen_image(read: Mapping[str, Read], reading: Reading, negative: bool) -> Conditioning:
    rules = talked(FAMILIES["qwen_image"], reading.looks)
    return Conditioning(own_words(read["llm"])[:, rules.dropped :])


def own_words(read: Read) -> np.ndarray:
    """The states [1, tokens, width] of a text without padding, which another text of the same batch may have brought."""
    return read.words[:, read.mask[0]]


def _numbers(values: Sequence[float]) -> np.ndarray:
    return np.array([values], np.float32)


def _equally_long(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays [texts, tokens, width] with zeros behind the shorter ones: encoders may cut a prompt into chunks at other places."""
    longest = max(array.shape[1] for array in arrays)
    return [np.pad(array, ((0, 0), (0, longest - array.shape[1]), (0, 0))) for array in arrays]


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("sd1", Layer(skips=True), _words_of("clip_l")),
        Family("sd2", Layer(2), _words_of("clip_h")),
        Family("sdxl", Layer(2, normed=False, skips=True), _sdxl),
        Family("sdxl-refiner", Layer(2, normed=False), _refiner),
        Family("sd3", Layer(2, normed=False), _sd3, {"a1111": 256, "comfyui": 77}),
        Family("flux", Layer(), _flux),
        Family("chroma", Layer(), _chroma, {"a1111": 1, "comfyui": 1}, masked=True),
        Family("z_image", Layer(), _z_image, talk=encoders.QWEN_ASKED),
        Family("qwen_image", Layer(), _qwen_image, talk=encoders.QWEN_DESCRIBED),
        Family("flux2", Layer(), _flux2, masked=True, talk=encoders.QWEN_ANSWERED),
    )
}
"""By name. T5's least numbers of tokens are those of Forge and of ComfyUI."""
