"""Write the tables of `graphc_images/tokenizers` from where they were published, and say in ORIGIN.md where that was.

    pip download --no-deps open_clip_torch==3.3.0  # holds bpe_simple_vocab_16e6.txt.gz
    pip download --no-deps --no-binary stable_diffusion_cpp_python stable_diffusion_cpp_python==0.4.7  # holds clip_t5.hpp
    pip download --no-deps dashscope==2.0.2  # holds qwen.tiktoken
    python examples/tokenizer_tables.py bpe_simple_vocab_16e6.txt.gz clip_t5.hpp qwen.tiktoken

The second file may also be T5's `tokenizer.json` itself, as Hugging Face and ComfyUI have it. Nothing is written if the
tables are not those that the tests of `graphc_images` know.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import json
import re
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np

TABLES = Path(__file__).parents[1] / "graphc_images" / "tokenizers"
CLIP_MERGES = 48_894
T5_PIECES = 32_000
QWEN_TOKENS = 151_643
T5_LONGEST_KEY = (
    5  # bytes: T5's tokenizer looks up whole characters, and accents with what they stand on up to this size
)

CONTENTS = {  # SHA-256 of what the arrays hold, which no compressor changes
    "clip.npz": "f61f2adf497e6f5357c347aeb4646fabe82f341e946de5bdec5d2858e41bef4a",
    "t5.npz": "1a677c175a6d2e6534cfc8038b45fe4766f3f5bcb618bcf3bae77599d3d6f972",
    "qwen.npz": "eeb1645289d3fee63733b626f8e2a95e056d6423510469a87c14e40849d6b3d1",
}
ORIGINS = {
    "clip.npz": (
        "The merges of CLIP's byte pair encoding, in order. Made by OpenAI (https://github.com/openai/CLIP), MIT"
        " licence (`LICENSE.clip`). Taken from `open_clip/bpe_simple_vocab_16e6.txt.gz` in the package"
        " `open_clip_torch` 3.3.0 of PyPI."
    ),
    "t5.npz": (
        "The pieces of T5's vocabulary with their log probabilities, and the characters that it replaces before. Made"
        " by Google (https://huggingface.co/google/t5-v1_1-xxl), Apache licence 2.0 (`LICENSE.t5`). Taken from the"
        " `tokenizer.json` in `clip_t5.hpp` of the package `stable_diffusion_cpp_python` 0.4.7 of PyPI; ComfyUI has it"
        " too, in `comfy/text_encoders/t5_tokenizer`."
    ),
    "qwen.npz": (
        "The pairs of the byte pair encoding of Qwen, Qwen 2, 2.5 and 3, in order. Made by Alibaba Cloud"
        " (https://huggingface.co/Qwen/Qwen3-4B), Apache licence 2.0 (`LICENSE.qwen`). Taken from"
        " `dashscope/resources/qwen.tiktoken` in the package `dashscope` 2.0.2 of PyPI; they are the merges of Qwen3's"
        " `tokenizer.json`."
    ),
}


def clip_tables(path: Path) -> dict[str, np.ndarray]:
    """The lines "first second" of the merges, without the header and without what CLIP does not use."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()[1 : CLIP_MERGES + 1]
    return {"merges": text_array("\n".join(lines))}


def t5_tables(path: Path) -> dict[str, np.ndarray]:
    """Pieces 3 to 31,999 (before are special ones, after are <extra_id_…>), float32 scores, and pairs of characters."""
    tokenizer = json.loads(t5_json(path))
    pieces = tokenizer["model"]["vocab"][3:T5_PIECES]
    replacements = replaced_characters(
        base64.b64decode(tokenizer["normalizer"]["normalizers"][0]["precompiled_charsmap"])
    )
    return {
        "pieces": text_array("\n".join(piece for piece, _ in pieces)),
        "scores": np.array([score for _, score in pieces], np.float32),
        "replacements": text_array("\0".join(part for pair in sorted(replacements.items()) for part in pair)),
    }


