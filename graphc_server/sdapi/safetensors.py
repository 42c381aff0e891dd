"""What the header of a safetensors file says, without reading more of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import graphc

LONGEST = 64 << 20


def header_of(path: Path) -> dict[str, Any]:
    """The header; nothing for another kind of file, or a damaged one."""
    if path.suffix not in (".safetensors", ".sft"):
        return {}
    try:
        with graphc.open_regular(path) as file:
            length = int.from_bytes(file.read(8), "little")
            found = json.loads(file.read(length), parse_constant=lambda name: None) if length <= LONGEST else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: each for name, each in found.items() if isinstance(each, dict)} if isinstance(found, dict) else {}
