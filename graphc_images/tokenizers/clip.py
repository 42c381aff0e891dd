"""CLIP's byte pair encoding: lower case, words and single digits, then pairs merged in the order in which they were learned.

Source: Radford et al. 2021, section 2.4, and OpenAI's clip/simple_tokenizer.py for what a word is.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from functools import lru_cache

from graphc_images.tokenizers.tables import read_tables, text_of

END_OF_WORD = "</w>"
SPECIAL = re.compile(r"(<\|startoftext\|>|<\|endoftext\|>)")
WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[a-zA-Z]+|[0-9]|[^\sa-zA-Z0-9]+")  # of a text of STAND_INS


class _StandIns(dict[int, str]):
    """For each character one of ASCII that is of the same kind: a letter, a number, a space or none of them."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if 0x1C <= code <= 0x1F:  # white space to Python, but not to Unicode
            self[code] = "!"
        elif character.isascii():
            self[code] = character
        elif character.isspace():
            self[code] = " "
        else:
            self[code] = {"L": "a", "N": "0"}.get(unicodedata.category(character)[0], "!")
        return self[code]


STAND_INS = _StandIns()


class ClipTokenizer:
    """Token ids of CLIP's text encoders (OpenAI's and OpenCLIP's have the same).

    `start` and `end` are the ids around a text; `encode` adds neither.
    """

    start = 49406
    end = 49407

    def __init__(self) -> None:
        bytes_first = [*range(33, 127), *range(161, 173), *range(174, 256)]  # those that can be printed come first
        bytes_last = [byte for byte in range(256) if byte not in bytes_first]
        letters = [chr(byte) for byte in bytes_first] + [chr(256 + place) for place in range(len(bytes_last))]
        self._letter_of_byte = dict(zip(bytes_first + bytes_last, letters, strict=True))
        self._id_of_letter = {letter: place for place, letter in enumerate(letters)}
        pairs = text_of(read_tables("clip.npz")["merges"]).split("\n")
        self._rank_of_pair = dict(zip(pairs, range(len(pairs)), strict=True))
        self._ids_of_word = lru_cache(maxsize=1 << 14)(self._merge)

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

    def _merge(self, word: str) -> tuple[int, ...]:
        """The ids of one word: again and again the pair that was learned first, the leftmost of equals."""
        letters = [self._letter_of_byte[byte] for byte in word.encode(errors="replace")]
        ids = [self._id_of_letter[letter] for letter in letters]
        letters[-1] += END_OF_WORD
        ids[-1] += 256
        after = [*range(1, len(letters)), -1]
        before = [*range(-1, len(letters) - 1)]
        waiting: list[tuple[int, int, str]] = []

        def consider(left: int) -> None:
            if left >= 0 and after[left] >= 0:
                pair = f"{letters[left]} {letters[after[left]]}"
                if pair in self._rank_of_pair:
                    heapq.heappush(waiting, (self._rank_of_pair[pair], left, pair))

        for left in range(len(letters)):
            consider(left)
        while waiting:
            rank, left, pair = heapq.heappop(waiting)
            right = after[left]
            if not letters[left] or right < 0 or pair != f"{letters[left]} {letters[right]}":
                continue  # one of the two has been merged with another since
            letters[left] += letters[right]
            ids[left] = 512 + rank
            letters[right] = ""
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            consider(before[left])
            consider(left)
        return tuple(number for number, letter in zip(ids, letters, strict=True) if letter)


def lower(text: str) -> str:
    """Lower case of each character by itself: a sigma at the end of a word is one as any other."""
    return text.lower() if text.isascii() else "".join([character.lower() for character in text])
