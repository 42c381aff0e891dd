"""What a job does, whichever protocol asked for it: settings, a model, and how the pictures are kept; as JSON for the database.

Pictures of the settings lie in files named by their content, so that a job can be repeated by another process.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from PIL import Image

import graphc
from graphc_images import Settings
from graphc_images.control_units import ControlUnit
from graphc_images.pictures.blending import SoftInpainting
from graphc_images.sampling.guidance import DynamicThreshold, Frequencies, Projected
from graphc_images.settings import LARGEST_SEED
from graphc_server.errors import RequestError, StoreError
from graphc_server.pictures import encoded
from graphc_server.series import Enlarging, Sheet

RECORDS: dict[str, Any] = {
    each.__name__: each for each in (SoftInpainting, Projected, DynamicThreshold, Frequencies, ControlUnit)
}
"""Settings that are records."""

PARTS = ("settings", "look", "others", "sheet", "enlarging")
"""What of an order is written in its own way."""


@dataclass(frozen=True)
class Look:
    """How pictures are shown while they are made: after every so many steps (0 for never), by what, in which format."""

    every: int = 10
    by: str = "rough"
    kind: str = "png"


@dataclass(frozen=True)
class Order:
    """A job's work. Seeds are numbers, so that the job makes the same pictures if it is repeated.

    `model` and `vae` are names in the folders. `kept` says whether the pictures stay when they have been handed over.
    """

    settings: Settings
    model: str
    vae: str | None = None
    kind: str = "png"
    quality: int = 80
    kept: bool = False
    notes: bool = True
    """True if the pictures say how they were made."""
    look: Look = field(default_factory=Look)
    others: tuple[Settings, ...] = ()
    """What is painted after `settings`."""
    sheet: Sheet | None = None
    loops: int = 1
    """Of so many requests, each begins with the picture of the one before."""
    enlarging: Enlarging | None = None
    """What is made of the pictures to begin with, if they are not painted as they are."""
    text: tuple[str, ...] = ()
    """Text encoders in place of the model's own, and those that are found for it: names in the folders."""

    files: tuple[tuple[str, str | None], ...] = ()
    """The model and the autoencoder of each request, where they are not the same for all."""

    parts: tuple[str, ...] = ()
    """What comes behind each picture of which a part was painted: its `mask`, what was `painted`."""

    unsaid: tuple[str, ...] = ()
    """Labels that the texts of pictures do not have."""

    def files_of(self, number: int) -> tuple[str, str | None]:
        """The model and the autoencoder of a request."""
        return self.files[number] if self.files else (self.model, self.vae)

    @property
    def requests(self) -> tuple[Settings, ...]:
        """All that is painted."""
        return (self.settings, *self.others)

    @property
    def batches(self) -> int:
        """Of all requests together."""
        return sum(each.batches for each in self.requests)


def with_seeds(settings: Settings) -> Settings:
    """The same with numbers for seeds that were left to chance."""
    drawn: dict[str, Any] = {
        name: secrets.randbelow(LARGEST_SEED - 1) for name in ("seed", "subseed") if getattr(settings, name) < 0
    }
    return replace(settings, **drawn)


def to_json(order: Order, folder: Path) -> dict[str, Any]:
    """The order, with its pictures in files of the folder. Raises StoreError if they cannot be written."""
    plain = {each.name: getattr(order, each.name) for each in fields(Order) if each.name not in PARTS}
    made = {**plain, "look": asdict(order.look), "settings": _given(order.settings, folder)}
    if order.others:
        made["others"] = [_given(each, folder) for each in order.others]
    if order.sheet is not None:
        made["sheet"] = asdict(order.sheet)
    if order.enlarging is not None:
        made["enlarging"] = asdict(order.enlarging)
    return made


def from_json(text: dict[str, Any], folder: Path) -> Order:
    """What `to_json` made. Raises RequestError if a picture is gone."""
    settings, *others = (
        Settings(**{name: _read(value, folder) for name, value in each.items()})
        for each in (text["settings"], *text.get("others", ()))
    )
    sheet = text.get("sheet")
    said: Sheet | None = None
    if sheet is not None:
        listed: dict[str, Any] = {name: tuple(sheet[name]) for name in ("columns", "rows", "pages")}
        said = Sheet(**{**sheet, **listed})
    plain: dict[str, Any] = {name: value for name, value in text.items() if name not in PARTS}
    plain |= {name: tuple(plain.get(name, ())) for name in ("text", "parts", "unsaid")}
    plain["files"] = tuple((model, vae) for model, vae in plain.get("files", ()))
    if "enlarging" in text:
        plain["enlarging"] = Enlarging(**text["enlarging"])
    return Order(settings, look=Look(**text["look"]), others=tuple(others), sheet=said, **plain)


def _given(settings: Settings, folder: Path) -> dict[str, Any]:
    """The settings that are not as usual."""
    return {
        each.name: _written(value, folder)
        for each in fields(Settings)
        if (value := getattr(settings, each.name)) is not each.default
        and not (each.default_factory is not MISSING and value == each.default_factory())
    }


def pictures_of(text: Any) -> Iterator[str]:
    """The names of the files that an order's JSON needs."""
    if isinstance(text, dict):
        if "!picture" in text:
            yield text["!picture"]
        text = list(text.values())
    if isinstance(text, list):
        for each in text:
            yield from pictures_of(each)


def _written(value: Any, folder: Path) -> Any:
    if isinstance(value, Image.Image):
        content = encoded(value)
        name = f"{hashlib.sha256(content).hexdigest()}.png"
        try:
            with graphc.replacing(folder / name) as unfinished:
                unfinished.write_bytes(content)
        except OSError as problem:
            raise StoreError(f"{folder}: a picture cannot be kept: {problem.strerror}") from None
        return {"!picture": name}
    if type(value).__name__ in RECORDS:
        items = {each.name: _written(getattr(value, each.name), folder) for each in fields(value) if each.init}
        return {"!record": type(value).__name__, "fields": items}
    if isinstance(value, tuple):
        return {"!tuple": [_written(each, folder) for each in value]}
    return dict(value) if isinstance(value, dict) else value


def _read(value: Any, folder: Path) -> Any:
    if not isinstance(value, dict):
        return value
    if "!picture" in value:
        try:
            picture = Image.open(folder / value["!picture"], formats=("PNG",))
            picture.load()
        except OSError as problem:
            raise RequestError(f"a picture of the request is gone: {problem}", 500) from None
        return picture
    if "!record" in value:
        return RECORDS[value["!record"]](**{name: _read(each, folder) for name, each in value["fields"].items()})
    return tuple(_read(each, folder) for each in value["!tuple"]) if "!tuple" in value else value
