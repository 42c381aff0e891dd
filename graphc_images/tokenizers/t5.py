"""T5's unigram tokenizer: the pieces of a word whose log probabilities have the largest sum.

Source: Kudo 2018 (arXiv:1804.10959); Hugging Face's fast tokenizer for what comes before (characters are replaced as
sentencepiece does, then words are cut at white space).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from graphc_images.tokenizers.tables import read_tables, text_of

SPECIAL = re.compile(r"(<pad>|</s>|<unk>|<extra_id_[1-9]?[0-9]>)")
SPECIAL_IDS = {"<pad>": 0, "</s>": 1, "<unk>": 2}
WORD_MARK = "▁"
UNKNOWN = 2
FIRST_PIECE = 3
UNKNOWN_PENALTY = 10.0  # below the least likely piece
ACCENTS = {"Mn", "Me", "Mc"}
JOINERS = "\u200c\u200d"
PREPENDED = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f"  # signs of Arabic and Syriac that what follows stands on
CONTROLS = {"Cc", "Cf", "Zl", "Zp"}
LONGEST_REPLACED = 5  # bytes of a character with its accents that are looked up as one


class T5Tokenizer:
    """Token ids of T5, v1.0 and v1.1. `encode` does not add `end`, which stands at the end of each text; there is no start."""

    pad = 0
    end = 1

    def __init__(self) -> None:
        tables = read_tables("t5.npz")
        pieces = text_of(tables["pieces"]).split("\n")
        scores = tables["scores"].tolist()
        self._scores = dict(zip(pieces, scores, strict=True))
        self._numbers = dict(zip(pieces, range(FIRST_PIECE, FIRST_PIECE + len(pieces)), strict=True))
        self._unknown_score = min(scores) - UNKNOWN_PENALTY
        self._longest = max(map(len, pieces))
        parts = text_of(tables["replacements"]).split("\0")
        self._replacements = dict(zip(parts[::2], parts[1::2], strict=True))
        self._ids_of_word = lru_cache(maxsize=1 << 14)(self._most_likely)

    def encode(self, text: str) -> list[int]:
        """Ids of a text of any length, without the one of its end; spellings of special tokens give their ids."""
        ids: list[int] = []
        for place, part in enumerate(SPECIAL.split(text)):
            if place % 2:
                ids.append(SPECIAL_IDS[part] if part in SPECIAL_IDS else 32099 - int(part[len("<extra_id_") : -1]))
                continue
            for word in self.normalize(part).split():
                ids += self._ids_of_word(WORD_MARK + word)
        return ids

    def normalize(self, text: str) -> str:
        """Compatible characters become one (NFKC, of the Unicode of T5's time), control characters none."""
        if text.isascii() and text.isprintable():
            return text
        return "".join([self._replace(cluster) for cluster in clusters(text)])

    def _replace(self, cluster: str) -> str:
        """A character with its accents as one if it is short, else each by itself.

        As in Hugging Face's tokenizers, the shortest key at the beginning counts, and what follows it goes with it.
        """
        if len(cluster) > 1 and len(cluster.encode(errors="replace")) <= LONGEST_REPLACED:
            for size in range(1, len(cluster) + 1):
                if cluster[:size] in self._replacements:
                    return self._replacements[cluster[:size]]
        return "".join([self._replacements.get(character, character) for character in cluster])

    def _most_likely(self, word: str) -> tuple[int, ...]:
        """Viterbi's way: the best sum of scores that ends at each place, and the piece by which it came there."""
        best = [0.0] + [float("-inf")] * len(word)
        came_from = [0] * len(best)
        for start in range(len(word)):
            so_far = best[start]
            unknown = self._unknown_score  # what a single character has that is not a piece
            for stop in range(start + 1, min(start + self._longest, len(word)) + 1):
                score = self._scores.get(word[start:stop], unknown)
                unknown = float("-inf")
                if so_far + score > best[stop]:
                    best[stop] = so_far + score
                    came_from[stop] = start
        ids: list[int] = []
        stop = len(word)
        while stop:
            start = came_from[stop]
            number = self._numbers.get(word[start:stop], UNKNOWN)
            if number != UNKNOWN or not ids or ids[-1] != UNKNOWN:  # unknown ones in a row are one
                ids.append(number)
            stop = start
        return tuple(reversed(ids))


def clusters(text: str) -> list[str]:
    """A text cut before each character that does not belong to the one before it, as accents do; controls stand alone.

    Of Unicode's rules for these (UAX 29), those that matter to characters of a few bytes.
    """
    found: list[str] = []
    stands_alone = True
    for character in text:
        category = unicodedata.category(character)
        control = category in CONTROLS and character not in JOINERS and character not in PREPENDED
        joins = category in ACCENTS or character in JOINERS or (bool(found) and found[-1][-1] in PREPENDED)
        if joins and not control and not stands_alone:
            found[-1] += character
        else:
            found.append(character)
        stands_alone = control
    return found
