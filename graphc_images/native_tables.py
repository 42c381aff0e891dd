"""The tables of the native program, as C++: Unicode's characters as this Python knows them, CLIP's pairs, names of samplers."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable

from graphc_images.sampling.names import SAMPLERS, SCHEDULERS, Sampler, find_sampler, plain
from graphc_images.tokenizers.clip import pairs_of, words_of
from graphc_images.tokenizers.pairs import ID_OF_BYTE, STAND_INS

LETTER, NUMBER, BLANK, SPACE, IN_WORD, DECIMAL = (1 << bit for bit in range(6))
"""Bits of `tables::Kind`."""

OF_STAND_IN = {"a": LETTER, "0": NUMBER, "\t": BLANK}
SYLLABLES = range(0xAC00, 0xAC00 + 11172)
"""Hangul, which is composed by arithmetic."""

HEAD = """\
// Written by graphc_images/native_tables.py, of Unicode {unicode}.
#include "tables.hpp"

namespace graphc::images::tables {{
"""


def tables_source() -> str:
    """`tables.cpp`, which belongs to `native/painter/tables.hpp`."""
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    pairs = pairs_of()
    id_of_word = {word: place for place, word in enumerate(words_of(pairs))}
    decomposed = [(each, whole) for each in characters if (whole := _apart(each)) != each]
    zeros = [each for each in characters if unicodedata.decimal(each, -1) == 0]
    parts = [
        HEAD.format(unicode=unicodedata.unidata_version),
        _list("Range", "kinds", _ranges(characters, _kind)),
        _list("Range", "combining_classes", _ranges(characters, unicodedata.combining)),
        _list(
            "Spelling", "lower_cases", (_spelling(each, each.lower()) for each in characters if each.lower() != each)
        ),
        _list("Spelling", "decompositions", (_spelling(*each) for each in decomposed)),
        _list("Composition", "compositions", _compositions(decomposed)),
        _list("char32_t", "zeros", map(_code, zeros)),
        _list("uint16_t[2]", "clip_pairs", (f"{{{id_of_word[a]},{id_of_word[b]}}}" for a, b in pairs)),
        *_names(),
        f"const uint16_t clip_bytes[256] = {{{','.join(str(ID_OF_BYTE[byte]) for byte in range(256))}}};",
        "}  // namespace graphc::images::tables\n",
    ]
    return "\n".join(parts)


def _names() -> Iterable[str]:
    """Samplers and schedulers, and what people call them in A1111's mode."""
    names = dict.fromkeys(plain(name) for each in SAMPLERS for name in each.names)
    meant = {name: find_sampler(name, "a1111")[0] for name in names}
    rows = list(dict.fromkeys(id(each) for each in meant.values()))
    samplers = {id(each): each for each in meant.values()}
    yield _list("KnownSampler", "known_samplers", (_sampler(samplers[row]) for row in rows))
    yield _list("Name", "sampler_names", (f"{{{_text(name)},{rows.index(id(each))}}}" for name, each in meant.items()))
    known = dict.fromkeys((plain(name), row) for row, each in enumerate(SCHEDULERS) for name in each.names)
    yield _list(
        "KnownScheduler", "known_schedulers", (f"{{{_text(each.name)},{_text(each.label)}}}" for each in SCHEDULERS)
    )
    yield _list("Name", "scheduler_names", (f"{{{_text(name)},{row}}}" for name, row in known))


def _sampler(sampler: Sampler) -> str:
    evaluations = 2 if sampler.evaluations == 2 else 1  # as `Plan.evaluations` has it
    words = ",".join(map(_text, (sampler.name, sampler.label, sampler.scheduler)))
    return f"{{{words},{evaluations},{str('a1111' in sampler.discard).lower()}}}"


def _text(text: str) -> str:
    """A text of ASCII without signs that mean something to C++."""
    return f'"{text}"'


def _code(character: str) -> str:
    return hex(ord(character))


def _kind(character: str) -> int:
    found = OF_STAND_IN[kind] if (kind := _stand_in(character)) in OF_STAND_IN else 0
    found |= SPACE if character.isspace() else 0
    found |= IN_WORD if character.isalnum() or character == "_" else 0
    return found | (DECIMAL if unicodedata.decimal(character, -1) >= 0 else 0)


def _stand_in(character: str) -> str:
    """What the tokenizer takes it for: `a`, `0`, a tab, or anything else."""
    stand_in = STAND_INS[ord(character)]
    if stand_in.isspace():
        return "\t"
    return "a" if stand_in.isalpha() else "0" if stand_in.isdigit() else stand_in


def _ranges(characters: Iterable[str], value_of: Callable[[str], int]) -> Iterable[str]:
    """Where values begin, of which those of neighbours are alike."""
    last = 0
    for each in characters:
        value = value_of(each)
        if value != last:
            yield f"{{{_code(each)},{value}}}"
            last = value


def _apart(character: str) -> str:
    """Its whole canonical decomposition, or itself, as Hangul's syllables are here."""
    return character if ord(character) in SYLLABLES else unicodedata.normalize("NFD", character)


def _spelling(character: str, text: str) -> str:
    return f"{{{_code(character)},{{{','.join(map(_code, text))}}}}}"


def _compositions(decomposed: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Two characters that normal form C makes one of."""
    found = []
    for each, _ in decomposed:
        parts = unicodedata.decomposition(each).split()
        if len(parts) == 2 and unicodedata.normalize("NFC", each) == each:
            found.append((*(int(part, 16) for part in parts), ord(each)))
    return ("{" + ",".join(map(hex, row)) + "}" for row in sorted(found))


def _list(kind: str, name: str, rows: Iterable[str]) -> str:
    """A list, whose rows are several to a line."""
    found = list(rows)
    lines = (",".join(found[start : start + 8]) for start in range(0, len(found), 8))
    element, sizes = kind.partition("[")[::2]
    whole = f"{element} {name}_rows[]{'[' + sizes if sizes else ''}"
    return (
        f"static const {whole} = {{\n"
        + ",\n".join(lines)
        + f"}};\nconst List<{kind}> {name} = {{{name}_rows, {len(found)}}};"
    )
