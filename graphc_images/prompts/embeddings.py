"""Textual inversion: vectors that have a name, and stand in a prompt in place of tokens.

Source: Gal et al. 2022 (arXiv:2208.01618); AUTOMATIC1111's modules/textual_inversion; ComfyUI's `embedding:name`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.prompts.encoders import EncoderRules

MENTION = re.compile(r"(?:(?<=[ \n(])|^)embedding:([^\s()]+)")  # in a prompt of ComfyUI
WIDTHS = {768: "clip_l", 1024: "clip_h", 1280: "clip_g", 4096: "t5xxl", 48: "clip_l"}  # the last: coloured shapes


@dataclass(frozen=True)
class Embedding:
    """Vectors [rows, width] by the encoder that they are for; a row takes the place of one token."""

    name: str
    vectors: Mapping[str, np.ndarray]

    @classmethod
    def from_tensors(cls, name: str, tensors: Mapping[str, np.ndarray]) -> Embedding:
        """Of a file's tensors: `clip_l` and `clip_g` by name, else one tensor whose width says for which encoder it is."""
        by_encoder = {key: tensors[key] for key in dict.fromkeys(WIDTHS.values()) if key in tensors}
        if not by_encoder:
            if len(tensors) != 1:
                raise SettingError(
                    f"embedding {name}: there are {len(tensors)} tensors, and none is called clip_l or clip_g"
                )
            (only,) = tensors.values()
            by_encoder = {WIDTHS.get(only.shape[-1] if only.ndim else 0, ""): only}
        for key, vectors in by_encoder.items():
            if vectors.ndim not in (1, 2) or WIDTHS.get(vectors.shape[-1]) != key or not vectors.size:
                raise SettingError(f"embedding {name}: a tensor of shape {list(vectors.shape)} fits no text encoder")
        return cls(name, {key: np.atleast_2d(vectors) for key, vectors in by_encoder.items()})


class EmbeddingFinder:
    """Finds names of embeddings among the tokens of a text, the longest first (A1111), or by the name itself (ComfyUI)."""

    def __init__(self, embeddings: Iterable[Embedding], rules: EncoderRules) -> None:
        self._by_name = {each.name: each for each in embeddings if rules.name in each.vectors}
        self._by_first: dict[int, list[tuple[list[int], Embedding]]] = {}
        for each in self._by_name.values():
            ids = rules.tokens(each.name)
            if ids:
                self._by_first.setdefault(ids[0], []).append((ids, each))
        for found in self._by_first.values():
            found.sort(key=lambda pair: -len(pair[0]))

    def at(self, tokens: list[int], place: int) -> tuple[Embedding, int] | None:
        """The embedding whose name begins at this place, and how many tokens its name has."""
        for ids, embedding in self._by_first.get(tokens[place], ()):
            if tokens[place : place + len(ids)] == ids:
                return embedding, len(ids)
        return None

    def named(self, name: str) -> tuple[Embedding, str] | None:
        """The embedding of this name, and what of it was only a comma behind the name."""
        if name in self._by_name:
            return self._by_name[name], ""
        bare = name.strip(",")
        return (self._by_name[bare], name[len(bare) :]) if bare in self._by_name else None


def missing_embeddings(prompt: str, embeddings: Iterable[Embedding]) -> list[str]:
    """The names of `embedding:name` in a prompt of ComfyUI that no embedding has; `:1.2` of a weight is not a part of one."""
    known = {each.name for each in embeddings}
    found = [name.strip(",") for name in MENTION.findall(prompt)]
    return [name for name in dict.fromkeys(found) if name not in known and name.rpartition(":")[0] not in known]