def qwen_tables(path: Path) -> dict[str, np.ndarray]:
    """Of each token but the bytes the ids of the two that it is made of, as planes of bytes [3, 2, tokens].

    The file has tokens in the order in which they were learned, so the last two pieces of one are found by merging its bytes
    with what was learned before.
    """
    lines = [line.split() for line in path.read_bytes().splitlines()][:QWEN_TOKENS]
    id_of_token = {base64.b64decode(token): int(number) for token, number in lines}

    def parts(token: bytes) -> list[int]:
        pieces = [token[place : place + 1] for place in range(len(token))]
        while len(pieces) > 2:
            joined = [id_of_token.get(left + right, QWEN_TOKENS) for left, right in pairwise(pieces)]
            place = joined.index(min(joined))
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return [id_of_token[piece] for piece in pieces]

    pairs = np.array([parts(token) for token in list(id_of_token)[256:]])
    return {"pairs": np.stack([pairs.T >> shift & 0xFF for shift in (0, 8, 16)]).astype(np.uint8)}


def t5_json(path: Path) -> bytes:
    """The file itself, or the bytes that a C++ header lists as `t5_tokenizer_json_str`."""
    content = path.read_bytes()
    listed = re.search(rb"t5_tokenizer_json_str\[\]\s*=\s*\{([^}]*)\}", content)
    return bytes(int(number, 0) for number in listed[1].replace(b",", b" ").split()) if listed else content


def replaced_characters(charsmap: bytes) -> dict[str, str]:
    """What sentencepiece's double array (darts-clone's format) maps to what, where a shorter key does not come before."""
    (size,) = struct.unpack_from("<I", charsmap)
    units, results = struct.unpack_from(f"<{size // 4}I", charsmap, 4), charsmap[4 + size :]

    def children(unit: int) -> int:
        return (unit >> 10) << ((unit & 0x200) >> 6)

    found: dict[str, str] = {}
    open_nodes = [(children(units[0]), b"")]
    while open_nodes:
        node, prefix = open_nodes.pop()
        for byte in range(1, 256):
            place = node ^ byte
            if place >= len(units) or units[place] & 0x800000FF != byte:
                continue
            key, below = prefix + bytes([byte]), place ^ children(units[place])
            if units[place] >> 8 & 1:
                start = units[below] & 0x7FFFFFFF
                found[key.decode()] = results[start : results.index(0, start)].decode()
            elif len(key) < T5_LONGEST_KEY:
                open_nodes.append((below, key))
    return found


def text_array(text: str) -> np.ndarray:
    """UTF-8, as bytes of an array."""
    return np.frombuffer(text.encode(), np.uint8)


def main() -> None:
    """Write the tables and ORIGIN.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path, help="bpe_simple_vocab_16e6.txt.gz")
    parser.add_argument("t5", type=Path, help="clip_t5.hpp or tokenizer.json")
    parser.add_argument("qwen", type=Path, help="qwen.tiktoken")
    parser.add_argument("-o", "--output", type=Path, default=TABLES)
    arguments = parser.parse_args()
    lines = ["# Where the tables come from", "", "Written by `examples/tokenizer_tables.py`.", ""]
    made = {
        "clip.npz": clip_tables(arguments.clip),
        "t5.npz": t5_tables(arguments.t5),
        "qwen.npz": qwen_tables(arguments.qwen),
    }
    for name, tables in made.items():
        content = hashlib.sha256(b"".join(tables[key].tobytes() for key in sorted(tables))).hexdigest()
        if content != CONTENTS[name]:
            parser.error(f"the tables for {name} are others than before: SHA-256 {content}, not {CONTENTS[name]}")
        np.savez_compressed(arguments.output / name, **tables)
        file = hashlib.sha256((arguments.output / name).read_bytes()).hexdigest()
        lines += [f"- `{name}`: {ORIGINS[name]} SHA-256 of the file {file}, of its content {content}."]
    (arguments.output / "ORIGIN.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
