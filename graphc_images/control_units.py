"""What steers a picture: a record for each ControlNet or adapter, with sd-webui-controlnet's names, and its text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.hashes import short_hash
from graphc_images.models.controls import UNION
from graphc_images.pictures.hints import FIT_MODES, FitMode

ControlMode = Literal["Balanced", "My prompt is more important", "ControlNet is more important"]
CONTROL_MODES: tuple[ControlMode, ...] = (
    "Balanced",
    "My prompt is more important",
    "ControlNet is more important",
)
HiresOption = Literal["Both", "Low res only", "High res only"]
HIRES_OPTIONS: tuple[HiresOption, ...] = ("Both", "Low res only", "High res only")
LOOKS = "ip-adapter"
"""The module of what looks at the picture itself."""


@dataclass(frozen=True)
class ControlUnit:
    """A control and its picture. Raises SettingError that names what a field cannot be.

    `model` is a file, or a name in the folders of models; `module` the preprocessor: a name of `pictures/hints.py`, an ONNX file,
    or `LOOKS` for IP-Adapters, which look at the picture itself. Without an `image`, the one that painting begins with is
    followed. `mask` is white where an inpainting module has something made up. `processor_res` is the preprocessor's resolution;
    `pixel_perfect` finds one that needs no scaling. `guidance_start` and `guidance_end` are shares of the steps.
    `effective_region_mask` is white where the control counts. `union_control_type` says what the picture shows, to ControlNets
    that tell that apart; else the module says it. `advanced_weighting` are weights for each residual in the place of `weight`.
    Where a part of a picture is painted alone, `inpaint_crop_input_image` has that part of the image followed. With
    `save_detected_map`, what the preprocessor made is handed out beside the pictures. `clip_vision` is the file of CLIP's encoder
    of pictures that an IP-Adapter reads, where it is not in the folders of models.
    """

    model: str | os.PathLike[str] = ""
    image: Image.Image | None = None
    module: str = "none"
    weight: float = 1.0
    resize_mode: FitMode = "Crop and Resize"
    processor_res: int | None = None
    threshold_a: float | None = None
    threshold_b: float | None = None
    guidance_start: float = 0.0
    guidance_end: float = 1.0
    pixel_perfect: bool = False
    control_mode: ControlMode = "Balanced"
    hr_option: HiresOption = "Both"
    mask: Image.Image | None = None
    effective_region_mask: Image.Image | None = None
    union_control_type: str | None = None
    advanced_weighting: tuple[float, ...] = field(default=())
    inpaint_crop_input_image: bool = True
    save_detected_map: bool = True
    clip_vision: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise SettingError(f"{name}: {getattr(self, name)!r} is none of {', '.join(map(str, choices))}")
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and low <= value <= high):
                raise SettingError(f"{name}: {value!r} is not a number from {low} to {high}")
        if self.guidance_start > self.guidance_end:
            raise SettingError(f"guidance_start: {self.guidance_start:g} is above guidance_end, {self.guidance_end:g}")


CHOICES: dict[str, tuple[Any, ...]] = {
    "resize_mode": FIT_MODES,
    "control_mode": CONTROL_MODES,
    "hr_option": HIRES_OPTIONS,
    **dict.fromkeys(("pixel_perfect", "inpaint_crop_input_image", "save_detected_map"), (True, False)),
    "union_control_type": (None, *UNION),
}
RANGES: dict[str, tuple[float, float]] = {
    "weight": (-10, 10),
    "processor_res": (64, 4096),
    "guidance_start": (0, 1),
    "guidance_end": (0, 1),
}

TITLES = (
    "module", "model", "weight", "resize_mode", "processor_res", "threshold_a", "threshold_b", "guidance_start", "guidance_end",
    "pixel_perfect", "control_mode", "hr_option", "union_control_type",
)  # fmt: skip
"""What a picture's text says of a unit, in this order."""

READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("weight", "threshold_a", "threshold_b", "guidance_start", "guidance_end"), float),
    "processor_res": int,
    **dict.fromkeys(
        ("pixel_perfect", "inpaint_crop_input_image", "save_detected_map"),
        lambda text: {"true": True, "on": True, "false": False, "off": False}[text.lower()],
    ),
    "advanced_weighting": lambda text: tuple(map(float, text.split())),
    "union_control_type": str.lower,
}

SHORT = {"preprocessor": "module", "start": "guidance_start", "end": "guidance_end", "resolution": "processor_res"}
"""Names that people also use."""

PICTURES = ("image", "mask", "effective_region_mask")


def unit_of(text: str, picture: Callable[[Path], Image.Image]) -> ControlUnit:
    """A unit as it is typed: its file, and then fields as name=value, with commas between; `picture` opens one.

    Raises SettingError that names the field, and what opening a picture raises.
    """
    model, *rest = (part.strip() for part in text.split(","))
    values: dict[str, Any] = {"model": model}
    known = {each.name for each in fields(ControlUnit)}
    for part in rest:
        typed, sign, value = (each.strip() for each in part.partition("="))
        name = SHORT.get(typed.lower().replace("-", "_"), typed.lower().replace("-", "_"))
        if not sign or name not in known:
            raise SettingError(f"{part!r}: a control has NAME=VALUE, of {', '.join(sorted(known))}")
        if name in PICTURES:
            values[name] = picture(Path(value))
            continue
        try:
            values[name] = READ.get(name, str)(value)
        except (ValueError, KeyError):
            raise SettingError(f"{part!r} cannot be read") from None
    return ControlUnit(**values)


HASHED = re.compile(r" \[[0-9a-fA-F]{8}\]$")


def written(unit: ControlUnit) -> str:
    """A unit as sd-webui-controlnet writes it: `Module: canny, Model: control_canny [12345678], Weight: 1.0, …`."""
    own = {name: getattr(unit, name) for name in TITLES}
    model = Path(unit.model)
    own["model"] = f"{model.stem} [{short_hash(model)}]" if model.is_file() else str(unit.model)
    own["module"] = Path(unit.module).name
    shown = {name: value for name, value in own.items() if value is not None}
    return ", ".join(f"{_title(name)}: {str(value).replace(',', ' ')}" for name, value in shown.items())


def read(text: str) -> dict[str, Any]:
    """The fields of such a text; what is not known in it is left out. Raises SettingError for what cannot be read."""
    found: dict[str, Any] = {}
    known = {_title(each.name): each.name for each in fields(ControlUnit)}
    for pair in text.split(","):
        title, colon, value = pair.strip().partition(":")
        name = known.get(" ".join(word.capitalize() for word in title.split()))
        if not colon:
            raise SettingError(f"{pair.strip()!r}: a control's settings are NAME: VALUE, such as Guidance End: 0.5")
        if name not in TITLES or value.strip() == "-1":
            continue
        try:
            found[name] = READ.get(name, str)(value.strip())
        except (ValueError, KeyError):
            raise SettingError(f"{title}: {value.strip()!r} cannot be read") from None
    if "model" in found:
        found["model"] = HASHED.sub("", found["model"])
    return found


def _title(name: str) -> str:
    return " ".join(word.capitalize() for word in name.split("_"))
