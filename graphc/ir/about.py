"""What a model's file says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field, fields

from graphc.records import dataclass


@dataclass(frozen=True)
class About:
    """Who made a model and what it is, in the fields of an ONNX file; `custom_metadata_map` are its `metadata_props`.

    The names are those of onnxruntime's `ModelMetadata`.
    """

    producer_name: str = ""
    graph_name: str = ""
    graph_description: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text that `read` takes."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> About:
        """Raises ValueError for what was not written so."""
        try:
            found = json.loads(text)
        except RecursionError as error:
            raise ValueError("too deep") from error
        usual = {each.name: getattr(About(), each.name) for each in fields(About)}
        if not isinstance(found, dict) or found.keys() != usual.keys():
            raise ValueError("other fields")
        if any(type(found[name]) is not type(value) for name, value in usual.items()):
            raise ValueError("other types")
        custom = found["custom_metadata_map"]
        if not all(isinstance(value, str) for value in custom.values()) or not -(1 << 63) <= found["version"] < 1 << 63:
            raise ValueError("other values")
        return About(**found)
