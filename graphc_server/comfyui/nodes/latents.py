"""Nodes between pictures and latents, and from latents to latents.

Source: ComfyUI's nodes.py, comfy_extras/nodes_latent.py, nodes_sd3.py, nodes_ip2p.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from graphc_images import SettingError
from graphc_images.models import Tiles
from graphc_images.pictures.masks import bilinear, grow_mask
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.pictures import CROPS, LATENT_METHODS, scaled_planes
from graphc_server.comfyui.table import BATCH, choice, link, node, number, side, switch, whole
from graphc_server.comfyui.values import Latent, Texts, Vae, each_told

GROUP = "latent"
SAMPLES, PIXELS, VAE, MASK = link("samples", "LATENT"), link("pixels", "IMAGE"), link("vae"), link("mask")
USUAL = Tiles()
UNIT = 8
"""Pixels of a cell, of all latents but Flux.2's."""

TILE, OVERLAP = whole("tile_size", 512, 64, 4096, 64), whole("overlap", 64, 0, 4096, 32, optional=True)


def _empty(room: Room, channels: int, width: int, height: int, batch: int, unit: int = UNIT) -> Latent:
    room.check_pixels(width, height, batch)
    return Latent(np.zeros((batch, channels, height // unit, width // unit), np.float32))


@node("EmptyLatentImage", GROUP, side("width"), side("height"), BATCH, gives="LATENT", title="Empty Latent Image")
def empty(room: Room, width: int, height: int, batch_size: int) -> Latent:
    """Nothing, to begin with."""
    return _empty(room, 4, width, height, batch_size)


@node(
    "EmptySD3LatentImage",
    "latent/sd3",
    side("width", 1024, step=16),
    side("height", 1024, step=16),
    BATCH,
    gives="LATENT",
)
def empty_of_sixteen(room: Room, width: int, height: int, batch_size: int) -> Latent:
    """Nothing, to begin with, for models with latents of 16 channels: Stable Diffusion 3, Flux, Chroma, Qwen-Image."""
    return _empty(room, 16, width, height, batch_size)


@node(
    "EmptyFlux2LatentImage", GROUP, side("width", 1024, step=16), side("height", 1024, step=16), BATCH, gives="LATENT",
    title="Empty Flux 2 Latent",
)  # fmt: skip
def empty_of_flux2(room: Room, width: int, height: int, batch_size: int) -> Latent:
    """Nothing, to begin with, for Flux.2, whose cells are of 16 pixels."""
    return _empty(room, 128, width, height, batch_size, 16)


def _pixels(pixels: np.ndarray, unit: int = UNIT) -> np.ndarray:
    """As an autoencoder takes them: [batch, 3, height, width], -1 to 1, cut to whole cells in the middle."""
    high, wide = (side // unit * unit for side in pixels.shape[1:3])
    if not (high and wide):
        raise SettingError(f"pixels: {pixels.shape[2]} x {pixels.shape[1]} are less than a cell of {unit}")
    top, left = pixels.shape[1] % unit // 2, pixels.shape[2] % unit // 2
    cut = pixels[:, top : top + high, left : left + wide, :3]
    return np.ascontiguousarray(cut.transpose(0, 3, 1, 2) * np.float32(2) - np.float32(1))


def _encode(room: Room, vae: Vae, pixels: np.ndarray, tiles: Tiles = USUAL) -> np.ndarray:
    room.check_pixels(pixels.shape[2], pixels.shape[1], len(pixels))
    vae.image_model.tiles = tiles
    return vae.image_model.encode_pixels(_pixels(pixels, vae.image_model.architecture.latent.pixels))


def _decode(room: Room, vae: Vae, samples: np.ndarray, tiles: Tiles = USUAL) -> np.ndarray:
    model = vae.image_model
    channels, unit = model.architecture.latent.channels, model.architecture.latent.pixels
    if samples.shape[1] != channels:
        raise SettingError(f"samples: they have {samples.shape[1]} channels, and the autoencoder {channels}")
    room.check_pixels(samples.shape[3] * unit, samples.shape[2] * unit, len(samples))
    model.tiles = tiles
    found = [model.decode_encoded(each[None])[0] for each in samples]
    pictures = np.clip((np.nan_to_num(np.stack(found), nan=-1.0) + np.float32(1)) / np.float32(2), 0, 1)
    return np.ascontiguousarray(pictures.transpose(0, 2, 3, 1), np.float32)


@node("VAEDecode", GROUP, SAMPLES, VAE, gives="IMAGE", title="VAE Decode")
def decode(room: Room, samples: Latent, vae: Vae) -> np.ndarray:
    """The pictures of latents; in tiles where the whole does not fit into memory."""
    return _decode(room, vae, samples.samples)


@node("VAEDecodeTiled", GROUP, SAMPLES, VAE, TILE, OVERLAP, gives="IMAGE", title="VAE Decode (Tiled)")
def decode_tiled(room: Room, samples: Latent, vae: Vae, tile_size: int, overlap: int) -> np.ndarray:
    """The same always in tiles, which overlap by so many pixels."""
    return _decode(room, vae, samples.samples, Tiles("on", tile_size, overlap))


@node("VAEEncode", GROUP, PIXELS, VAE, gives="LATENT", title="VAE Encode")
def encode(room: Room, pixels: np.ndarray, vae: Vae) -> Latent:
    """The latents of pictures."""
    return Latent(_encode(room, vae, pixels))


@node("VAEEncodeTiled", GROUP, PIXELS, VAE, TILE, OVERLAP, gives="LATENT", title="VAE Encode (Tiled)")
def encode_tiled(room: Room, pixels: np.ndarray, vae: Vae, tile_size: int, overlap: int) -> Latent:
    """The same always in tiles, which overlap by so many pixels."""
    return Latent(_encode(room, vae, pixels, Tiles("on", tile_size, overlap)))


def _masked(pixels: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pictures that are grey where a mask is white, and the mask at their size."""
    masks = np.stack([bilinear(each, *pixels.shape[1:3]) for each in mask])
    masks = masks[np.arange(max(len(pixels), len(masks))) % len(masks)]
    kept = (np.float32(1) - np.rint(masks))[..., None]
    shown = pixels[np.arange(len(masks)) % len(pixels)]
    return (shown - np.float32(0.5)) * kept + np.float32(0.5), masks


def _cut(mask: np.ndarray) -> np.ndarray:
    """A mask as pixels are cut to whole cells."""
    high, wide = (side // UNIT * UNIT for side in mask.shape[1:])
    top, left = mask.shape[1] % UNIT // 2, mask.shape[2] % UNIT // 2
    return mask[:, top : top + high, left : left + wide]


@node(
    "VAEEncodeForInpaint", "latent/inpaint", PIXELS, VAE, MASK, whole("grow_mask_by", 6, 0, 64), gives="LATENT",
    title="VAE Encode (for Inpainting)",
)  # fmt: skip
def encode_masked(room: Room, pixels: np.ndarray, vae: Vae, mask: np.ndarray, grow_mask_by: int) -> Latent:
    """The latents of pictures that are grey under a mask, to be painted anew there; the mask is made larger."""
    grey, masks = _masked(pixels, mask)
    grown = np.stack([grow_mask(each, grow_mask_by) for each in _cut(masks)])
    return Latent(_encode(room, vae, grey), np.rint(grown))


@node(
    "InpaintModelConditioning", "conditioning/inpaint", link("positive", "CONDITIONING"), link("negative", "CONDITIONING"), VAE,
    PIXELS, MASK, switch("noise_mask", True, optional=True), gives="CONDITIONING CONDITIONING LATENT",
)  # fmt: skip
def inpainting(
    room: Room, positive: Texts, negative: Texts, vae: Vae, pixels: np.ndarray, mask: np.ndarray, noise_mask: bool
) -> tuple[Texts, Texts, Latent]:
    """What models for inpainting look at: the pictures without what is under the mask, and the mask."""
    grey, masks = _masked(pixels, mask)
    said = {"joined": _encode(room, vae, grey), "joined_mask": _cut(masks)}
    latent = Latent(_encode(room, vae, pixels), _cut(masks) if noise_mask else None)
    return each_told(positive, **said), each_told(negative, **said), latent


@node(
    "InstructPixToPixConditioning", "conditioning/instructpix2pix", link("positive", "CONDITIONING"),
    link("negative", "CONDITIONING"), VAE, PIXELS, gives="CONDITIONING CONDITIONING LATENT",
)  # fmt: skip
def editing(room: Room, positive: Texts, negative: Texts, vae: Vae, pixels: np.ndarray) -> tuple[Texts, Texts, Latent]:
    """The picture that instruct-pix2pix changes, or that Flux Canny and Depth follow."""
    joined = _encode(room, vae, pixels)
    return each_told(positive, joined=joined), each_told(negative, joined=joined), Latent(np.zeros_like(joined))


@node("SetLatentNoiseMask", "latent/inpaint", SAMPLES, MASK, gives="LATENT", title="Set Latent Noise Mask")
def set_mask(room: Room, samples: Latent, mask: np.ndarray) -> Latent:
    """Paint where a mask is white alone."""
    return replace(samples, mask=mask)


METHOD = choice("upscale_method", LATENT_METHODS)


def _scaled(room: Room, samples: Latent, rows: int, columns: int, method: str, crop: str = "disabled") -> Latent:
    room.check_pixels(columns * UNIT, rows * UNIT, len(samples.samples))
    return replace(samples, samples=scaled_planes(samples.samples, rows, columns, method, crop))


@node(
    "LatentUpscale", GROUP, SAMPLES, METHOD, side("width", 512, 0), side("height", 512, 0), choice("crop", CROPS),
    gives="LATENT", title="Upscale Latent",
)  # fmt: skip
def upscale(room: Room, samples: Latent, upscale_method: str, width: int, height: int, crop: str) -> Latent:
    """Latents at another size; where a side is 0, it follows from the other."""
    if not width and not height:
        return samples
    old_rows, old_columns = samples.samples.shape[2:]
    width = width or max(64, round(old_columns * height / old_rows))
    height = height or max(64, round(old_rows * width / old_columns))
    return _scaled(room, samples, max(8, height // UNIT), max(8, width // UNIT), upscale_method, crop)


@node(
    "LatentUpscaleBy",
    GROUP,
    SAMPLES,
    METHOD,
    number("scale_by", 1.5, 0.01, 8.0),
    gives="LATENT",
    title="Upscale Latent By",
)
def upscale_by(room: Room, samples: Latent, upscale_method: str, scale_by: float) -> Latent:
    """Latents so many times as large."""
    rows, columns = (max(round(side * scale_by), 1) for side in samples.samples.shape[2:])
    return _scaled(room, samples, rows, columns, upscale_method)


def _alike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The other with the size and the batch of the first."""
    if other.shape[1] != one.shape[1]:
        raise SettingError(f"latents of {one.shape[1]} and {other.shape[1]} channels cannot be joined")
    if other.shape[2:] != one.shape[2:]:
        other = scaled_planes(other, one.shape[2], one.shape[3], "bicubic", "center")
    return other[np.arange(len(one)) % len(other)]


@node(
    "LatentBlend", "_for_testing", link("samples1", "LATENT"), link("samples2", "LATENT"),
    number("blend_factor", 0.5, 0.0, 1.0), gives="LATENT",
)  # fmt: skip
def blend(room: Room, samples1: Latent, samples2: Latent, blend_factor: float) -> Latent:
    """Numbers between those of two latents; 1 is for the first alone."""
    other = _alike(samples1.samples, samples2.samples)
    mixed = samples1.samples * np.float32(blend_factor) + other * np.float32(1 - blend_factor)
    return replace(samples1, samples=np.asarray(mixed, np.float32))


PLACE = (side("x", 0, 0), side("y", 0, 0))
ONTO = (link("samples_to", "LATENT"), link("samples_from", "LATENT"))


@node("LatentComposite", GROUP, *ONTO, *PLACE, side("feather", 0, 0), gives="LATENT")
def composite(room: Room, samples_to: Latent, samples_from: Latent, x: int, y: int, feather: int) -> Latent:
    """A latent laid over another, at a place in pixels, with edges that fade over so many."""
    left, top, fade = x // UNIT, y // UNIT, feather // UNIT
    found, other = samples_to.samples.copy(), samples_from.samples
    other = other[np.arange(len(found)) % len(other)][
        :, :, : max(found.shape[2] - top, 0), : max(found.shape[3] - left, 0)
    ]
    rows, columns = other.shape[2:]
    if not (rows and columns):
        return samples_to
    weight = np.ones((rows, columns), np.float32)
    for step in range(fade):
        share = np.float32((step + 1) / fade)
        if top and step < rows:
            weight[step] *= share
        if top + rows < found.shape[2] and step < rows:
            weight[rows - 1 - step] *= share
        if left and step < columns:
            weight[:, step] *= share
        if left + columns < found.shape[3] and step < columns:
            weight[:, columns - 1 - step] *= share
    here = found[:, :, top : top + rows, left : left + columns]
    here[:] = other * weight + here * (1 - weight)
    return replace(samples_to, samples=found)


@node(
    "LatentCompositeMasked", GROUP, link("destination", "LATENT"), link("source", "LATENT"), *PLACE,
    switch("resize_source", False), link("mask", optional=True), gives="LATENT",
)  # fmt: skip
def composite_masked(
    room: Room, destination: Latent, source: Latent, x: int, y: int, resize_source: bool, mask: np.ndarray | None
) -> Latent:
    """A latent laid over another, at a place in pixels, where a mask is white."""
    found, other = destination.samples.copy(), source.samples
    if resize_source:
        other = scaled_planes(other, found.shape[2], found.shape[3], "bilinear")
    laid_over(found, other, x // UNIT, y // UNIT, mask)
    return replace(destination, samples=found)


def laid_over(planes: np.ndarray, other: np.ndarray, left: int, top: int, mask: np.ndarray | None) -> None:
    """Lay [batch, channels, rows, columns] over such planes, at a place, where a mask [batch, height, width] is white."""
    rows, columns = max(planes.shape[2] - top, 0), max(planes.shape[3] - left, 0)
    weight = np.ones((1, 1, *other.shape[2:]), np.float32)
    if mask is not None:
        weight = np.stack([bilinear(each, *other.shape[2:]) for each in mask])[:, None]
    each_row = np.arange(len(planes))
    other, weight = (array[each_row % len(array)][:, :, :rows, :columns] for array in (other, weight))
    here = planes[:, : other.shape[1], top : top + other.shape[2], left : left + other.shape[3]]
    here[:] = other[:, : here.shape[1]] * weight + here * (1 - weight)


@node(
    "LatentCrop", "latent/transform", SAMPLES, side("width", 512, 64), side("height", 512, 64), *PLACE, gives="LATENT"
)
def crop(room: Room, samples: Latent, width: int, height: int, x: int, y: int) -> Latent:
    """A part of latents, of a size and at a place in pixels."""
    rows, columns = samples.samples.shape[2:]
    left, top = min(x // UNIT, max(columns - 8, 0)), min(y // UNIT, max(rows - 8, 0))
    part = samples.samples[:, :, top : top + height // UNIT, left : left + width // UNIT]
    return replace(samples, samples=np.ascontiguousarray(part))


TURNS: dict[str, int] = {"none": 0, "90 degrees": 1, "180 degrees": 2, "270 degrees": 3}


@node("LatentRotate", "latent/transform", SAMPLES, choice("rotation", tuple(TURNS)), gives="LATENT")
def rotate(room: Room, samples: Latent, rotation: str) -> Latent:
    """Latents turned clockwise."""
    return replace(samples, samples=np.ascontiguousarray(np.rot90(samples.samples, -TURNS[rotation], (2, 3))))


FLIPS = {"x-axis: vertically": 2, "y-axis: horizontally": 3}


@node("LatentFlip", "latent/transform", SAMPLES, choice("flip_method", tuple(FLIPS)), gives="LATENT")
def flip(room: Room, samples: Latent, flip_method: str) -> Latent:
    """Latents mirrored."""
    return replace(samples, samples=np.ascontiguousarray(np.flip(samples.samples, FLIPS[flip_method])))


def _numbers(samples: Latent) -> tuple[int, ...]:
    return samples.numbers or tuple(range(len(samples.samples)))


@node(
    "LatentFromBatch",
    "latent/batch",
    SAMPLES,
    whole("batch_index", 0, 0, 63),
    whole("length", 1, 1, 64),
    gives="LATENT",
)
def from_batch(room: Room, samples: Latent, batch_index: int, length: int) -> Latent:
    """Some of a batch, which have the noise that they would have in the whole."""
    first = min(len(samples.samples) - 1, batch_index)
    rows = slice(first, first + min(len(samples.samples) - first, length))
    mask = samples.mask if samples.mask is None or len(samples.mask) == 1 else samples.mask[rows]
    return Latent(samples.samples[rows].copy(), mask, _numbers(samples)[rows])


@node("RepeatLatentBatch", "latent/batch", SAMPLES, whole("amount", 1, 1, 64, limit="pictures"), gives="LATENT")
def repeat(room: Room, samples: Latent, amount: int) -> Latent:
    """Each batch so many times."""
    room.check_pixels(1, 1, len(samples.samples) * amount)
    mask = samples.mask if samples.mask is None or len(samples.mask) == 1 else np.tile(samples.mask, (amount, 1, 1))
    known = _numbers(samples)
    offset = max(known) - min(known) + 1
    numbers = tuple(number + turn * offset for turn in range(amount) for number in known)
    return Latent(np.tile(samples.samples, (amount, 1, 1, 1)), mask, numbers if samples.numbers else None)


@node("LatentBatch", "latent/batch", link("samples1", "LATENT"), link("samples2", "LATENT"), gives="LATENT")
def batch(room: Room, samples1: Latent, samples2: Latent) -> Latent:
    """Two batches as one, of the first one's size."""
    one, other = samples1.samples, samples2.samples
    room.check_pixels(1, 1, len(one) + len(other))
    other = np.concatenate([_alike(one[:1], each[None]) for each in other])
    return Latent(np.concatenate([one, other]), numbers=_numbers(samples1) + _numbers(samples2))


def _of_two(name: str, does: Callable[[np.ndarray, np.ndarray], np.ndarray], about: str) -> None:
    def joined(room: Room, samples1: Latent, samples2: Latent) -> Latent:
        found = does(samples1.samples, _alike(samples1.samples, samples2.samples))
        return replace(samples1, samples=np.asarray(found, np.float32))

    joined.__doc__ = about
    node(name, "latent/advanced", link("samples1", "LATENT"), link("samples2", "LATENT"), gives="LATENT")(joined)


_of_two("LatentAdd", np.add, "The sum of two latents.")
_of_two("LatentSubtract", np.subtract, "The difference of two latents.")


@node("LatentMultiply", "latent/advanced", SAMPLES, number("multiplier", 1.0, -10.0, 10.0), gives="LATENT")
def multiply(room: Room, samples: Latent, multiplier: float) -> Latent:
    """Latents times a number."""
    return replace(samples, samples=np.asarray(samples.samples * np.float32(multiplier), np.float32))
