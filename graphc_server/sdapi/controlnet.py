"""`/controlnet/…`: what there is to steer pictures, and what preprocessors make of a picture.

Source: Mikubill/sd-webui-controlnet, scripts/api.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from PIL import Image
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from graphc_images import SettingError
from graphc_images.control_units import LOOKS
from graphc_images.hashes import short_hash
from graphc_images.pictures.hints import PREPROCESSORS, RESOLUTION, Preprocessor
from graphc_server.answers import Json
from graphc_server.errors import RequestError
from graphc_server.pictures import base64_of, decoded, encoded
from graphc_server.sdapi.painting import Served
from graphc_server.sdapi.units import LOOKING, module_of
from graphc_server.service import Service

router = APIRouter(prefix="/controlnet")
VERSION = 3
UNITS = 3
"""As many as A1111's extension has before somebody asks for more; a request may have ten."""

LONGEST = 2048
NONE = "None"
SLIDERS: Mapping[str, tuple[str, ...]] = {
    "canny": ("Low Threshold", "High Threshold"),
    "threshold": ("Binarization Threshold",),
    "blur_gaussian": ("Sigma",),
    "tile_resample": ("Down Sampling Rate",),
    "tile_colorfix": ("Variation",),
    "recolor_luminance": ("Gamma Correction",),
    "recolor_intensity": ("Gamma Correction",),
    "scribble_xdog": ("XDoG Threshold",),
}
"""What their two numbers are called."""

TYPES: Mapping[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "All": ((), "none", ()),
    "Canny": (("canny",), "canny", ("canny",)),
    "Depth": (("depth", "midas", "zoe", "leres"), "", ("depth",)),
    "NormalMap": (("normal", "bae", "dsine"), "", ("normal",)),
    "OpenPose": (("pose",), "", ("pose",)),
    "MLSD": (("mlsd",), "", ("mlsd",)),
    "Lineart": (("lineart", "line_art"), "", ("lineart",)),
    "SoftEdge": (("softedge", "hed", "pidi", "teed"), "", ("softedge", "hed")),
    "Scribble": (("scribble", "hed"), "scribble_xdog", ("scribble",)),
    "Segmentation": (("seg", "oneformer"), "", ("seg",)),
    "Shuffle": (("shuffle",), "shuffle", ("shuffle",)),
    "Tile": (("tile", "blur"), "tile_resample", ("tile", "blur")),
    "Inpaint": (("inpaint",), "inpaint_only", ("inpaint",)),
    "Recolor": (("recolor",), "recolor_luminance", ("recolor",)),
    "IP-Adapter": (("ip-adapter",), "ip-adapter-auto", ("ip-adapter", "ip_adapter")),
    "T2I-Adapter": ((), "none", ("t2i", "adapter")),
}
"""By type: words in the names of preprocessors, the usual one, words in the names of models; no words for all."""


@router.get("/version")
def version() -> Json:
    """The extension's whose protocol this is."""
    return Json({"version": VERSION})


@router.get("/settings")
def settings() -> Json:
    """How many units there are."""
    return Json({"control_net_unit_count": UNITS})


@router.get("/model_list")
def models(service: Served, update: Annotated[bool, Query()] = True) -> Json:
    """The ControlNets and adapters, with A1111's short hashes."""
    if update:
        service.models.refresh()
    return Json({"model_list": _models(service)})


@router.get("/module_list")
def modules(service: Served, alias_names: Annotated[bool, Query()] = False) -> Json:
    """The preprocessors, and which numbers they take."""
    names = _modules(service)
    shown = {name: _alias(name) if alias_names else name for name in names}
    return Json({"module_list": list(shown.values()), "module_detail": {shown[name]: _detail(name) for name in names}})


@router.get("/control_types")
def types(service: Served) -> Json:
    """Both by what they are about."""
    return Json({"control_types": {name: _type(service, *words) for name, words in TYPES.items()}})


def _models(service: Service) -> list[str]:
    return [f"{each.name} [{_hash(each.path)}]" for each in service.models.files("controlnet")]


def _hash(path: Path) -> str:
    try:
        return short_hash(path)
    except OSError:  # it is gone since
        return "0" * 8


def _modules(service: Service) -> list[str]:
    return [*PREPROCESSORS, *LOOKING[:1], *(each.name for each in service.models.files("preprocessor"))]


def _alias(name: str) -> str:
    others = PREPROCESSORS[name].others if name in PREPROCESSORS else ()
    return next((each for each in others if " " in each), name)


