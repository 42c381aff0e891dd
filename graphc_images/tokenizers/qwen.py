"""The byte pair encoding of Qwen 2, 2.5 and 3: words with the space before them, single digits, punctuation, then pairs merged.

Source: Bai et al., Qwen Technical Report (2023), section 2.2; transformers' Qwen2Tokenizer for what a word is.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import numpy as np

from graphc_images.tokenizers.pairs import ID_OF_BYTE, STAND_INS, merger
from graphc_images.tokenizers.tables import read_tables

FIRST_SPECIAL = 151643
NAMES = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>"
)
SPECIAL_IDS = {name: FIRST_SPECIAL + place for place, name in enumerate(NAMES.split())}
SPECIAL = re.compile(f"({'|'.join(map(re.escape, SPECIAL_IDS))})")
# Of a text of STAND_INS.
WORD = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\na-zA-Z0-9]?[a-zA-Z]+|[0-9]| ?[^\sa-zA-Z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class QwenTokenizer:
    """Token ids of Qwen's language models. `pad` is behind texts that are shorter than others."""

    pad = FIRST_SPECIAL

    def __init__(self) -> None:
        self._merge = merger(pairs_of(read_tables("qwen.npz")["pairs"]).tolist(), 256)
        self._ids_of_word = lru_cache(maxsize=1 << 14)(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Ids of a text of any length; spellings of special tokens give their ids."""
        ids: list[int] = []
        for place, part in enumerate(SPECIAL.split(text)):
            if place % 2:
                ids.append(SPECIAL_IDS[part])
                continue
            clean = unicodedata.normalize("NFC", part)
            for word in WORD.finditer(clean.translate(STAND_INS)):
                ids += self._ids_of_word(clean[word.start() : word.end()])
        return ids

    def _pieces(self, word: str) -> tuple[int, ...]:
        """The ids of one word."""
        return self._merge([ID_OF_BYTE[byte] for byte in word.encode(errors="replace")])


def pairs_of(planes: np.ndarray) -> np.ndarray:
    """Pairs of ids [pairs, 2], of their bytes [3, 2, pairs], the lowest first: so they are stored, because that is smaller."""
    low, middle, high = planes.astype(np.int64)
    return np.asarray((low | middle << 8 | high << 16).T)
