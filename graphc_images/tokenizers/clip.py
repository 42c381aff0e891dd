"""CLIP's byte pair encoding: lower case, words and single digits, then pairs merged in the order in which they were learned.

Source: Radford et al. 2021, section 2.4, and OpenAI's clip/simple_tokenizer.py for what a word is.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from graphc_images.tokenizers.pairs import BYTES, ID_OF_BYTE, STAND_INS, merger
from graphc_images.tokenizers.tables import read_tables, text_of

END_OF_WORD = "</w>"
SPECIAL = re.compile(r"(<\|startoftext\|>|<\|endoftext\|>)")
WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[a-zA-Z]+|[0-9]|[^\sa-zA-Z0-9]+")  # of a text of STAND_INS


class ClipTokenizer:
    """Token ids of CLIP's text encoders (OpenAI's and OpenCLIP's have the same).

    `start` and `end` are the ids around a text; `encode` adds neither.
    """

    start = 49406
    end = 49407

    def __init__(self) -> None:
        pairs = pairs_of()
        words = words_of(pairs)
        id_of_word = {word: place for place, word in enumerate(words)}
        self._merge = merger(([id_of_word[left], id_of_word[right]] for left, right in pairs), len(words) - len(pairs))
        self._words: list[str] | None = None
        self._ids_of_word = lru_cache(maxsize=1 << 14)(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Ids of a text of any length, without `start` and `end`; their own spellings give them."""
        ids: list[int] = []
        for place, part in enumerate(SPECIAL.split(text)):
            if place % 2:
                ids.append(self.start if part == "<|startoftext|>" else self.end)
                continue
            clean = lower(unicodedata.normalize("NFC", part))
            for word in WORD.finditer(clean.translate(STAND_INS)):
                ids += self._ids_of_word(clean[word.start() : word.end()])
        return ids

    def spelled(self, token: int) -> str:
        """How the table writes an id: with a mark where a word ends, and stand-ins for bytes that are no letters."""
        if self._words is None:
            self._words = words_of(pairs_of())
        return self._words[token] if token < len(self._words) else ""

    def _pieces(self, word: str) -> tuple[int, ...]:
        """The ids of one word, whose last letter is another one than in its midst."""
        *letters, last = (ID_OF_BYTE[byte] for byte in word.encode(errors="replace"))
        return self._merge([*letters, last + 256])


def pairs_of() -> list[list[str]]:
    """The pairs that are merged, in the order in which they were learned."""
    return [line.split(" ") for line in text_of(read_tables("clip.npz")["merges"]).split("\n")]


def words_of(pairs: list[list[str]]) -> list[str]:
    """How each id is written in the table: single bytes within and at the end of a word, then what pairs become."""
    letters = spellings()
    return [*letters, *(letter + END_OF_WORD for letter in letters), *(left + right for left, right in pairs)]


def spellings() -> list[str]:
    """How each byte is written in the table, in the order of ids: by a character that can be seen."""
    unseen = BYTES.index(0)
    return [chr(byte if place < unseen else 256 + place - unseen) for place, byte in enumerate(BYTES)]


def lower(text: str) -> str:
    """Lower case of each character by itself: a sigma at the end of a word is one as any other."""
    return text.lower() if text.isascii() else "".join([character.lower() for character in text])
