"""Nodes of pictures [batch, height, width, 3], 0 to 1: read, written, at another size.

Source: ComfyUI's nodes.py, comfy_extras/nodes_images.py, nodes_post_processing.py, nodes_upscale_model.py, nodes_canny.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps, ImageSequence

from graphc_images import SettingError
from graphc_images.from_files import Stamp, stamp
from graphc_images.models.memory import TooLarge
from graphc_images.pictures.files import Notes, save_picture
from graphc_images.pictures.graphs import parameters_of_graph
from graphc_images.pictures.masks import bilinear
from graphc_images.pictures.outpaint import Margins, margin_mask
from graphc_images.pictures.parameters import write_parameters
from graphc_images.pictures.tiles import run_tiled
from graphc_images.upscalers.upscaler import Upscaler
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.library import Library
from graphc_server.comfyui.pictures import CROPS, METHODS, from_picture, scaled, to_picture
from graphc_server.comfyui.table import BATCH, Input, choice, link, node, number, prompt, side, switch, text, whole
from graphc_server.comfyui.values import Shown
from graphc_server.errors import RequestError
from graphc_server.pictures import encoded, opened

GROUP, UPSCALING = "image", "image/upscaling"
IMAGE, CLEAR, IMAGES = link("image"), link("image", clear=True), link("images", "IMAGE", clear=True)


def _files(library: Library) -> Sequence[str]:
    return library.files.listed()


def _no_such(library: Library, image: str | None = None, **others: Any) -> str:
    """Why a picture cannot be read; nothing if it is known only later which."""
    try:
        there = image is None or library.files.named(image).is_file()
    except RequestError:
        there = False
    return "" if there else f"Invalid image file: {(image or '')[:200]}"


def _stamp(room: Room, image: str | None = None, **others: Any) -> Stamp:
    try:
        return stamp(room.files.named(image or ""))
    except RequestError:
        return ()


FILE = choice("image", _files, anywhere=True, more={"image_upload": True})
EMPTY_MASK = 64
"""Pixels of a side of the mask of a picture that has none."""


def _frames(room: Room, name: str) -> list[Image.Image]:
    """A picture that was sent, turned as it is to be seen: all of its frames that are as large as the first."""
    path = room.files.named(name)
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise SettingError(f"image: {name[:80]!r} cannot be read: {problem.strerror}") from None
    picture = opened(content, "image", room.library.limits.pixels)
    found: list[Image.Image] = []
    for frame in ImageSequence.Iterator(picture):
        upright = ImageOps.exif_transpose(frame.copy()) or frame
        if upright.mode.startswith("I"):
            upright = upright.point(lambda level: level / 256).convert("L")
        if not found or upright.size == found[0].size:
            found.append(upright)
        room.check_pixels(*upright.size, len(found))
    return found


def _alpha(picture: Image.Image) -> np.ndarray | None:
    """A picture's transparency [height, width], 0 where one looks through; None if it has none."""
    if "A" in picture.getbands():
        return from_picture(picture.getchannel("A"))
    if "transparency" in picture.info:
        return from_picture(picture.convert("RGBA").getchannel("A"))
    return None


@node("LoadImage", GROUP, FILE, gives="IMAGE MASK", title="Load Image", changed=_stamp, refused=_no_such)
def load(room: Room, image: str) -> tuple[np.ndarray, np.ndarray]:
    """A picture that was sent, and a mask that is white where it is transparent."""
    frames = _frames(room, image)
    masks = [_alpha(each) for each in frames]
    none = np.zeros((EMPTY_MASK, EMPTY_MASK), np.float32)
    found = [none if each is None else np.float32(1) - each for each in masks]
    alike = [each for each in found if each.shape == found[0].shape]
    return np.stack([from_picture(each.convert("RGB")) for each in frames]), np.stack(alike)


@node(
    "LoadImageMask", "mask", FILE, choice("channel", ("alpha", "red", "green", "blue")), gives="MASK",
    title="Load Image (as Mask)", changed=_stamp, refused=_no_such,
)  # fmt: skip
def load_mask(room: Room, image: str, channel: str) -> np.ndarray:
    """One channel of a picture that was sent, as a mask; of transparency, white where one looks through."""
    picture = _frames(room, image)[0]
    if channel == "alpha":
        alpha = _alpha(picture)
        found = np.zeros((EMPTY_MASK, EMPTY_MASK), np.float32) if alpha is None else np.float32(1) - alpha
    else:
        found = from_picture(picture.convert("RGB").getchannel(channel[0].upper()))
    return found[None]


