"""Token ids: known ones, and those of transformers' tokenizers made from our own tables."""

import base64
import gzip
import hashlib
import importlib
import json
import random
import re
import struct
import sys
import unicodedata
from functools import cache, reduce
from operator import xor
from pathlib import Path

import numpy as np
import pytest

from graphc_images.tokenizers import ClipTokenizer, QwenTokenizer, T5Tokenizer, tables
from graphc_images.tokenizers.clip import spellings
from graphc_images.tokenizers.pairs import BYTES
from graphc_images.tokenizers.qwen import SPECIAL_IDS, pairs_of
from graphc_images.tokenizers.tables import read_tables, text_of

EXAMPLES = Path(__file__).parents[2] / "examples"
CLIP_IDS = {
    "": [],
    "a photo of a cat": [320, 1125, 539, 320, 2368],
    "A Photo of a CAT!!": [320, 1125, 539, 320, 2368, 748],
    "(masterpiece:1.2), best quality, 1girl": [263, 12066, 281, 272, 269, 273, 2361, 949, 3027, 267, 272, 1611],
    "naïve café 日本 🐱": [1097, 35689, 563, 15304, 39121, 19277, 361, 22979],
    "don't it's I'll": [847, 713, 585, 568, 328, 1342],
    ",": [267],
    "supercalifragilisticexpialidocious": [1642, 2857, 13093, 2076, 5868, 26850, 835, 639, 38466],
    "a<|endoftext|>b": [320, 49407, 321],
}
T5_IDS = {
    "": [],
    "a photo of a cat": [3, 9, 1202, 13, 3, 9, 1712],
    "A Photo of a CAT!!": [71, 5810, 13, 3, 9, 3, 18911, 1603],
    "(masterpiece:1.2), best quality": [41, 7429, 8424, 10, 10917, 201, 200, 463],
    "  two   spaces\nnew line ": [192, 4856, 126, 689],
    "日本": [3, 2],
    "a <extra_id_5>b</s>": [3, 9, 32094, 3, 115, 1],
}
QWEN_IDS = {
    "": [],
    "a photo of a cat": [64, 6548, 315, 264, 8251],
    "<|im_start|>user\nI'LL 12<|im_end|>\n": [151644, 872, 198, 40, 6, 4086, 220, 16, 17, 151645, 198],
    "<think>\n\n</think>": [151667, 271, 151668],
    "  two   spaces\n\n new": [220, 1378, 256, 12621, 271, 501],
    "日本 🐱": [101059, 11162, 238, 109],
}
RANGES = [(0x20, 0x7F)] * 8 + [
    *[(0x00, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x780), (0x900, 0x1200), (0x2000, 0x2C00), (0x3000, 0x3400)],
    *[(0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFE), (0x10000, 0x11000), (0x1D400, 0x1D800), (0x1F300, 0x1F700)],
]
WORDS = [
    "'s",
    "'LL",
    "é",
    "e\u0301",
    "ﬁ",
    "ing",
    " the ",
    "  ",
    "\n",
    "\r\n",
    "</s>",
    "<|endoftext|>",
    "<extra_id_7>",
    " 12",
    "½",
    "Σ",
    "一",
    "'ſ",
    "\u00a0",
    "\u2028",
    "<think>",
    "<|im_start|>",
]


@cache
def clip():
    return ClipTokenizer()


@cache
def t5():
    return T5Tokenizer()


@cache
def qwen():
    return QwenTokenizer()


def random_text(rng):
    """Characters of every kind that every Unicode in use knows, and bits of text that tokenizers treat in a special way."""

    def character():
        while True:
            found = chr(rng.randrange(*rng.choice(RANGES)))
            if unicodedata.ucd_3_2_0.category(found) not in ("Cn", "Co"):
                return found

    words = 0.3 if rng.random() < 0.5 else 0
    return "".join(rng.choice(WORDS) if rng.random() < words else character() for _ in range(rng.randrange(14)))


@pytest.mark.parametrize("text", CLIP_IDS)
def test_clip_ids(text):
    assert clip().encode(text) == CLIP_IDS[text]


@pytest.mark.parametrize("text", T5_IDS)
def test_t5_ids(text):
    assert t5().encode(text) == T5_IDS[text]


@pytest.mark.parametrize("text", QWEN_IDS)
def test_qwen_ids(text):
    assert qwen().encode(text) == QWEN_IDS[text]


def transformers_clip():
    from transformers import CLIPTokenizer

    merges = text_of(read_tables("clip.npz")["merges"]).split("\n")
    letters = spellings()
    words = [*letters, *(letter + "</w>" for letter in letters), *(pair.replace(" ", "") for pair in merges)]
    vocabulary = {word: number for number, word in enumerate([*words, "<|startoftext|>", "<|endoftext|>"])}
    assert len(vocabulary) == 49408
    return CLIPTokenizer(vocab=vocabulary, merges=[tuple(pair.split(" ")) for pair in merges])


def test_clip_is_as_transformers():
    oracle = transformers_clip()
    rng = random.Random(1)
    for _ in range(4000):
        text = random_text(rng)
        assert [49406, *clip().encode(text), 49407] == oracle(text).input_ids, ascii(text)


