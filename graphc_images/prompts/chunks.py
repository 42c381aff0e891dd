"""A prompt of any length as rows of token ids with weights, each as long as a text encoder takes.

Source: AUTOMATIC1111's modules/sd_hijack_clip.py (tokenize_line); ComfyUI's comfy/sd1_clip.py (tokenize_with_weights).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.modes import Mode
from graphc_images.prompts.attention import ROUND, SQUARE, Piece, parse_attention
from graphc_images.prompts.embeddings import Embedding, EmbeddingFinder
from graphc_images.prompts.encoders import EncoderRules

Emphasis = Literal["Original", "No norm", "Ignore", "None"]
COMFYUI_LONG_WORD = 8
EMBEDDING_WORD = re.compile(r"(?:(?<=[ \n])|^)embedding:(\S+)")


class Inserted(NamedTuple):
    """Vectors [rows, width] that stand in a chunk from this place on, in place of those of its ids."""

    place: int
    vectors: np.ndarray
    name: str


@dataclass(frozen=True)
class Chunk:
    """One row for a text encoder: ids with start, end and padding, a weight for each, and vectors of embeddings."""

    ids: tuple[int, ...]
    weights: tuple[float, ...]
    inserted: tuple[Inserted, ...] = ()


@dataclass
class _Row:
    """A chunk that is being filled, without start and end."""

    ids: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    inserted: list[Inserted] = field(default_factory=list)

    def add(self, ids: list[int], weight: float) -> None:
        self.ids += ids
        self.weights += [weight] * len(ids)

    def insert(self, embedding: Embedding, vectors: np.ndarray, weight: float) -> None:
        self.inserted.append(Inserted(len(self.ids), vectors, embedding.name))
        self.add([0] * len(vectors), weight)

    def cut(self, place: int) -> _Row:
        """Takes away what stands from this place on, and gives it. Embeddings stay where they were, as in A1111."""
        rest = _Row(self.ids[place:], self.weights[place:])
        del self.ids[place:], self.weights[place:]
        return rest

    def chunk(self, rules: EncoderRules, length: int) -> Chunk:
        """With start and end, and padded: everything after the first end is padding, also what spells an end."""
        first = [] if rules.start is None else [rules.start]
        last = [] if rules.end is None else [rules.end]
        ids = first + self.ids + last
        end = len(ids) if rules.end is None else ids.index(rules.end) + 1
        missing = max(length - len(ids), 0)
        ids = ids[:end] + [rules.pad] * (len(ids) - end + missing)
        weights = [1.0] * len(first) + self.weights + [1.0] * (len(last) + missing)
        moved = (found._replace(place=found.place + len(first)) for found in self.inserted)
        return Chunk(tuple(ids), tuple(weights), tuple(moved))


def chunk_prompt(
    text: str,
    rules: EncoderRules,
    mode: Mode = "a1111",
    *,
    emphasis: Emphasis = "Original",
    embeddings: Iterable[Embedding] = (),
    comma_backtrack: int = 20,
    old: bool = False,
) -> list[Chunk]:
    """The chunks of a prompt for one encoder, all of the same length; there is at least one.

    In A1111's mode a chunk ends at BREAK, and if a comma is among its last `comma_backtrack` tokens, behind that. The `old` way
    is that of `Settings.old_emphasis`; it raises SettingError for other encoders than CLIP-L.
    """
    finder = EmbeddingFinder(embeddings, rules)
    plain = emphasis == "None" or not rules.weighed
    if old:
        return [_old_row(text, rules, finder, plain).chunk(rules, rules.chunk or 0)]
    whole = rules.talk.replace("{}", text)
    pieces = [Piece(whole, 1.0)] if plain else parse_attention(whole, mode)
    rows = ROWS[mode](pieces, rules, finder, comma_backtrack)
    around = sum(each is not None for each in (rules.start, rules.end))
    length = rules.chunk or max(rules.shortest, *(len(row.ids) + around for row in rows))
    return [row.chunk(rules, length) for row in rows]


def _rows_of_a1111(pieces: list[Piece], rules: EncoderRules, finder: EmbeddingFinder, backtrack: int) -> list[_Row]:
    capacity = rules.chunk - 2 if rules.chunk else None
    rows = [_Row()]
    comma = -1  # where the last comma stands in the row
    for piece in pieces:
        if piece.is_break:
            rows.append(_Row())
            comma = -1
            continue
        tokens, place = rules.tokens(piece.text), 0
        while place < len(tokens):
            row = rows[-1]
            if tokens[place] == rules.comma:
                comma = len(row.ids)
            elif backtrack and len(row.ids) == capacity and comma >= 0 and len(row.ids) - comma <= backtrack:
                rows.append(row.cut(comma + 1))
                comma = -1
            if len(rows[-1].ids) == capacity:
                rows.append(_Row())
                comma = -1
            found = finder.at(tokens, place)
            if found is None:
                rows[-1].add([tokens[place]], piece.weight)
                place += 1
                continue
            embedding, size = found
            vectors = embedding.vectors[rules.name][:capacity]
            if capacity and len(rows[-1].ids) + len(vectors) > capacity:
                rows.append(_Row())
                comma = -1
            rows[-1].insert(embedding, vectors, piece.weight)
            place += size
    return rows if rows[-1].ids or len(rows) == 1 else rows[:-1]


BRACKETS = {"(": ROUND, ")": 1 / ROUND, "[": SQUARE, "]": 1 / SQUARE}


def _old_row(text: str, rules: EncoderRules, finder: EmbeddingFinder, plain: bool) -> _Row:
    """The one row of A1111's first way (modules/sd_hijack_clip_old.py): tokens with brackets in them are left out, and change the
    weight of all that follow; what has no room is left out too."""
    if rules.name != "clip_l" or rules.chunk is None:
        raise SettingError("old_emphasis: the old way is for CLIP-L alone, the text encoder of Stable Diffusion 1")
    capacity, row, weight = rules.chunk - 2, _Row(), 1.0
    tokens, place = rules.tokens(text), 0
    spelled = {token: rules.spelled(token) for token in tokens}
    while place < len(tokens) and len(row.ids) < capacity:
        brackets = [] if plain else [BRACKETS[each] for each in spelled[tokens[place]] if each in BRACKETS]
        if not math.isclose(factor := math.prod(brackets), 1.0):
            weight *= factor
            place += 1
        elif found := finder.at(tokens, place):
            embedding, size = found
            row.insert(embedding, embedding.vectors[rules.name][: capacity - len(row.ids)], weight)
            place += size
        else:
            row.add([tokens[place]], weight)
            place += 1
    return row


def _rows_of_comfyui(pieces: list[Piece], rules: EncoderRules, finder: EmbeddingFinder, _backtrack: int) -> list[_Row]:
    """Each piece goes whole into a row if it is short, else what fits; an embedding is a piece of its own."""
    capacity = rules.chunk - 2 if rules.chunk else None
    rows = [_Row()]
    for group, embedding, weight in _groups(pieces, rules, finder):
        start = 0
        large = len(group) >= COMFYUI_LONG_WORD
        while start < len(group):
            room = len(group) if capacity is None else capacity - len(rows[-1].ids)
            count = len(group) - start
            if count > room:
                count = room if large else 0
            if embedding is not None and count:
                rows[-1].insert(embedding, embedding.vectors[rules.name][start : start + count], weight)
            else:
                rows[-1].add(group[start : start + count], weight)
            start += count
            if start < len(group):
                rows.append(_Row())
    return rows


def _groups(
    pieces: list[Piece], rules: EncoderRules, finder: EmbeddingFinder
) -> Iterable[tuple[list[int], Embedding | None, float]]:
    """Tokens that belong together, with their weight: a piece between `embedding:name`s, or the rows of one.

    A name that no embedding has is left out, as in ComfyUI; `embeddings.missing_embeddings` says which these are.
    """
    for text, weight in pieces:
        start = 0
        for match in EMBEDDING_WORD.finditer(text):
            yield rules.tokens(text[start : match.start()]), None, weight
            start = match.end()
            found = finder.named(match[1])
            if found is not None:
                embedding, comma = found
                yield [0] * len(embedding.vectors[rules.name]), embedding, weight
                start -= len(comma)
        yield rules.tokens(text[start:]), None, weight


ROWS: dict[Mode, Callable[[list[Piece], EncoderRules, EmbeddingFinder, int], list[_Row]]] = {
    "a1111": _rows_of_a1111,
    "comfyui": _rows_of_comfyui,
}
