"""What the header of a safetensors file says, without reading more of it."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import graphc

LENGTH = struct.Struct("<Q")
LONGEST = 64 << 20
ENDINGS = (".safetensors", ".sft")


def begin_of_tensors(file: BinaryIO) -> int:
    """Where the tensors begin in a file that is open at its start; its end if it is shorter than it says. It has read the length
    of the header then."""
    begin, size = file.read(LENGTH.size), os.fstat(file.fileno()).st_size
    length = LENGTH.unpack(begin)[0] if len(begin) == LENGTH.size else 0
    return int(min(LENGTH.size + length, size))


def header_of(path: Path) -> dict[str, Any]:
    """The header: the tensors by name, and `__metadata__`. Nothing for another kind of file, or a damaged one."""
    if path.suffix not in ENDINGS:
        return {}
    try:
        with graphc.open_regular(path) as file:
            length = begin_of_tensors(file) - LENGTH.size
            found = json.loads(file.read(length), parse_constant=lambda name: None) if 0 < length <= LONGEST else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: each for name, each in found.items() if isinstance(each, dict)} if isinstance(found, dict) else {}


def metadata_of(path: Path) -> dict[str, str]:
    """What it says besides the tensors."""
    return {str(name): str(value) for name, value in header_of(path).get("__metadata__", {}).items()}