def double_array(pairs):
    """sentencepiece's precompiled map of characters, with 256 places for each node: offsets have no low bits."""
    children = {b"": {}}
    for key in pairs:
        raw = key.encode()
        for size in range(len(raw)):
            children.setdefault(raw[:size], {})[raw[size]] = raw[: size + 1]
            children.setdefault(raw[: size + 1], {})
    base = {key: number << 8 | reduce(xor, key, 0) for number, key in enumerate(children)}
    units = np.zeros(len(children) << 8, np.uint32)
    results = b""
    leaves = {key.encode(): value for key, value in pairs.items()}
    units[0] = 0x200
    for key, below in children.items():
        for byte, child in below.items():
            place = base[key] ^ byte
            units[place] = (place ^ base[child]) >> 8 << 10 | 0x200 | (child in leaves) << 8 | byte
            if child in leaves:
                units[base[child]] = 0x80000000 | len(results)
                results += leaves[child].encode() + b"\0"
    return struct.pack("<I", units.nbytes) + units.tobytes() + results


def transformers_t5():
    from transformers import T5Tokenizer as Oracle

    table = read_tables("t5.npz")
    pieces = list(zip(text_of(table["pieces"]).split("\n"), table["scores"].tolist(), strict=True))
    parts = text_of(table["replacements"]).split("\0")
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    extra = [(f"<extra_id_{number}>", 0.0) for number in range(99, -1, -1)]
    return Oracle(
        vocab=[*special, *pieces, *extra],
        _spm_precompiled_charsmap=double_array(dict(zip(parts[::2], parts[1::2], strict=True))),
    )


def test_t5_is_as_transformers():
    oracle = transformers_t5()
    rng = random.Random(2)
    for _ in range(4000):
        text = random_text(rng)
        assert [*t5().encode(text), 1] == oracle(text).input_ids, ascii(text)


def transformers_qwen():
    from transformers import AddedToken, Qwen2Tokenizer

    words, pairs = spellings(), pairs_of(read_tables("qwen.npz")["pairs"]).tolist()
    for left, right in pairs:
        words.append(words[left] + words[right])
    vocabulary = {word: number for number, word in enumerate(words)}
    assert (len(vocabulary), BYTES[:2]) == (151643, [33, 34])
    found = Qwen2Tokenizer(vocab=vocabulary, merges=[(words[left], words[right]) for left, right in pairs])
    found.add_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL_IDS])
    return found


def test_qwen_is_as_transformers():
    oracle = transformers_qwen()
    rng = random.Random(3)
    for _ in range(4000):
        text = random_text(rng)
        assert qwen().encode(text) == oracle(text).input_ids, ascii(text)


@pytest.mark.parametrize("tokenizer", [clip, t5, qwen])
def test_long_words_and_broken_characters(tokenizer):
    long = tokenizer().encode("word" * 5000)
    assert len(long) < 20000
    assert tokenizer().encode("a\ud800b")  # half of a pair


def test_the_script_makes_the_tables(tmp_path):
    """From files like those that were published, made of the tables themselves."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        script = importlib.import_module("tokenizer_tables")
    finally:
        sys.path.remove(str(EXAMPLES))
    clip_table, t5_table = read_tables("clip.npz"), read_tables("t5.npz")
    merges = tmp_path / "merges.txt.gz"
    merges.write_bytes(gzip.compress(b"#version\n" + clip_table["merges"].tobytes() + b"\nnot used\n"))
    parts = text_of(t5_table["replacements"]).split("\0")
    charsmap = base64.b64encode(double_array(dict(zip(parts[::2], parts[1::2], strict=True)))).decode()
    special = [[name, 0.0] for name in ("<pad>", "</s>", "<unk>")]
    pieces = [
        list(pair) for pair in zip(text_of(t5_table["pieces"]).split("\n"), t5_table["scores"].tolist(), strict=True)
    ]
    normalizer = {"normalizers": [{"precompiled_charsmap": charsmap}]}
    tokenizer = json.dumps(
        {"model": {"vocab": [*special, *pieces, ["<extra_id_99>", 0.0]]}, "normalizer": normalizer}
    ).encode()
    plain, header = tmp_path / "tokenizer.json", tmp_path / "tables.hpp"
    plain.write_bytes(tokenizer)
    header.write_text(f"unsigned char t5_tokenizer_json_str[] = {{{', '.join(map(hex, tokenizer[:99]))}}};")
    made = script.clip_tables(merges)
    np.testing.assert_array_equal(made["merges"], clip_table["merges"])
    made = script.t5_tables(plain)
    assert all(np.array_equal(made[key], t5_table[key]) for key in t5_table)
    assert script.t5_json(header) == tokenizer[:99]
    tokens, ranks = [bytes([byte]) for byte in BYTES], tmp_path / "qwen.tiktoken"
    for left, right in pairs_of(read_tables("qwen.npz")["pairs"])[:3000].tolist():
        tokens.append(tokens[left] + tokens[right])
    lines = (base64.b64encode(token).decode() + f" {number}" for number, token in enumerate(tokens))
    ranks.write_text("\n".join(lines))
    np.testing.assert_array_equal(script.qwen_tables(ranks)["pairs"], read_tables("qwen.npz")["pairs"][:, :, :3000])


@pytest.mark.parametrize("name", ["clip.npz", "t5.npz", "qwen.npz"])
def test_tables_are_those_of_the_origin(name):
    """ORIGIN.md, which the script writes, has the sum of the bytes of the file beside it and of what is in it."""
    folder = tables.Path(tables.__file__).parent
    line = next(line for line in (folder / "ORIGIN.md").read_text().splitlines() if f"`{name}`" in line)
    arrays = read_tables(name)
    content = b"".join(arrays[key].tobytes() for key in sorted(arrays))
    sums = [hashlib.sha256(data).hexdigest() for data in ((folder / name).read_bytes(), content)]
    assert re.findall(r"[0-9a-f]{64}", line) == sums
    assert (folder / f"LICENSE.{name.partition('.')[0]}").stat().st_size > 1000