def _prefix(said: str, images: np.ndarray) -> str:
    """A prefix of names with what stands for something in it: %width%, %year%, %date:yyyy-MM-dd%, …"""
    now = time.localtime()
    known = {"width": f"{images.shape[2]}", "height": f"{images.shape[1]}", "year": f"{now.tm_year}"}
    numbers = {"month": now.tm_mon, "day": now.tm_mday, "hour": now.tm_hour, "minute": now.tm_min, "second": now.tm_sec}
    known |= {name: f"{value:02}" for name, value in numbers.items()}
    for name, value in known.items():
        said = said.replace(f"%{name}%", value)
    signs = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "hh": "%H", "mm": "%M", "ss": "%S"}
    form = re.compile("|".join(signs))

    def date(match: re.Match[str]) -> str:
        return form.sub(lambda sign: time.strftime(signs[sign[0]], now), match[1])

    return re.sub(r"%date:([^%]{1,80})%", date, said)


NAME = re.compile(r"[ -~]{1,79}")


def _notes(room: Room) -> Notes:
    """What pictures say of how they were made: the graph, and what the client wants to be in them."""
    info = room.extra.get("extra_pnginfo")
    more = {name: value for name, value in info.items() if NAME.fullmatch(name)} if isinstance(info, dict) else {}
    return Notes("", {"prompt": dict(room.graph), **more})


def _saved(room: Room, images: np.ndarray, prefix: str, kind: str) -> Shown:
    folder, below, names = room.files.next_names(kind, _prefix(prefix, images), ".png")
    notes, found = _notes(room), []
    said = parameters_of_graph(room.graph)
    parameters = "" if said is None else write_parameters(said.prompt, said.negative_prompt, said.settings)
    seed = str((said.settings if said else {}).get("Seed", "0"))
    for each in images:
        name = next(names)
        room.watcher.writes(kind, below, name)
        save_picture(to_picture(each), folder / name, notes)
        if kind == "output":
            room.watcher.written(below, name, int(seed) & 0x7FFFFFFFFFFFFFFF if seed.isdecimal() else 0, parameters)
        found.append({"filename": name, "subfolder": below, "type": kind})
    return Shown(found)


@node(
    "SaveImage", GROUP, IMAGES, text("filename_prefix", "ComfyUI"), output=True, title="Save Image",
)  # fmt: skip
def save(room: Room, images: np.ndarray, filename_prefix: str) -> Shown:
    """Keep pictures, with the graph in them."""
    return _saved(room, images, filename_prefix, "output")


@node("PreviewImage", GROUP, IMAGES, output=True, title="Preview Image")
def preview(room: Room, images: np.ndarray) -> Shown:
    """Show pictures; they are gone when the server is started again."""
    return _saved(room, images, "ComfyUI_temp", "temp")


@node("SaveImageWebsocket", "api/image", IMAGES, output=True)
def send(room: Room, images: np.ndarray) -> Shown:
    """Send pictures to who sent the graph, as PNG files over the WebSocket; they are not kept."""
    for place, each in enumerate(images):
        room.watcher.sends(room.name, place + 1, len(images), encoded(to_picture(each), "png"))
    return Shown()


METHOD, WIDTH, HEIGHT = choice("upscale_method", METHODS), side("width", 512, 0, 1), side("height", 512, 0, 1)


def _scaled(room: Room, image: np.ndarray, width: int, height: int, method: str, crop: str = "disabled") -> np.ndarray:
    room.check_pixels(width, height, len(image))
    return scaled(image, height, width, method, crop)


@node(
    "ImageScale", UPSCALING, CLEAR, METHOD, WIDTH, HEIGHT, choice("crop", CROPS), gives="IMAGE", title="Upscale Image"
)
def scale(room: Room, image: np.ndarray, upscale_method: str, width: int, height: int, crop: str) -> np.ndarray:
    """Pictures at another size; where a side is 0, it follows from the other."""
    if not width and not height:
        return image
    width = width or max(1, round(image.shape[2] * height / image.shape[1]))
    height = height or max(1, round(image.shape[1] * width / image.shape[2]))
    return _scaled(room, image, width, height, upscale_method, crop)


