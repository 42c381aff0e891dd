"""Reading safetensors: a header in JSON, then the tensors' bytes, which are mapped.

Source: the format's description at https://github.com/huggingface/safetensors. Files come from strangers: every size is
compared with the file before it is used, and tensors must follow one another and fill it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import CheckpointError
from graphc.files import read_file
from graphc.ir.foreign import elements, named
from graphc.weights.formats.tensors import Tensors, Unreadable, mapped, shaped

LONGEST_HEADER = 100_000_000
"""Bytes of a header, which the format's own reader takes too."""

DTYPES = {
    kind: named(name)
    for kind, name in {
        "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
        "I8": "int8", "BOOL": "bool", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
        "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    }.items()
}  # fmt: skip


def read_safetensors(path: Path) -> Tensors:
    """The tensors by name, as views of the mapped file. Raises CheckpointError if the file is damaged."""
    header, data = _header(mapped(path))
    header.pop("__metadata__", None)
    try:
        spans = {name: _span(each) for name, each in header.items()}
        if not all("shape" in each for each in header.values()):
            raise ValueError("a tensor without a shape")
    except (ValueError, TypeError, LookupError) as error:
        raise CheckpointError(f"it is damaged: its header is not valid ({error})") from error
    position = 0
    for name, (begin, end) in sorted(spans.items(), key=lambda item: item[1]):
        if begin != position or end > data.size:
            reason = "overlaps another, or leaves a gap" if begin != position else "goes past the end of the file"
            raise CheckpointError(f"it is damaged or cut off: tensor {name!r} {reason}")
        position = end
    if position != data.size:
        raise CheckpointError(f"it is damaged: {data.size - position} bytes at its end belong to no tensor")
    return {name: _tensor(name, header[name], data[slice(*span)]) for name, span in spans.items()}


def read_metadata(path: Path) -> dict[str, str]:
    """What its writer noted in the header of a file; nothing if there is no header. Raises CheckpointError if it is damaged."""
    raw = mapped(path)
    noted = _header(raw)[0].get("__metadata__") if raw[8:9].tobytes() == b"{" else None
    return {key: text for key, text in noted.items() if isinstance(text, str)} if isinstance(noted, dict) else {}


def read_index(path: Path) -> list[Path]:
    """The files that an index of shards names; they lie beside it. Raises CheckpointError if it is not valid."""
    try:
        files = sorted(set(json.loads(read_file(path, LONGEST_HEADER))["weight_map"].values()))
        bad = [name for name in files if Path(name).name != name or name in ("", ".", "..")]
    except OSError as error:
        raise CheckpointError(str(error.strerror or error).lower()) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"it is not an index of files of weights ({error})") from error
    if bad:
        raise CheckpointError(f"it names a file that is not beside it: {bad[0]!r}")
    return [path.parent / name for name in files]


def _header(raw: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """The header, and the bytes behind it."""
    if raw.size < 8:
        raise CheckpointError("it is damaged or cut off: it has no header")
    length = int(raw[:8].view("<u8")[0])
    if length > min(LONGEST_HEADER, raw.size - 8):
        raise CheckpointError(f"it is damaged or cut off: a header of {length} bytes in a file of {raw.size}")
    try:
        header = json.loads(raw[8 : 8 + length].tobytes(), object_pairs_hook=_once)
        if not isinstance(header, dict):
            raise ValueError("it has no names")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"it is damaged: its header is not valid ({error})") from error
    return header, raw[8 + length :]


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _span(declared: Any) -> tuple[int, int]:
    begin, end = declared["data_offsets"]
    if not all(type(each) is int for each in (begin, end)) or not 0 <= begin <= end:
        raise ValueError("offsets that are not numbers")
    if not isinstance(declared["dtype"], str):
        raise ValueError("a type without a name")
    return begin, end


def _tensor(name: str, declared: Any, raw: np.ndarray) -> np.ndarray | Unreadable:
    dtype = DTYPES.get(declared["dtype"])
    if dtype is None:
        return Unreadable(f"its type {declared['dtype']} is not supported")
    if raw.size % dtype.itemsize:
        raise CheckpointError(f"it is damaged: tensor {name!r} has {raw.size} bytes")
    try:
        return shaped(elements(raw, dtype), declared["shape"])
    except CheckpointError as error:
        raise CheckpointError(f"tensor {name!r}: {error}") from error
