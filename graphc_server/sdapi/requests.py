"""From a request of txt2img or img2img to an order, by the tables."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from graphc_images import ImageError, ModelError, SettingError, Settings
from graphc_images.describing import settings_of
from graphc_images.pictures.parameters import read_parameters
from graphc_images.prompts.extras import take_networks
from graphc_images.prompts.styles import Style, apply_styles, read_styles
from graphc_images.sampling import find_sampler
from graphc_images.settings import seed_after
from graphc_server.errors import RequestError
from graphc_server.orders import Look, Order, with_seeds
from graphc_server.pictures import decoded
from graphc_server.sdapi.fields import HIRES, IMG2IMG, TXT2IMG, Field, Given
from graphc_server.sdapi.modules import Chosen, modules_called
from graphc_server.sdapi.options import LABELS, LOOKS, PARTS, USUAL, checked, settings_of_options
from graphc_server.sdapi.scripts import settings_of_scripts
from graphc_server.sdapi.series import Place, Series, series_of
from graphc_server.series import Sheet
from graphc_server.service import Service

NAME_OF_TASK = re.compile(r"[A-Za-z0-9_()][A-Za-z0-9_().-]{0,99}")
NO_VAE = ("", "Automatic", "None", None)


class Body(BaseModel):
    """What every request of pictures is."""

    model_config = ConfigDict(allow_inf_nan=False, extra="ignore")


def body_of(name: str, fields: Sequence[Field]) -> type[Body]:
    """The class of such requests, for validation and for the OpenAPI description."""
    from pydantic import Field as Described

    described: dict[str, Any] = {
        each.name: (each.kind, Described(each.usual, description=each.says)) for each in fields
    }
    made: type[Body] = create_model(name, __base__=Body, **described)
    return made


Txt2Img = body_of("Txt2Img", TXT2IMG)
Img2Img = body_of("Img2Img", IMG2IMG)


@dataclass(frozen=True)
class Wanted:
    """A request that can be done: the order, the job's name if the client gave one, what is echoed, what stays of the options."""

    order: Order
    task: str | None
    echo: dict[str, Any]
    lasting: dict[str, Any]
    styles: list[str]
    send: bool


def options_of(service: Service) -> dict[str, Any]:
    """All options as they are now."""
    found = {**USUAL, **service.store.options()}
    if not found["sd_model_checkpoint"] and service.models.listed():
        found["sd_model_checkpoint"] = service.models.first().title
    return found


def wanted(service: Service, body: Body, fields: Sequence[Field]) -> Wanted:
    """The request as an order. Raises RequestError that names the field."""
    values = body.model_dump()
    check_text(values)
    infotext = read_parameters(values["infotext"] or "").complete()
    overridden = checked(values["override_settings"] or {})
    options = {**options_of(service), **_model_of(service, infotext.settings), **overridden}
    given = Given(
        values,
        lambda text, name: decoded(text, name, service.limits.pixels, service.setup.fetching.fetch),
        service.models,
        options,
    )
    sampler = str(values["sampler_name"] or values["sampler_index"] or "Euler")
    _check_sampler(sampler)
    said = settings_of(infotext) if values["infotext"] else {}
    found = _settings(fields, body.model_fields_set, given, said)
    found = {
        **settings_of_options(options, sampler),
        **found,
        **settings_of_scripts(values["alwayson_scripts"] or {}, given),
    }
    styles = _styles(service, values["styles"] or [])
    for name in ("prompt", "negative_prompt"):
        found[name] = apply_styles(found.get(name) or "", [getattr(style, name) for style in styles])
    if values["disable_extra_networks"]:
        found |= {name: take_networks(found.get(name) or "")[0] for name in ("prompt", "hires_prompt") if name in found}
    settings = _made(found, fields)
    vae, text = _modules(service, options)
    place = _place(service, options, fields is IMG2IMG, vae)
    series = _series(settings, values, given, place)
    kept = values["save_images"] and not values["do_not_save_samples"]
    sheet = series.sheet or (
        _grid(series) if options["return_grid"] and not values["do_not_save_grid"] and kept else None
    )
    order = Order(
        series.requests[0],
        place.model,
        vae,
        "jpg" if options["samples_format"] == "jpeg" else options["samples_format"],
        max(1, min(int(options["jpeg_quality"]), 100)),
        kept,
        bool(options["enable_pnginfo"]),
        look_of(options),
        tuple(series.requests[1:]),
        sheet,
        series.loops,
        series.enlarging,
        text=text,
        parts=tuple(part for name, part in PARTS.items() if options[name]),
        unsaid=tuple(label for name, label in LABELS.items() if not options[name]),
        files=tuple(series.files),
    )
    return Wanted(
        order,
        _task(values["force_task_id"]),
        _echo(values),
        {} if values["override_settings_restore_afterwards"] else overridden,
        [style.name for style in styles],
        values["send_images"],
    )


def _place(service: Service, options: Mapping[str, Any], of_pictures: bool, vae: str | None) -> Place:
    """What scripts may name."""

    def found(name: str) -> str:
        return _model(service, {"sd_model_checkpoint": name})

    def found_vae(name: str) -> str | None:
        return _modules(service, {"sd_vae": name})[0]

    upscalers = service.models.upscalers()
    return Place(of_pictures, upscalers, lambda: styles_of(service), _model(service, options), vae, found, found_vae)


