"""`alwayson_scripts.controlnet`: sd-webui-controlnet's units as JSON has them, and Forge's.

Source: Mikubill/sd-webui-controlnet, internal_controlnet/args.py. Fields that are about its user interface have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from graphc_images import ModelError, SettingError
from graphc_images.control_units import CONTROL_MODES, HIRES_OPTIONS, LOOKS, ControlUnit
from graphc_images.pictures.hints import FIT_MODES, preprocessor_of
from graphc_server.errors import RequestError
from graphc_server.models import Models

MOST = 10
"""Units of a request."""

ALIASES = {
    "input_image": "image",
    "guidance": "guidance_end",
    "mask_image": "mask",
    "preprocessor": "module",
    "control_type": "union_control_type",
}
"""Old names, and Forge's."""

REFUSED = ("ipadapter_input", "batch_images", "effective_region_masks")
"""Fields that say what cannot be done, unless they are empty."""

FITS = {
    "Inner Fit (Scale to Fit)": "Crop and Resize",
    "Scale to Fit (Inner Fit)": "Crop and Resize",
    "Outer Fit (Shrink to Fit)": "Resize and Fill",
    "Envelope (Outer Fit)": "Resize and Fill",
}
SHOWS: Mapping[str, str | None] = {
    "unknown": None, "soft edge": "softedge", "scribble": "softedge", "hard edge": "canny", "lineart": "canny",
    "mlsd": "canny", "normal map": "normal", "normalmap": "normal",
}  # fmt: skip
"""The types of ControlNets for several kinds of pictures that are called otherwise here."""

LOOKING = (
    "ip-adapter-auto", "ip-adapter_clip_h", "ip-adapter_clip_g", "ip-adapter_clip_sd15", "ip-adapter_clip_sdxl",
    "ip-adapter_clip_sdxl_plus_vith", "clip_h", "clip_g",
)  # fmt: skip
"""Modules of IP-Adapters. Which of CLIP's encoders of pictures one reads, its file says."""

HASHED = re.compile(r" \[[0-9a-fA-F]{8}\]$")
Decode = Callable[[str, str], Image.Image]


def units_of(arguments: Sequence[Any], decode: Decode, models: Models) -> tuple[ControlUnit, ...]:
    """The units that are enabled. `decode` makes a picture of a text and the field's name. Raises RequestError that names the
    field."""
    given = [each for each in arguments if isinstance(each, dict) and each.get("enabled", True)]
    if any(not isinstance(each, dict | bool | None) for each in arguments):
        raise RequestError("alwayson_scripts.controlnet: a unit is an object")
    if len(given) > MOST:
        raise RequestError(f"alwayson_scripts.controlnet: the server allows {MOST} units")
    return tuple(_unit(each, f"controlnet.args[{place}]", decode, models) for place, each in enumerate(given))


def _unit(given: Mapping[str, Any], where: str, decode: Decode, models: Models) -> ControlUnit:
    values = {ALIASES.get(name, name): value for name, value in given.items() if value is not None}
    for name in REFUSED:
        if values.get(name):
            raise RequestError(f"{where}.{name}: it cannot be used")
    found: dict[str, Any] = {}
    for name, read in READ.items():
        if name in values:
            try:
                found[name] = read(values[name])
            except (TypeError, ValueError, OverflowError) as problem:
                raise RequestError(f"{where}.{name}: {problem}") from None
    if values.get("guessmode") and "control_mode" not in values:
        found["control_mode"] = CONTROL_MODES[2]
    found |= _pictures(values, where, decode)
    try:
        module = module_of(str(values.get("module") or "none"), models)
        model = control_of(str(values.get("model") or "None"), models)
        said = {name: value for name, value in found.items() if value is not None}
        return ControlUnit(model=model, module=module, **said)
    except (SettingError, ModelError) as problem:
        raise RequestError(f"{where}.{problem}") from None


def control_of(name: str, models: Models) -> str:
    """The name in the folders of a control that is called so, with or without its hash, in any case. Raises ModelError."""
    plain = HASHED.sub("", name)
    if plain.lower() == "none":
        raise ModelError("model: You have not selected any ControlNet Model.")
    try:
        return models.find_file("controlnet", plain).name
    except ModelError as problem:
        raise ModelError(f"model: {problem}") from None


def module_of(name: str, models: Models) -> str:
    """The preprocessor of a name: one that needs no file, or the ONNX file that is called so. Raises SettingError."""
    for each in models.files("preprocessor"):
        if name.lower() in (each.name.lower(), each.path.stem.lower(), each.path.name.lower()):
            return f"{each.name}{each.path.suffix}"
    if name.lower().endswith((".onnx", ".gguf")):
        raise SettingError(f"module: there is no file {name[:60]!r}")
    if name.lower() in LOOKING:
        return LOOKS
    try:
        return preprocessor_of(name)
    except SettingError as problem:
        raise SettingError(f"module: {problem}") from None


def _pictures(values: Mapping[str, Any], where: str, decode: Decode) -> dict[str, Image.Image]:
    """`image` may be a text, an object with a mask, or both in a list."""
    image, mask = values.get("image"), values.get("mask")
    if isinstance(image, list) and len(image) == 1 and isinstance(image[0], dict):
        image = image[0]
    if isinstance(image, list):
        image, mask = [*image, None, None][:2]
    if isinstance(image, dict):
        given = image
        image, mask = given.get("image"), given.get("mask") or mask
    texts = {"image": image, "mask": mask, "effective_region_mask": values.get("effective_region_mask")}
    found = {}
    for name, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise RequestError(f"{where}.{name}: a picture in base64, and not {type(text).__name__}")
        if text:
            picture = decode(text, f"{where}.{name}")
            found[name] = picture if name == "image" else picture.convert("RGB").getchannel(0)
    return found


def _chosen(choices: Sequence[str], others: Mapping[str, str] | None = None) -> Callable[[Any], str]:
    """One of some words, or its number."""

    def read(value: Any) -> str:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(choices):
            return choices[value]
        word = (others or {}).get(str(value), str(value))
        found = next((each for each in choices if each.lower() == word.lower()), None)
        if found is None:
            raise ValueError(f"{str(value)[:60]!r} is none of {', '.join(choices)}")
        return found

    return read


def _number(value: Any) -> float | None:
    """None for -1, which stands for the preprocessor's own."""
    return None if float(value) < 0 else float(value)


def _resolution(value: Any) -> int | None:
    """A1111's extension takes its own for what is out of range."""
    return int(value) if 64 <= int(value) <= 2048 else None


def _switch(value: Any) -> bool:
    if not isinstance(value, bool | int):
        raise ValueError(f"{str(value)[:60]!r} is neither true nor false")
    return bool(value)


def _weights(value: Any) -> tuple[float, ...] | None:
    if not isinstance(value, list):
        raise ValueError("it is a list of weights")
    return tuple(map(float, value)) or None


def _shown(value: Any) -> str | None:
    return SHOWS.get(str(value).lower(), str(value).lower())


READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("weight", "guidance_start", "guidance_end"), float),
    **dict.fromkeys(("threshold_a", "threshold_b"), _number),
    **dict.fromkeys(("pixel_perfect", "inpaint_crop_input_image", "save_detected_map"), _switch),
    "processor_res": _resolution,
    "resize_mode": _chosen(FIT_MODES, FITS),
    "control_mode": _chosen(CONTROL_MODES),
    "hr_option": _chosen(HIRES_OPTIONS),
    "advanced_weighting": _weights,
    "union_control_type": _shown,
}
"""Fields that are read as they are. Those that are in none of these tables are about memory or the user interface."""
