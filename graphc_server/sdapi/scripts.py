"""`alwayson_scripts`: those of A1111's that change settings, by their titles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc_images.pictures.blending import SoftInpainting
from graphc_images.sampling.guidance import FreeU
from graphc_server.errors import RequestError
from graphc_server.sdapi.fields import Given, refined
from graphc_server.sdapi.units import units_of

Settings = dict[str, Any]
Arguments = Sequence[Any]


def _soft_inpainting(arguments: Arguments, given: Given) -> Settings:
    if not (arguments and arguments[0]):
        return {}
    names = SoftInpainting.__dataclass_fields__
    return {"soft_inpainting": SoftInpainting(**dict(zip(names, map(float, arguments[1:]), strict=False)))}


def _seed(arguments: Arguments, given: Given) -> Settings:
    if not arguments:
        return {}
    seed, extra, subseed, strength, width, height = [*arguments, *(-1, False, -1, 0, 0, 0)[len(arguments) :]][:6]
    found: Settings = {"seed": int(seed)}
    if extra:
        found |= {"subseed": int(subseed), "subseed_strength": float(strength)}
        if int(width) > 0 and int(height) > 0:
            found["seed_resize_from"] = (int(width), int(height))
    return found


def _sampler(arguments: Arguments, given: Given) -> Settings:
    names = ("steps", "sampler", "scheduler")
    return {name: value for name, value in zip(names, arguments, strict=False) if value is not None}


def _refiner(arguments: Arguments, given: Given) -> Settings:
    enabled, name, share = [*arguments, *(False, "", 0.8)[len(arguments) :]][:3]
    return refined(name, share, given) if enabled else {}


def _controlnet(arguments: Arguments, given: Given) -> Settings:
    units = units_of(arguments, given.picture, given.models)
    return {"controls": units} if units else {}


def _free_u(arguments: Arguments, given: Given) -> Settings:
    if not (arguments and arguments[0]):
        return {}
    usual = [value for _, value in ARGUMENTS["freeu integrated"]]
    b1, b2, s1, s2 = map(float, [*arguments, *usual[len(arguments) :]][1:5])
    return {"free_u": FreeU(b1, b2, s1, s2)}


SCRIPTS: Mapping[str, Callable[[Arguments, Given], Settings]] = {
    "soft inpainting": _soft_inpainting,
    "seed": _seed,
    "sampler": _sampler,
    "refiner": _refiner,
    "controlnet": _controlnet,
    "freeu integrated": _free_u,
}

ARGUMENTS: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "soft inpainting": (
        ("Soft inpainting", False),
        ("Schedule bias", 1),
        ("Preservation strength", 0.5),
        ("Transition contrast boost", 4),
        ("Mask influence", 0),
        ("Difference threshold", 0.5),
        ("Difference contrast", 2),
    ),
    "seed": (
        *(("Seed", -1), ("Extra", False), ("Variation seed", -1), ("Variation strength", 0.0)),
        *(("Resize seed from width", 0), ("Resize seed from height", 0)),
    ),
    "sampler": (("Sampling steps", 20), ("Sampling method", "DPM++ 2M"), ("Schedule type", "Automatic")),
    "refiner": (("Refiner", False), ("Checkpoint", ""), ("Switch at", 0.8)),
    "controlnet": (),
    "freeu integrated": (("Enabled", False), ("B1", 1.01), ("B2", 1.02), ("S1", 0.99), ("S2", 0.95)),
}
"""What each takes, in order, with its usual value: for script-info."""


def settings_of_scripts(scripts: Mapping[str, Any], given: Given) -> Settings:
    """What the scripts mean for settings. Raises RequestError that names the script."""
    found: Settings = {}
    for name, content in scripts.items():
        read = SCRIPTS.get(name.lower())
        if read is None:
            raise RequestError(f"always on script {name[:60]} not found")
        arguments = content.get("args", []) if isinstance(content, dict) else None
        if not isinstance(arguments, list):
            raise RequestError(f"alwayson_scripts.{name}: it is an object with a list args")
        try:
            found |= read(arguments, given)
        except (ValueError, TypeError, AttributeError, OverflowError) as problem:
            raise RequestError(f"alwayson_scripts.{name}: {problem}") from None
    return found
