"""What the page, or a script, asks for: settings by graphc's own names, and the order that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from PIL import Image, ImageChops
from pydantic import Field, create_model

from graphc_images import ModelError, SettingError, Settings
from graphc_images.models import Architecture
from graphc_images.pictures.outpaint import Margins, extend_edges, noise_like, pad_picture
from graphc_images.resolving import resolved, unit_of
from graphc_server.errors import RequestError
from graphc_server.models import Listed
from graphc_server.orders import Look, Order, with_seeds
from graphc_server.own.controls import controls_of
from graphc_server.own.parameters import BY_NAME, PARAMETERS, RECORDS
from graphc_server.own.strict import Strict
from graphc_server.pictures import decoded
from graphc_server.sdapi.requests import check_text, options_of
from graphc_server.service import Service

Side = Annotated[int, Field(ge=0, le=4096)]


if TYPE_CHECKING:
    Values = Strict
else:
    Values = create_model(
        "Values",
        __base__=Strict,
        **{each.name: (each.type | None, Field(None, description=each.says)) for each in PARAMETERS},
    )


class Previews(Strict):
    """How pictures are shown while they are made: after every so many steps (0 for never), by a matrix (`rough`), by the tiny
    autoencoder where there is one (`tiny`), or by the model's own (`full`)."""

    every: Annotated[int, Field(ge=0, le=1000)] = 1
    by: Literal["rough", "tiny", "full"] = "rough"


class Outpaint(Strict):
    """Pixels that are added at each side of `image`, and what they begin with: the picture's edges, or noise like it."""

    left: Side = 0
    top: Side = 0
    right: Side = 0
    bottom: Side = 0
    fill: Literal["edges", "noise"] = "edges"


class Asked(Strict):
    """Pictures: `settings` are those of `/graphc/v1/parameters`; what is not given is what the model is usually used with. `kept`
    ones stay in the gallery."""

    model: str = ""
    vae: str | None = None
    settings: Values = Values()
    outpaint: Outpaint | None = None
    preview: Previews = Previews()
    format: Literal["png", "jpg", "webp"] = "png"
    quality: Annotated[int, Field(ge=1, le=100)] = 90
    kept: bool = True


def model_of(service: Service, name: str) -> Listed:
    """The model of this name, or the one that is selected. Raises RequestError if there is none."""
    chosen = name or options_of(service)["sd_model_checkpoint"]
    try:
        return service.models.find(chosen) if chosen else service.models.first()
    except ModelError as problem:
        raise RequestError(f"model: {problem}", 404) from None


def order_of(service: Service, asked: Asked) -> Order:
    """The order. Raises RequestError or SettingError that names the setting."""
    check_text(asked.model_dump())
    listed = model_of(service, asked.model)
    architecture = service.models.architecture(listed)
    found = settings_of(service, asked.settings.model_dump(exclude_unset=True, exclude_none=True), architecture)
    if asked.outpaint is not None:
        found |= outpainted(found, asked.outpaint, unit_of(architecture), service.limits.pixels)
    settings = with_seeds(Settings.of(**found))
    resolved(settings, architecture)
    if asked.vae and asked.vae not in {each.name for each in service.models.files("vae")}:
        raise RequestError(f"vae: there is no autoencoder {asked.vae[:60]!r}", 404)
    name = f"{listed.file.name}{listed.file.path.suffix}"
    look = Look(asked.preview.every, asked.preview.by, "webp")
    return Order(settings, name, asked.vae or None, asked.format, asked.quality, asked.kept, look=look)


def settings_of(service: Service, given: Mapping[str, Any], architecture: Architecture) -> dict[str, Any]:
    """Keywords of `Settings`. Raises RequestError for a parameter that the model does not have, or that cannot be read."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        parameter = BY_NAME[name]
        if not parameter.has(architecture):
            raise RequestError(f"{name}: {architecture.name} has no such parameter")
        found[name] = _read(service, name, parameter.kind, value)
    names = {each.file.name for each in service.models.listed()}
    for name in ("refiner", "hires_checkpoint"):
        if name in found and found[name] not in names:
            raise RequestError(f"{name}: there is no model {found[name][:60]!r}", 404)
    return found


def _read(service: Service, name: str, kind: str, value: Any) -> Any:
    if kind == "picture":
        picture = decoded(value, name, service.limits.pixels, service.setup.fetching.fetch)
        return picture.convert("L" if name == "mask" else "RGB")
    if kind == "pictures":
        if len(value) > service.limits.pictures:
            raise RequestError(f"{name}: the server allows {service.limits.pictures} pictures")
        return tuple(_read(service, name, "picture", each) for each in value)
    if kind == "controls":
        return controls_of(service, value)
    if kind == "record":
        usual = RECORDS[name]()
        try:
            return replace(usual, **{part: type(getattr(usual, part))(each) for part, each in value.items()})
        except (AttributeError, TypeError, ValueError, OverflowError) as problem:
            raise RequestError(f"{name}: {problem}") from None
    return value


def outpainted(found: Mapping[str, Any], asked: Outpaint, unit: int, pixels: int) -> dict[str, Any]:
    """The picture with room around it, the mask of what is painted, and its size. Raises RequestError."""
    image = found.get("image")
    if image is None:
        raise RequestError("outpaint: there is no image that it belongs to")
    margins = Margins(asked.left, asked.top, asked.right, asked.bottom)
    width, height = image.width + asked.left + asked.right, image.height + asked.top + asked.bottom
    if width * height > pixels:
        raise RequestError(f"outpaint: {width} x {height} pixels are asked for, and the server allows {pixels}")
    _, mask = pad_picture(image, margins, feather=min(image.size) // 16)
    larger = extend_edges(image, margins)
    if asked.fill == "noise" and any(margins):
        try:
            larger = noise_like(larger, mask)
        except SettingError as problem:
            raise RequestError(f"outpaint: {problem}") from None
    if "mask" in found:
        own = Image.new("L", mask.size)
        own.paste(found["mask"].resize(image.size), margins[:2])
        mask = ImageChops.lighter(mask, own)
    return {"image": larger, "mask": mask, "width": width // unit * unit, "height": height // unit * unit}
