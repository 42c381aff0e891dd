"""Pictures as files, with what they say of how they were made: A1111's text, ComfyUI's graphs.

PNG: text chunks. JPEG and WebP: EXIF, A1111's text as the user comment, ComfyUI's as make and model. GIF: a comment.
"""

from __future__ import annotations

import json
import logging
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin, UnidentifiedImageError

import graphc
from graphc_images.errors import ImageError
from graphc_images.pictures.stealth import read_stealth

LOG = logging.getLogger("graphc.images")

USER_COMMENT, EXIF_IFD = 0x9286, 0x8769
ORIENTATION = 0x0112
TURNS = dict(
    zip(
        range(2, 9),
        (
            *(Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180, Image.Transpose.FLIP_TOP_BOTTOM),
            *(
                Image.Transpose.TRANSPOSE,
                Image.Transpose.ROTATE_270,
                Image.Transpose.TRANSVERSE,
                Image.Transpose.ROTATE_90,
            ),
        ),
        strict=True,
    )
)
UNICODE, ASCII = b"UNICODE\0", b"ASCII\0\0\0"
COMFYUI_TAGS = {"prompt": 0x0110, "workflow": 0x010F}
LONGEST_EXIF = 65533
"""Bytes of it that a JPEG has room for."""
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


@dataclass(frozen=True)
class Notes:
    """What a picture says of itself: A1111's text (of what made it), and ComfyUI's graphs by name (prompt, workflow)."""

    parameters: str = ""
    graphs: Mapping[str, Any] = field(default_factory=dict)


def check_target(path: Path) -> None:
    """Raises ImageError if a picture cannot be written there: before it is made, which may take long."""
    if path.suffix.lower() not in FORMATS:
        raise ImageError(f"{path}: pictures are written as {', '.join(FORMATS)}")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise ImageError(f"{path}: the picture cannot be written: there is no folder {path.parent}")
    if path.is_dir():
        raise ImageError(f"{path}: the picture cannot be written: it is a folder")
    if not os.access(path if path.exists() and not path.is_file() else folder, os.W_OK):
        raise ImageError(f"{path}: the picture cannot be written: permission denied")


def save_picture(picture: Image.Image, path: Path, notes: Notes | None = None, *, quality: int = 80) -> None:
    """Write a picture with its notes; the kind of file is the name's ending. Quality is JPEG's and WebP's."""
    notes = notes or Notes()
    check_target(path)
    kind = FORMATS[path.suffix.lower()]
    options: dict[str, Any] = {"quality": quality}
    if kind == "PNG":
        options = {"pnginfo": _png_chunks(notes)}
    elif notes.parameters or notes.graphs:
        options["exif"] = _exif(notes) if kind == "WEBP" else _exif_of_jpeg(notes, path)
    if kind == "JPEG":
        picture = picture.convert("RGB")
    try:
        with graphc.replacing(path) as file:
            picture.save(file, kind, **options)
    except (OSError, ValueError) as problem:
        raise ImageError(f"{path}: the picture cannot be written: {problem}") from None


def _png_chunks(notes: Notes) -> PngImagePlugin.PngInfo:
    chunks = PngImagePlugin.PngInfo()
    for name, graph in notes.graphs.items():
        chunks.add_text(name, json.dumps(graph))
    if notes.parameters:
        chunks.add_text("parameters", notes.parameters)
    return chunks


def _exif(notes: Notes) -> Image.Exif:
    exif = Image.Exif()
    if notes.parameters:
        exif.get_ifd(EXIF_IFD)[USER_COMMENT] = UNICODE + notes.parameters.encode("utf-16-be", "replace")
    for name, graph in notes.graphs.items():
        if name in COMFYUI_TAGS:
            exif[COMFYUI_TAGS[name]] = f"{name}:{json.dumps(graph)}"
    return exif


def _exif_of_jpeg(notes: Notes, path: Path) -> Image.Exif:
    """What of the notes a JPEG has room for: it is not the picture that is lost. The log says what is."""
    shorter = {"": notes, "the graph": Notes(notes.parameters), "the text": Notes()}
    all_of_them = ((lost, _exif(left)) for lost, left in shorter.items())
    lost, exif = next(each for each in all_of_them if len(each[1].tobytes()) <= LONGEST_EXIF)
    if lost:
        LOG.warning("%s: %s of how it was made is too long for a JPEG, and is left out", path, lost)
    return exif