def _series(settings: Settings, values: Mapping[str, Any], given: Given, place: Place) -> Series:
    """What a request makes: several, with grids, if it names a script, or has several pictures to begin with."""
    images = values.get("init_images") or []
    if values["script_name"]:
        if len(images) > 1:
            raise RequestError("init_images: a script begins with one picture")
        return series_of(values["script_name"], values["script_args"], settings, place)
    if len(images) <= 1:
        return Series([with_seeds(settings)])
    if len(images) > settings.batch_size:
        said = f"bad number of images passed: {len(images)}; expecting {settings.batch_size} or less"
        raise RequestError(f"init_images: {said} (batch_size)")
    pictures = [settings.image, *(given.picture(each, "init_images") for each in images[1:])]
    one = with_seeds(replace(settings, batch_size=1, batches=1))
    of_each = [replace(one, image=picture) for _ in range(settings.batches) for picture in pictures]
    return Series([replace(each, **_varied(each, number)) for number, each in enumerate(of_each)])


def _grid(series: Series) -> Sheet | None:
    """The grid of all pictures, as square as can be; none of a single one, and of scripts that have no grids (A1111)."""
    count = sum(each.batch_size * each.batches for each in series.requests)
    if count < 2 or series.loops > 1 or series.enlarging is not None:
        return None
    rows = round(math.sqrt(count))
    return Sheet(("",) * math.ceil(count / rows), ("",) * rows, legend=False)


def _varied(settings: Settings, place: int) -> dict[str, Any]:
    """The seed of a picture of a batch: with a variation, only that is another."""
    name = "subseed" if settings.subseed_strength else "seed"
    return {name: seed_after(getattr(settings, name), place)}


def look_of(options: Mapping[str, Any]) -> Look:
    """How pictures are shown while they are made."""
    every = int(options["show_progress_every_n_steps"]) if options["live_previews_enable"] else 0
    return Look(max(every, 0), LOOKS[options["show_progress_type"]], options["live_previews_image_format"])


def check_text(values: Any) -> None:
    """Raises RequestError for halves of characters, which JSON can have and nobody can write, and for what is not a number."""
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise RequestError("a text holds half of a character (a lone surrogate)") from None
    except ValueError:
        raise RequestError("a value is not a number (NaN or infinite)") from None


def _settings(fields: Sequence[Field], explicit: set[str], given: Given, said: Mapping[str, Any]) -> dict[str, Any]:
    """What is given counts first, then what the infotext says, then what is usual."""
    usual: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    for field in fields:
        into = asked if field.name in explicit else usual
        try:
            into |= field.settings(given[field.name], given)
        except ImageError as error:
            raise _named(error, field.name) from None
    return {**usual, **said, **asked}


def _named(error: ImageError, name: str) -> RequestError:
    status = error.status if isinstance(error, RequestError) else 422
    text = str(error)
    return RequestError(text if name in text or status == 404 else f"{name}: {text}", status)


def _made(found: Mapping[str, Any], fields: Sequence[Field]) -> Settings:
    """The settings; errors name the request's field."""
    try:
        return Settings.of(**found)
    except SettingError as error:
        setting, colon, rest = str(error).partition(":")
        for field in fields:
            if colon and setting in field.setting_names and field.name != setting:
                raise RequestError(f"{HIRES.get(setting, field.name)}: {rest.strip()}") from None
        raise RequestError(str(error)) from None


def _check_sampler(name: str) -> None:
    try:
        find_sampler(name, "a1111")
    except SettingError as error:
        raise RequestError(f"Sampler not found: {str(error)[:200]}", 400) from None


def _styles(service: Service, names: Sequence[str]) -> list[Style]:
    known = styles_of(service)
    for name in names:
        if name not in known:
            raise RequestError(
                f"styles: there is no style {name[:60]!r}; there is {', '.join(list(known)[:20]) or 'none'}"
            )
    return [known[name] for name in names]


def styles_of(service: Service) -> dict[str, Style]:
    """The saved styles, as they are in the file now."""
    places = [service.setup.styles] if service.setup.styles else [each / "styles.csv" for each in service.setup.models]
    return {name: style for place in places if Path(place).is_file() for name, style in read_styles(place).items()}


def _model_of(service: Service, labels: Mapping[str, str]) -> dict[str, Any]:
    """The model that an infotext names, if it is there."""
    for label in ("Model hash", "Model"):
        if labels.get(label):
            try:
                return {"sd_model_checkpoint": service.models.find(labels[label]).title}
            except ModelError:
                continue
    return {}


def _model(service: Service, options: Mapping[str, Any]) -> str:
    name = options["sd_model_checkpoint"]
    try:
        listed = service.models.find(str(name)) if name else service.models.first()
    except ModelError as error:
        raise RequestError(f"sd_model_checkpoint: {error}", 404) from None
    return f"{listed.file.name}{listed.file.path.suffix}"


def _modules(service: Service, options: Mapping[str, Any]) -> Chosen:
    """The autoencoder and the text encoders that options name. Raises RequestError."""
    given = options.get("forge_additional_modules") or []
    if not isinstance(given, list):
        raise RequestError("forge_additional_modules: it is a list of files")
    vae, text = modules_called(service.models, given, "forge_additional_modules")
    if options["sd_vae"] not in NO_VAE:
        own, _ = modules_called(service.models, [options["sd_vae"]], "sd_vae", ("vae",))
        if vae is not None and vae != own:
            raise RequestError(f"forge_additional_modules: one autoencoder can be given, and not {vae}, {own}")
        vae = own
    return vae, text


def _task(name: str | None) -> str | None:
    if name and not NAME_OF_TASK.fullmatch(name):
        raise RequestError("force_task_id: it has up to 100 letters, digits, and _ ( ) . -")
    return name or None


def _echo(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the client sent, as A1111 says it back."""
    echo = dict(values)
    if not echo.get("include_init_images"):
        echo |= {name: None for name in ("init_images", "mask") if name in echo}
    return echo