@node(
    "ImageScaleBy",
    UPSCALING,
    CLEAR,
    METHOD,
    number("scale_by", 1.0, 0.01, 8.0),
    gives="IMAGE",
    title="Upscale Image By",
)
def scale_by(room: Room, image: np.ndarray, upscale_method: str, scale_by: float) -> np.ndarray:
    """Pictures so many times as large."""
    height, width = (max(round(length * scale_by), 1) for length in image.shape[1:3])
    return _scaled(room, image, width, height, upscale_method)


@node("ImageScaleToTotalPixels", UPSCALING, CLEAR, METHOD, number("megapixels", 1.0, 0.01, 16.0), gives="IMAGE")
def scale_to_pixels(room: Room, image: np.ndarray, upscale_method: str, megapixels: float) -> np.ndarray:
    """Pictures of so many pixels, in millions (of 1024 x 1024)."""
    factor = (megapixels * 1024 * 1024 / (image.shape[1] * image.shape[2])) ** 0.5
    height, width = (max(round(length * factor), 1) for length in image.shape[1:3])
    return _scaled(room, image, width, height, upscale_method)


KONTEXT = (
    (672, 1568),
    (688, 1504),
    (720, 1456),
    (752, 1392),
    (800, 1328),
    (832, 1248),
    (880, 1184),
    (944, 1104),
    (1024, 1024),
)
"""The sizes that Flux Kontext was trained on, and the same lying."""


@node("FluxKontextImageScale", "advanced/conditioning/flux", CLEAR, gives="IMAGE")
def scale_for_kontext(room: Room, image: np.ndarray) -> np.ndarray:
    """Pictures at the size, of those that Flux Kontext was trained on, whose shape is nearest."""
    shape = image.shape[2] / image.shape[1]
    width, height = min(
        (*KONTEXT, *((b, a) for a, b in KONTEXT[::-1])), key=lambda size: abs(shape - size[0] / size[1])
    )
    return _scaled(room, image, width, height, "lanczos", "center")


LARGEST_TILE, LEAST_TILE, OVERLAP = 512, 128, 32