def open_picture(path: Path) -> tuple[Image.Image, Notes]:
    """A picture, turned as its EXIF says it is to be seen, and its notes."""
    try:
        with graphc.open_regular(path) as file:
            picture: Image.Image = Image.open(file)
            picture.load()
            return _upright(picture), read_notes(picture)
    except UnidentifiedImageError:
        raise ImageError(f"{path}: the picture cannot be read: it is of no kind that is known") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        raise ImageError(f"{path}: the picture cannot be read: {problem}") from None


def read_notes(picture: Image.Image) -> Notes:
    """What an opened picture says of itself, also if it is hidden in its lowest bits."""
    texts = {str(name): value for name, value in picture.info.items() if isinstance(value, str)}
    exif, comment = _read_exif(picture)
    graphs: dict[str, Any] = {}
    for name, tag in COMFYUI_TAGS.items():
        text = texts.get(name, str(exif.get(tag, "")).removeprefix(f"{name}:"))
        graph = _json(text)
        if isinstance(graph, dict):
            graphs[name] = graph
    parameters = texts.get("parameters") or _user_comment(comment) or _gif_comment(picture) or _novelai(texts)
    if not parameters and not graphs:
        hidden = read_stealth(picture)
        inside = _json(hidden)
        parameters = _novelai(inside) or hidden if isinstance(inside, dict) else hidden
    return Notes(parameters, graphs)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return None


def _read_exif(picture: Image.Image) -> tuple[Mapping[int, Any], Any]:
    """The tags and the user comment; none if the EXIF is damaged, for the picture is good without."""
    try:
        exif = picture.getexif()
        return dict(exif), exif.get_ifd(EXIF_IFD).get(USER_COMMENT, b"")
    except (SyntaxError, ValueError, TypeError, KeyError, OSError, struct.error):
        return {}, b""


def _upright(picture: Image.Image) -> Image.Image:
    """As cameras mean it."""
    turn = TURNS.get(_read_exif(picture)[0].get(ORIENTATION, 1))
    return picture if turn is None else picture.transpose(turn)


def _user_comment(raw: Any) -> str:
    """The EXIF comment, whichever of the three ways it says how it is written."""
    if not isinstance(raw, bytes):
        return str(raw).strip("\0")
    if raw.startswith(UNICODE):
        body = raw[len(UNICODE) :]
        little = body[1:2] == b"\0" and body[:1] != b"\0"
        return body.decode("utf-16-le" if little else "utf-16-be", "replace").strip("\0")
    return raw.removeprefix(ASCII).removeprefix(bytes(8)).decode("utf-8", "replace").strip("\0")


def _gif_comment(picture: Image.Image) -> str:
    comment = picture.info.get("comment", b"")
    return comment.decode("utf-8", "replace") if picture.format == "GIF" and isinstance(comment, bytes) else ""


def _novelai(texts: Mapping[str, Any]) -> str:
    """NovelAI's settings in A1111's form; its brackets {} are left as they are."""
    if texts.get("Software") != "NovelAI":
        return ""
    settings = _json(str(texts.get("Comment", "")))
    if not isinstance(settings, dict):
        return str(texts.get("Description", ""))
    sampler = {"k_euler_ancestral": "Euler a", "k_euler": "Euler", "k_dpmpp_2m": "DPM++ 2M"}.get(
        str(settings.get("sampler"))
    )
    pairs = {
        "Steps": settings.get("steps"),
        "Sampler": sampler or settings.get("sampler"),
        "CFG scale": settings.get("scale"),
        "Seed": settings.get("seed"),
        "Size": f"{settings['width']}x{settings['height']}" if {"width", "height"} <= settings.keys() else None,
        "Clip skip": 2,
        "ENSD": 31337,
    }
    line = ", ".join(f"{name}: {value}" for name, value in pairs.items() if value is not None)
    return f"{texts.get('Description', settings.get('prompt', ''))}\nNegative prompt: {settings.get('uc', '')}\n{line}"
