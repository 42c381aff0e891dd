"""What PEFT writes beside its adapters, and diffusers into the header of its files: alpha, rank, and how they make a scale."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

from graphc.errors import CheckpointError
from graphc.files import read_file
from graphc.weights.checkpoint import Source, in_folder
from graphc.weights.formats.safetensors import read_metadata
from graphc.weights.lora.of_weight import ALONE, Turning

FILE = "adapter_config.json"
KEY = "lora_adapter_metadata"

MOST_TERMS = 1000
"""Of a series, which are computed one after the other."""

LONGEST = 1 << 24
"""Bytes that settings may have."""

PREFIXES = {
    "denoiser": ("unet.", "transformer."), "text_encoder": ("text_encoder.",),
    "text_encoder_2": ("text_encoder_2.",), "text_encoder_3": ("text_encoder_3.",),
}  # fmt: skip
"""What a component's settings begin with in a header."""


@dataclass(frozen=True)
class ModuleSettings:
    """The scale of a module's change, None if it is not said; whether its weight has its inputs as rows; how it is turned."""

    scale: float | None = None
    transposed: bool = False
    turning: Turning = ALONE


@dataclass(frozen=True)
class Settings:
    """Settings by name; those of a component have its prefix, if the file has several."""

    values: Mapping[str, Any]

    def of(self, component: str, module: str) -> ModuleSettings:
        """The settings of a module. Raises CheckpointError if they are not valid."""
        prefix = next((each for each in PREFIXES.get(component, ()) if f"{each}r" in self.values), "")
        transposed = bool(self.values.get(prefix + "fan_in_fan_out"))
        rank = self._of_module(prefix + "r", prefix + "rank_pattern", module)
        alpha = self._of_module(prefix + "lora_alpha", prefix + "alpha_pattern", module)
        alpha = self._of_module(prefix + "alpha", prefix + "alpha_pattern", module) if alpha is None else alpha
        if rank is None or alpha is None:
            return ModuleSettings(transposed=transposed, turning=self._turning)
        if not all(isinstance(each, int | float) and isfinite(each) for each in (rank, alpha)) or rank <= 0:
            raise CheckpointError(f"its settings for {module} are not valid: rank {rank!r}, alpha {alpha!r}")
        scale = alpha / sqrt(rank) if self.values.get(prefix + "use_rslora") else alpha / rank
        return ModuleSettings(scale, transposed)

    @property
    def _turning(self) -> Turning:
        """PEFT's way of making rotations. Raises CheckpointError."""
        if self.values.get("peft_type") != "OFT":
            return ALONE
        terms = self.values.get("num_cayley_neumann_terms", 5) if self.values.get("use_cayley_neumann", True) else 0
        if not isinstance(terms, int) or not 0 <= terms <= MOST_TERMS:
            raise CheckpointError(f"its settings are not valid: num_cayley_neumann_terms {terms!r}")
        return Turning(4 if terms == 3 else terms, kernels_back=False)

    def _of_module(self, usual: str, pattern: str, module: str) -> Any:
        """A setting of one module: `pattern` has those that differ, by the module's name or how that ends."""
        patterns = self.values.get(pattern)
        for name, value in patterns.items() if isinstance(patterns, Mapping) else ():
            ending = name.removeprefix("^").removesuffix("$").replace("\\", "")
            if module == ending or module.endswith(f".{ending}"):
                return value
        return self.values.get(usual)


def read_settings(source: Source) -> Settings:
    """The settings that belong to a file of weights, or to that in a folder. Raises CheckpointError."""
    if isinstance(source, Mapping):
        return Settings({})
    path = Path(source)
    file = in_folder(path) if path.is_dir() else path
    beside = path / FILE if path.is_dir() else path.with_name(FILE)
    if beside.is_file() and (path.is_dir() or path.stem == "adapter_model"):
        try:
            return Settings(_parsed(beside, read_file(beside, LONGEST)))
        except OSError as error:
            raise CheckpointError(f"{beside}: {error.strerror or error}") from error
    return Settings(_parsed(path, read_metadata(file).get(KEY, "{}") if file else "{}"))


def _parsed(path: Path, text: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path}: its settings are not valid ({error})") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: its settings are not valid")
    return found