def _detail(name: str) -> dict[str, Any]:
    found = PREPROCESSORS.get(name, Preprocessor(lambda pixels, a, b, seed: pixels, scaled=name not in LOOKING))
    resolution = {"name": "Preprocessor Resolution", "value": RESOLUTION, "min": 64, "max": LONGEST}
    names = (*SLIDERS.get(name, ()), "", "")
    numbers = [
        {"name": label, "value": slider.usual, "min": slider.low, "max": slider.high}
        for label, slider in zip(names, (found.a, found.b), strict=False)
        if slider is not None
    ]
    return {
        "model_free": False,
        "sliders": [resolution if found.scaled else None, *numbers] if found.scaled or numbers else [],
    }


def _type(service: Service, words: tuple[str, ...], usual: str, of_models: tuple[str, ...]) -> dict[str, Any]:
    modules = [name for name in _modules(service) if not words or name == "none" or _has(name, words)]
    models = [name for name in _models(service) if not of_models or _has(name, of_models)]
    first = usual or next((name for name in modules if name != "none"), "none")
    some = models[0] if of_models and models else NONE
    return {"module_list": modules, "model_list": [NONE, *models], "default_option": first, "default_model": some}


def _has(name: str, words: tuple[str, ...]) -> bool:
    return any(word in name.lower() for word in words)


Pair = tuple[Image.Image, Image.Image | None]


class Detection(BaseModel):
    """Pictures for a preprocessor; -1 stands for its own numbers."""

    model_config = ConfigDict(allow_inf_nan=False)
    controlnet_module: str = "none"
    controlnet_input_images: list[str] = []
    controlnet_processor_res: int = -1
    controlnet_threshold_a: float = -1
    controlnet_threshold_b: float = -1
    controlnet_masks: list[str] = []
    low_vram: bool = False


@router.post("/detect")
async def detect(service: Served, body: Detection) -> Json:
    """What a preprocessor makes of pictures."""

    def read() -> tuple[str, list[Pair]]:
        try:
            module = module_of(body.controlnet_module, service.models)
        except SettingError:
            raise RequestError("Module not available") from None
        module = "none" if module == LOOKS else module  # the picture itself is what is looked at
        return module, _inputs(service, body, module)

    module, pictures = await run_in_threadpool(read)
    resolution = body.controlnet_processor_res if 64 <= body.controlnet_processor_res <= LONGEST else RESOLUTION
    first, second = body.controlnet_threshold_a, body.controlnet_threshold_b
    numbers = None if first < 0 else first, None if second < 0 else second

    def make() -> list[str]:
        hint = service.models.detectors.hint
        return [base64_of(encoded(hint(*pair, module, resolution, numbers))) for pair in pictures]

    return Json({"info": "Success", "images": await asyncio.wrap_future(service.painter.between(make))})


def _inputs(service: Service, body: Detection, module: str) -> list[Pair]:
    """The pictures and their masks, where some are wanted. Raises RequestError."""
    texts, masks = body.controlnet_input_images, body.controlnet_masks
    if not texts:
        raise RequestError("No image selected")
    if len(texts) > service.limits.pictures:
        raise RequestError(f"controlnet_input_images: the server allows {service.limits.pictures} pictures")
    masked = module in PREPROCESSORS and PREPROCESSORS[module].masked
    if masked and len(masks) != len(texts):
        raise RequestError(f"Preprocessor {module} requires `controlnet_masks` param.")
    found: list[Pair] = []
    for place, text in enumerate(texts):
        image = _opened(service, text, "controlnet_input_images")
        mask = _opened(service, masks[place], "controlnet_masks").convert("RGB").getchannel(0) if masked else None
        if mask is not None and mask.size != image.size:
            raise RequestError("controlnet_masks: a mask has another size than its image")
        found.append((image, mask))
    return found


def _opened(service: Service, text: str, name: str) -> Image.Image:
    return decoded(text, name, service.limits.pixels, service.setup.fetching.fetch)


class Pose(BaseModel):
    """People, as lists of points."""

    people: list[Any] = []
    canvas_width: int = 0
    canvas_height: int = 0


@router.post("/render_openpose_json")
def render(body: list[Pose]) -> Json:
    """Poses cannot be drawn; of none, A1111's extension says so too."""
    if body:
        raise RequestError("poses cannot be drawn: send the picture of one")
    return Json({"info": "No pose data detected."})