@node(
    "ImageUpscaleWithModel", UPSCALING, link("upscale_model"), IMAGE, gives="IMAGE", title="Upscale Image (using Model)"
)
def upscale(room: Room, upscale_model: Upscaler, image: np.ndarray) -> np.ndarray:
    """Pictures made larger by a network, in tiles."""
    factor = upscale_model.scale
    room.check_pixels(image.shape[2] * factor, image.shape[1] * factor, len(image))
    pixels, tile = np.ascontiguousarray(image.transpose(0, 3, 1, 2)), LARGEST_TILE
    done = 0

    def run(part: np.ndarray) -> np.ndarray:
        nonlocal done
        found = upscale_model.run(part)
        done += 1
        room.step(done, max(done, tiles))
        return found

    while True:
        tiles = len(image) * -(-image.shape[1] // (tile - OVERLAP)) * -(-image.shape[2] // (tile - OVERLAP))
        try:
            found = np.concatenate(
                [run_tiled(each[None], run, (tile, tile), OVERLAP, factor, tilings=1) for each in pixels]
            )
            break
        except TooLarge:
            tile //= 2
            if tile < LEAST_TILE:
                raise
    return np.ascontiguousarray(np.clip(found, 0, 1).transpose(0, 2, 3, 1), np.float32)


SIDES = tuple(side(name, 0, 0) for name in ("left", "top", "right", "bottom"))


@node(
    "ImagePadForOutpaint", GROUP, IMAGE, *SIDES, side("feathering", 40, 0, 1), gives="IMAGE MASK",
    title="Pad Image for Outpainting",
)  # fmt: skip
def pad(
    room: Room, image: np.ndarray, left: int, top: int, right: int, bottom: int, feathering: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pictures on larger grey ones, and a mask of what is new, which reaches softly into the old."""
    height, width = image.shape[1:3]
    room.check_pixels(width + left + right, height + top + bottom, len(image))
    padded = np.full((len(image), height + top + bottom, width + left + right, 3), 0.5, np.float32)
    padded[:, top : top + height, left : left + width] = image
    mask = margin_mask(width, height, Margins(left, top, right, bottom), feathering)
    return padded, mask[None].astype(np.float32)


@node("ImageInvert", GROUP, IMAGE, gives="IMAGE", title="Invert Image")
def invert(room: Room, image: np.ndarray) -> np.ndarray:
    """Black for white."""
    return np.float32(1) - image


@node("ImageBatch", GROUP, link("image1", "IMAGE"), link("image2", "IMAGE"), gives="IMAGE", title="Batch Images")
def batch(room: Room, image1: np.ndarray, image2: np.ndarray) -> np.ndarray:
    """Two batches as one, of the first one's size."""
    room.check_pixels(image1.shape[2], image1.shape[1], len(image1) + len(image2))
    return np.concatenate([image1, scaled(image2, image1.shape[1], image1.shape[2], "bilinear", "center")])


@node(
    "ImageFromBatch", "image/batch", CLEAR, whole("batch_index", 0, 0, 4095), whole("length", 1, 1, 4096), gives="IMAGE",
)  # fmt: skip
def from_batch(room: Room, image: np.ndarray, batch_index: int, length: int) -> np.ndarray:
    """Some of a batch."""
    first = min(batch_index, len(image) - 1)
    return image[first : first + length].copy()


@node("RepeatImageBatch", "image/batch", CLEAR, whole("amount", 1, 1, 4096, limit="pictures"), gives="IMAGE")
def repeat(room: Room, image: np.ndarray, amount: int) -> np.ndarray:
    """Each batch so many times."""
    room.check_pixels(image.shape[2], image.shape[1], len(image) * amount)
    return np.tile(image, (amount, 1, 1, 1))


COMPOSITING = "mask/compositing"


@node("SplitImageWithAlpha", COMPOSITING, CLEAR, gives="IMAGE MASK", title="Split Image with Alpha")
def split(room: Room, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pictures without their opacity, and a mask that is white where one looks through."""
    clear = 1 - image[..., 3] if image.shape[-1] > 3 else np.zeros(image.shape[:3])
    return np.ascontiguousarray(image[..., :3]), clear.astype(np.float32)


@node("JoinImageWithAlpha", COMPOSITING, IMAGE, link("alpha", "MASK"), gives="IMAGE", title="Join Image with Alpha")
def join(room: Room, image: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Pictures through which one looks where a mask is white."""
    count = min(len(image), len(alpha))
    opacity = np.stack([1 - bilinear(each, *image.shape[1:3]) for each in alpha[:count]])
    return np.concatenate([image[:count], opacity[..., None]], -1).astype(np.float32)


@node(
    "EmptyImage",
    GROUP,
    side("width", 512, 1, 1),
    side("height", 512, 1, 1),
    BATCH,
    whole("color", 0, 0, 0xFFFFFF),
    gives="IMAGE",
)
def empty(room: Room, width: int, height: int, batch_size: int, color: int) -> np.ndarray:
    """Pictures of one colour."""
    room.check_pixels(width, height, batch_size)
    colours = np.array([color >> 16 & 255, color >> 8 & 255, color & 255], np.float32) / np.float32(255)
    return np.tile(colours, (batch_size, height, width, 1))


@node(
    "ImageCrop", "image/transform", CLEAR, side("width", 512, 1, 1), side("height", 512, 1, 1), side("x", 0, 0, 1),
    side("y", 0, 0, 1), gives="IMAGE", title="Image Crop",
)  # fmt: skip
def crop(room: Room, image: np.ndarray, width: int, height: int, x: int, y: int) -> np.ndarray:
    """A part of pictures."""
    left, top = min(x, image.shape[2] - 1), min(y, image.shape[1] - 1)
    return image[:, top : top + height, left : left + width].copy()


def _primitive(name: str, type: str, kept: Input) -> None:
    def value(room: Room, value: Any) -> Any:
        return value

    value.__doc__ = "A value, for several inputs."
    node(name, "utils/primitive", kept, gives=type)(value)


_primitive("PrimitiveInt", "INT", whole("value", 0, -(2**63) + 1, 2**63 - 1))
_primitive("PrimitiveFloat", "FLOAT", number("value", 0.0, -1e18, 1e18))
_primitive("PrimitiveString", "STRING", text("value"))
_primitive("PrimitiveStringMultiline", "STRING", prompt("value"))
_primitive("PrimitiveBoolean", "BOOLEAN", switch("value", False))
