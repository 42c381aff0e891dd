"""Nodes of Acly's comfyui-tooling-nodes, by which applications hand pictures to graphs and get them back (Krita AI Diffusion).

Source: its nodes.py, tile.py, translation.py.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from graphc_images import SettingError
from graphc_images.from_files import Stamp, stamp
from graphc_images.pictures.filters import convolve_lines
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.pictures import from_picture, to_picture
from graphc_server.comfyui.table import choice, link, node, switch, text, whole
from graphc_server.comfyui.values import Shown
from graphc_server.errors import RequestError
from graphc_server.pictures import encoded, opened

GROUP, TILES = "external_tooling", "external_tooling/tiles"
IMAGE, IMAGES, MASK = link("image"), link("images", "IMAGE", clear=True), link("mask")
FORMAT = choice("format", ("PNG", "JPEG"), "PNG")
PREFIX = re.compile(r"data:image/[a-z]+;base64,")


def _sent(room: Room, name: str, given: str) -> Image.Image:
    """A picture in base64, with or without a data URI's head. Raises SettingError."""
    try:
        content = b64decode("".join(PREFIX.sub("", given, count=1).split()), validate=True)
    except (binascii.Error, ValueError):
        raise SettingError(f"{name}: Invalid encoded image") from None
    return opened(content, name, room.library.limits.pixels)


def _channels(picture: Image.Image) -> np.ndarray:
    """A picture's own channels [height, width, 1, 3 or 4]; of others than grey, RGB and RGBA those of RGB."""
    found = from_picture(picture if picture.mode in ("L", "RGB", "RGBA") else picture.convert("RGB"))
    return found[..., None] if found.ndim == 2 else found


@node("ETN_LoadImageBase64", GROUP, text("image"), gives="IMAGE MASK", title="Load Image (Base64)")
def load(room: Room, image: str) -> tuple[np.ndarray, np.ndarray]:
    """A picture that stands in the graph, in base64, and its opacity as a mask; white if it has none."""
    picture = _sent(room, "image", image)
    alpha = from_picture(picture.convert("RGBA").getchannel("A"))
    return from_picture(picture.convert("RGB"))[None], alpha[None]


@node("ETN_LoadMaskBase64", GROUP, text("mask"), gives="MASK", title="Load Mask (Base64)")
def load_mask(room: Room, mask: str) -> np.ndarray:
    """The same as a mask: its grey, or its red."""
    return _channels(_sent(room, "mask", mask))[None, ..., 0].copy()


def _stamp(room: Room, id: str | None = None, **others: Any) -> Stamp:
    try:
        return stamp(room.files.handed.path(id or ""))[:1]  # its time is when it was last asked for
    except RequestError:
        return ()


@node(
    "ETN_LoadImageCache", GROUP, text("id"), gives="IMAGE MASK", title="Load Image from Cache", changed=_stamp,
)  # fmt: skip
def load_handed(room: Room, id: str) -> tuple[np.ndarray, np.ndarray]:
    """A picture that was sent to `/api/etn/image/ID`, and as a mask its opacity, or else its red, or its grey."""
    content = room.files.handed.get(id)
    if content is None:
        raise SettingError(f"id: there is no picture {id[:80]!r}; it was not sent, or long ago")
    found = _channels(opened(content, "id", room.library.limits.pixels))
    colours = np.repeat(found, 3, -1) if found.shape[-1] == 1 else found[..., :3]
    return colours[None].copy(), found[None, ..., 3 if found.shape[-1] == 4 else 0].copy()


@node("ETN_SaveImageCache", GROUP, IMAGES, FORMAT, output=True, title="Save Image to Cache")
def hand_back(room: Room, images: np.ndarray, format: str) -> Shown:
    """Have pictures fetched from `/api/etn/image/ID`, for some minutes."""
    names = [room.files.handed.add(encoded(to_picture(each), format.lower(), 95)) for each in images]
    said = {"source": "http", "content-type": f"image/{format.lower()}", "type": "output"}
    return Shown([{**said, "id": name} for name in names])


