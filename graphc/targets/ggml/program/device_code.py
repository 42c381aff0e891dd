"""Code of a program's generated kernels, compiled before it is known where they run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from graphc.errors import EngineError
from graphc.records import dataclass

KEY = "graphc.kernels"
"""What an engine's metadata call the description of the code; the code for a target follows, behind a point."""


@dataclass(frozen=True)
class DeviceCode:
    """Code by target: PTX for sm_80. `text` is the checksum of the text that it was compiled from, and `fast` says whether the
    kernels multiply float16."""

    text: str
    fast: bool
    code: Mapping[str, str]

    def metadata(self) -> dict[str, str]:
        """What an engine says of it, and the code."""
        sums = {target: checksum(code) for target, code in self.code.items()}
        described = json.dumps({"text": self.text, "fast": self.fast, "code": sums})
        return {KEY: described} | {f"{KEY}.{target}": code for target, code in self.code.items()}


def read_device_code(metadata: Mapping[str, Any]) -> DeviceCode | None:
    """The code in an engine, if it has some. Raises EngineError if it is not what its checksums were made of; who made it, nobody
    knows."""
    if KEY not in metadata:
        return None
    try:
        described = json.loads(metadata[KEY])
        text, fast, sums = described["text"], described["fast"], dict(described["code"])
    except (ValueError, TypeError, KeyError, RecursionError):
        text = fast = sums = None
    if not isinstance(text, str) or not isinstance(fast, bool) or not isinstance(sums, dict):
        raise EngineError("it is damaged: it does not say what its kernels are")
    code = {target: str(metadata.get(f"{KEY}.{target}")) for target in sums}
    if any(checksum(each) != sums[target] for target, each in code.items()):
        raise EngineError("it is damaged: its kernels are not those that their checksums were made of")
    return DeviceCode(text, fast, code)


def checksum(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
