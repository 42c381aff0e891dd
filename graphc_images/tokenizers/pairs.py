"""What byte pair encodings share: letters for bytes, kinds of characters, and the merging of pairs.

Source: Sennrich, Haddow, Birch, Neural Machine Translation of Rare Words with Subword Units (2016).
"""

from __future__ import annotations

import heapq
import unicodedata
from collections.abc import Callable, Iterable, Sequence

BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]
"""All bytes in the order of their ids: those that can be printed come first."""
BYTES += [byte for byte in range(256) if byte not in BYTES]

ID_OF_BYTE = {byte: place for place, byte in enumerate(BYTES)}


class _StandIns(dict[int, str]):
    """For each character one of ASCII that is of the same kind: a letter, a number, white space or none of them."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if 0x1C <= code <= 0x1F:  # white space to Python, but not to Unicode
            self[code] = "!"
        elif character.isascii():
            self[code] = character
        elif character.isspace():
            self[code] = "\t"  # for a space itself is looked in a word of Qwen's
        else:
            self[code] = {"L": "a", "N": "0"}.get(unicodedata.category(character)[0], "!")
        return self[code]


STAND_INS = _StandIns()
"""For `str.translate`: `re` knows no classes of Unicode's characters, and looks at these in their place."""


def merger(pairs: Iterable[Sequence[int]], first: int) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """How the ids of a word's letters become those of its pieces: again and again the pair that was learned first is merged, the
    leftmost of equals. `pairs` are the ids of both, in the order in which they were learned; the first becomes the id `first`."""
    id_of_pair = {left << 32 | right: first + rank for rank, (left, right) in enumerate(pairs)}

    def merge(letters: Sequence[int]) -> tuple[int, ...]:
        ids = [*letters]
        after = [*range(1, len(ids)), -1]
        before = [*range(-1, len(ids) - 1)]
        waiting: list[tuple[int, int, int]] = []

        def consider(left: int) -> None:
            if left >= 0 and after[left] >= 0:
                pair = ids[left] << 32 | ids[after[left]]
                if pair in id_of_pair:
                    heapq.heappush(waiting, (id_of_pair[pair], left, pair))

        for left in range(len(ids)):
            consider(left)
        while waiting:
            merged, left, pair = heapq.heappop(waiting)
            right = after[left]
            if ids[left] < 0 or right < 0 or pair != ids[left] << 32 | ids[right]:
                continue  # one of the two has been merged with another since
            ids[left], ids[right] = merged, -1
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            consider(before[left])
            consider(left)
        return tuple(each for each in ids if each >= 0)

    return merge