@node("ETN_SendImageWebSocket", GROUP, IMAGES, FORMAT, output=True, title="Send Image (WebSocket)")
def send(room: Room, images: np.ndarray, format: str) -> Shown:
    """Send pictures to who sent the graph, over the WebSocket; they are not kept."""
    for place, each in enumerate(images):
        room.watcher.sends(room.name, place + 1, len(images), encoded(to_picture(each), format.lower(), 95))
    said = {"source": "websocket", "content-type": f"image/{format.lower()}", "type": "output"}
    return Shown([dict(said) for _ in images])


@node("ETN_ApplyMaskToImage", GROUP, IMAGE, MASK, gives="IMAGE", title="Apply Mask to Image")
def apply_mask(room: Room, image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Pictures that are transparent where a mask is black."""
    if mask.shape[1:] != image.shape[1:3]:
        sizes = [f"{each.shape[2]} x {each.shape[1]}" for each in (image, mask)]
        raise SettingError(f"mask: the pictures have {sizes[0]} pixels, and the mask {sizes[1]}")
    masks = mask if len(mask) == len(image) else np.repeat(mask[:1], len(image), 0)
    return np.concatenate([image[..., :3], masks[..., None]], -1).astype(np.float32)


LANGUAGE = re.compile(r"lang:(\w\w)")


def in_english(said: str) -> str:
    """A text without the words that say which language it is in (`lang:en`). Raises SettingError for others than English."""
    for language in LANGUAGE.findall(said):
        if language != "en":
            raise SettingError(f"text: lang:{language}: this server translates nothing; write in English")
    return " ".join(part for each in LANGUAGE.split(said)[::2] if (part := each.strip()))


@node("ETN_Translate", GROUP, text("text", more={"multiline": True}), gives="STRING", title="Translate Text")
def translate(room: Room, text: str) -> str:
    """A text in English; `lang:de` and the like within it are refused, because there is no translation."""
    return in_english(text)


@dataclass(frozen=True)
class Layout:
    """TILELAYOUT: pictures [height, width] in tiles that overlap by twice `padding`, and are blended over `blending` pixels.

    Tiles are counted down each column.
    """

    size: tuple[int, int]
    counts: tuple[int, int]
    tile: tuple[int, int]
    padding: int
    blending: int

    @classmethod
    def of(cls, height: int, width: int, least: int, padding: int, blending: int, multiple: int) -> Layout:
        """Tiles of `least` pixels or more. Raises SettingError for what does not fit together."""
        if height % multiple or width % multiple or least % multiple:
            raise SettingError(f"multiple: {width} x {height} and tiles of {least} are not multiples of {multiple}")
        if blending > padding:
            raise SettingError(f"blending: {blending} is above padding, {padding}")
        if least <= 2 * padding:
            raise SettingError(f"padding: two of {padding} leave nothing of a tile of {least}")
        counts, tiles = [], []
        for length in (height, width):
            count = max(1, length // (least - 2 * padding))
            tile = -(-(length + (count - 1) * 2 * padding) // count)
            counts.append(count)
            tiles.append(-(-tile // multiple) * multiple)
        return cls((height, width), (counts[0], counts[1]), (tiles[0], tiles[1]), padding, blending)

    def place(self, index: int) -> tuple[int, int]:
        """Which row and column. Raises SettingError for one that is not there."""
        if index >= self.counts[0] * self.counts[1]:
            raise SettingError(f"index: there are {self.counts[0] * self.counts[1]} tiles")
        return index % self.counts[0], index // self.counts[0]

    def part(self, axis: int, number: int, inside: int = 0) -> tuple[int, int]:
        """The first pixel of a tile and the first behind it, without so many pixels at edges that are not the picture's."""
        start = number * (self.tile[axis] - 2 * self.padding)
        end = start + self.tile[axis] - (inside if number < self.counts[axis] - 1 else 0)
        return start + (inside if number else 0), min(end, self.size[axis])

    def rectangle(self, index: int) -> tuple[slice, slice]:
        """Where a tile lies."""
        rows, columns = (self.part(axis, number) for axis, number in enumerate(self.place(index)))
        return slice(*rows), slice(*columns)

    def mask(self, index: int, blend: bool) -> np.ndarray:
        """How much of a tile counts [height, width]; with `blend` it fades out at its edges."""
        inside = self.padding if blend else self.padding - self.blending
        sides = []
        for axis, number in enumerate(self.place(index)):
            whole, inner = self.part(axis, number), self.part(axis, number, inside)
            line = np.zeros(whole[1] - whole[0], np.float32)
            line[inner[0] - whole[0] : inner[1] - whole[0]] = 1
            sides.append(_boxed(line, self.blending) if blend and self.blending else line)
        return sides[0][:, None] * sides[1]


def _boxed(line: np.ndarray, size: int) -> np.ndarray:
    """Means of so many neighbours (kornia's box_blur: of an even number there is one more after each)."""
    kernel = np.full(size, 1 / size, np.float32)
    if size % 2 == 0:
        kernel = np.append(np.float32(0), kernel)
    return convolve_lines(line, kernel, 0)


LAYOUT, INDEX = link("layout", "TileLayout"), whole("index", 0, 0, 1 << 20)


@node(
    "ETN_TileLayout", TILES, IMAGE, whole("min_tile_size", 512, 64, 8192, 8), whole("padding", 32, 0, 8192, 8),
    whole("blending", 8, 0, 256, 8), whole("multiple", 8, 1, 1024), gives="TileLayout", title="Create Tile Layout",
)  # fmt: skip
def layout(room: Room, image: np.ndarray, min_tile_size: int, padding: int, blending: int, multiple: int) -> Layout:
    """How pictures are cut into tiles that overlap."""
    return Layout.of(image.shape[1], image.shape[2], min_tile_size, padding, blending, multiple)


def _fits(layout: Layout, array: np.ndarray) -> None:
    if array.shape[1:3] != layout.size:
        sizes = [f"{each[1]} x {each[0]}" for each in (layout.size, array.shape[1:3])]
        raise SettingError(f"layout: it is for {sizes[0]} pixels, and there are {sizes[1]}")


@node("ETN_ExtractImageTile", TILES, IMAGE, LAYOUT, INDEX, gives="IMAGE", title="Extract Image Tile")
def image_tile(room: Room, image: np.ndarray, layout: Layout, index: int) -> np.ndarray:
    """A tile of pictures."""
    _fits(layout, image)
    return image[:, *layout.rectangle(index)].copy()


@node("ETN_ExtractMaskTile", TILES, MASK, LAYOUT, INDEX, gives="MASK", title="Extract Mask Tile")
def mask_tile(room: Room, mask: np.ndarray, layout: Layout, index: int) -> np.ndarray:
    """A tile of a mask."""
    _fits(layout, mask)
    return mask[:, *layout.rectangle(index)].copy()


@node(
    "ETN_GenerateTileMask", TILES, LAYOUT, INDEX, switch("blend", False, optional=True), gives="MASK",
    title="Generate Tile Mask",
)  # fmt: skip
def tile_mask(room: Room, layout: Layout, index: int, blend: bool) -> np.ndarray:
    """How much of a tile counts in the whole."""
    return layout.mask(index, blend)[None]


@node(
    "ETN_MergeImageTile", TILES, IMAGE, LAYOUT, INDEX, link("tile", "IMAGE"), gives="IMAGE", title="Merge Image Tile",
)  # fmt: skip
def merged(room: Room, image: np.ndarray, layout: Layout, index: int, tile: np.ndarray) -> np.ndarray:
    """Pictures with a tile laid over them, which fades out at its edges."""
    _fits(layout, image)
    found, place, weight = image.copy(), layout.rectangle(index), layout.mask(index, True)[..., None]
    here = found[:, *place]
    if tile.shape[1:3] != here.shape[1:3]:
        raise SettingError(f"tile: {tile.shape[2]} x {tile.shape[1]} is not the size of tile {index}")
    found[:, *place] = here + (tile[..., : found.shape[-1]] - here) * weight
    return found
