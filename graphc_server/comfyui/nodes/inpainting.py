"""Nodes of Acly's comfyui-inpaint-nodes, for painting a part of a picture anew.

Source: its nodes.py and util.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from graphc_images import SettingError
from graphc_images.pictures.filters import convolve_lines, gaussian_kernel
from graphc_images.pictures.masks import bilinear
from graphc_server.comfyui import filling
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.nodes.latents import inpainting
from graphc_server.comfyui.table import choice, link, node, number, whole
from graphc_server.comfyui.values import Latent, Texts, Vae

GROUP = "inpaint"
IMAGE, MASK = link("image"), link("mask")
FULL = 0.99
"""What a mask has from here on counts as wholly white."""


def odd(size: int) -> int:
    """An odd number, of even ones the next."""
    return size + 1 if size > 0 and size % 2 == 0 else size


FEW = 33
"""Weights that are multiplied one by one; more go by their spectrum, however many they are."""


def blurred(array: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Planes [batch, height, width, …], blurred down and across by weights that are alike from both ends; edges are mirrored."""
    found = array.astype(np.float64)  # what is white stays 1, and is not cut off to 254 levels
    convolve = convolve_lines if len(kernel) <= FEW else _convolved_by_spectrum
    for axis in (1, 2):
        found = convolve(found, kernel, axis)
    return np.asarray(found, np.float32)


def _convolved_by_spectrum(array: np.ndarray, kernel: np.ndarray, axis: int) -> np.ndarray:
    radius, length = len(kernel) // 2, array.shape[axis]
    width = [(radius, radius) if each == axis else (0, 0) for each in range(array.ndim)]
    padded = np.pad(array, width, mode="reflect" if length > 1 else "edge")
    whole = padded.shape[axis]
    weights = np.fft.rfft(kernel, whole).reshape([-1 if each == axis else 1 for each in range(array.ndim)])
    found = np.fft.irfft(np.fft.rfft(padded, axis=axis) * weights, whole, axis=axis)
    return np.asarray(found.take(range(2 * radius, 2 * radius + length), axis))


def gaussian(size: int) -> np.ndarray:
    """A bell of so many pixels, as wide as OpenCV makes it for them."""
    return gaussian_kernel(0.3 * (size - 1) + 0.8, size)


def box(size: int) -> np.ndarray:
    """The same weight for all."""
    return np.full(size, 1 / size)


def tent(size: int) -> np.ndarray:
    """Weights that rise and fall evenly."""
    half = size // 2
    if half < 2:
        return box(size)
    rising = np.linspace(1 / half, (half - 1) / half, half)
    weights = np.concatenate([rising, [1.0], rising[::-1]])
    return np.asarray(weights / weights.sum())


KERNELS: Mapping[str, Callable[[int], np.ndarray]] = {"box": box, "linear": tent, "gaussian": gaussian}
GROW, BLUR = whole("grow", 16, 0, 8096), whole("blur", 7, 0, 8096)
KERNEL = choice("blur_type", tuple(KERNELS), "gaussian")


def _white_around(
    mask: np.ndarray, radius: int, wanted: Callable[[np.ndarray, int], np.ndarray], edge: float
) -> np.ndarray:
    """Where so many of the (2 radius + 1)² pixels around one are white; outside of the mask they are as `edge` says."""
    radius = min(radius, max(mask.shape[1:]))  # more sees no more of it
    count = np.pad(mask, ((0, 0), (radius, radius), (radius, radius)), constant_values=edge).astype(np.int64)
    for axis in (1, 2):
        sums = np.concatenate([np.zeros_like(count.take([0], axis)), np.cumsum(count, axis)], axis)
        length = count.shape[axis] - 2 * radius
        count = sums.take(range(2 * radius + 1, 2 * radius + 1 + length), axis) - sums.take(range(length), axis)
    return wanted(count, (2 * radius + 1) ** 2).astype(np.float32)


def grown(mask: np.ndarray, radius: int) -> np.ndarray:
    """White where any pixel within so many is not black."""
    return _white_around(mask > 0, radius, lambda count, most: count > 0, 0)


def shrunk(mask: np.ndarray, radius: int) -> np.ndarray:
    """White where all pixels within so many are wholly white."""
    return _white_around(mask >= 1, radius, lambda count, most: count == most, 1)


def _soft(mask: np.ndarray, blur: int, blur_type: str) -> np.ndarray:
    size = odd(blur)
    return blurred(mask, KERNELS[blur_type](size)) if size > 2 else mask.astype(np.float32)


def _check_size(image: np.ndarray, mask: np.ndarray) -> None:
    if mask.shape[1:] != image.shape[1:3]:
        sizes = [f"{each.shape[2]} x {each.shape[1]}" for each in (image, mask)]
        raise SettingError(f"mask: the pictures have {sizes[0]} pixels, and the mask {sizes[1]}")


def of_batch(mask: np.ndarray, batch: int) -> np.ndarray:
    """A mask for each of a batch: its own, or the first one's."""
    return mask if len(mask) == batch else np.repeat(mask[:1], batch, 0)


def _hole(mask: np.ndarray, batch: int, falloff: int) -> np.ndarray:
    """How much of each pixel is filled [batch, height, width]: all where the mask is white, less and less over `falloff` pixels
    from its edge inwards."""
    alpha = (mask >= FULL).astype(np.float32)
    if falloff > 0:
        alpha = alpha * blurred(shrunk(alpha, falloff), gaussian(falloff))
    return of_batch(alpha, batch)


@node("INPAINT_ExpandMask", GROUP, MASK, GROW, BLUR, KERNEL, gives="MASK", title="Expand Mask")
def expand(room: Room, mask: np.ndarray, grow: int, blur: int, blur_type: str) -> np.ndarray:
    """A mask that is larger by so many pixels, with soft edges."""
    return _soft(grown(mask, grow) if grow else mask, blur, blur_type)


@node("INPAINT_ShrinkMask", GROUP, MASK, whole("shrink", 16, 0, 8096), BLUR, KERNEL, gives="MASK", title="Shrink Mask")
def shrink(room: Room, mask: np.ndarray, shrink: int, blur: int, blur_type: str) -> np.ndarray:
    """A mask that is smaller by so many pixels, with soft edges."""
    return _soft(shrunk(mask, shrink) if shrink else mask, blur, blur_type)


@node(
    "INPAINT_StabilizeMask", GROUP, MASK, number("epsilon", 0.01, 0.0, 1.0, 0.0001), gives="MASK", title="Stabilize Mask",
)  # fmt: skip
def stabilize(room: Room, mask: np.ndarray, epsilon: float) -> np.ndarray:
    """A mask in which what is nearly white is white."""
    return np.where(mask > 1 - epsilon, np.float32(1), mask).astype(np.float32)


@node(
    "INPAINT_DenoiseToCompositingMask", GROUP, MASK, number("offset", 0.1, 0.0, 1.0), number("threshold", 0.2, 0.01, 1.0),
    gives="MASK", title="Denoise to Compositing Mask",
)  # fmt: skip
def to_compositing(room: Room, mask: np.ndarray, offset: float, threshold: float) -> np.ndarray:
    """A mask that is black up to one value and white from another on."""
    if offset >= threshold:
        raise SettingError(f"threshold: {threshold:g} is not above offset, {offset:g}")
    return np.clip((mask - offset) / (threshold - offset), 0, 1).astype(np.float32)


@node("INPAINT_MaskBoundingBox", GROUP, MASK, gives="INT INT INT INT", title="Mask Bounding Box")
def bounds(room: Room, mask: np.ndarray) -> tuple[int, int, int, int]:
    """The place and the size of what is not black in a mask: left, top, width, height."""
    rows, columns = np.nonzero(mask[0])
    if not rows.size:
        raise SettingError("mask: it is all black")
    left, top = int(columns.min()), int(rows.min())
    return left, top, int(columns.max()) + 1 - left, int(rows.max()) + 1 - top


@node(
    "INPAINT_MaskedFill", GROUP, IMAGE, MASK, choice("fill", ("neutral", "navier-stokes")), whole("falloff", 0, 0, 8191),
    gives="IMAGE", title="Fill Masked Area",
)  # fmt: skip
def fill(room: Room, image: np.ndarray, mask: np.ndarray, fill: str, falloff: int) -> np.ndarray:
    """Pictures filled under a mask: with grey, or with what is around it."""
    _check_size(image, mask)
    hole = _hole(mask, len(image), odd(falloff))
    if fill == "neutral":
        return np.asarray((image - np.float32(0.5)) * (1 - hole[..., None]) + np.float32(0.5), np.float32)

    filled = np.stack(
        [filling.navier_stokes(each, under > 0, room.go_on) for each, under in zip(image, hole, strict=True)]
    )
    return np.asarray(image * (1 - hole[..., None]) + filled * hole[..., None], np.float32)


@node(
    "INPAINT_MaskedBlur", GROUP, IMAGE, MASK, whole("blur", 255, 3, 8191), whole("falloff", 0, 0, 8191), gives="IMAGE",
    title="Blur Masked Area",
)  # fmt: skip
def blur(room: Room, image: np.ndarray, mask: np.ndarray, blur: int, falloff: int) -> np.ndarray:
    """Pictures blurred under a mask."""
    _check_size(image, mask)
    size = odd(blur)
    hole = _hole(mask, len(image), min(odd(falloff), size - 2))[..., None]
    return np.asarray(image + (blurred(image, gaussian(size)) - image) * hole, np.float32)


@node(
    "INPAINT_ColorMatch", GROUP, link("target", "IMAGE"), link("reference", "IMAGE"),
    link("exclude_mask", "MASK", optional=True), number("strength", 1.0, 0.0, 1.0), gives="IMAGE",
    title="Color Match (Masked)",
)  # fmt: skip
def match(
    room: Room, target: np.ndarray, reference: np.ndarray, exclude_mask: np.ndarray | None, strength: float
) -> np.ndarray:
    """Pictures with the mean and the spread of another's colours; what is under a mask is not looked at."""
    if not strength:
        return target
    ours, theirs = filling.to_lab(target[..., :3]), filling.to_lab(reference[..., :3])
    kept = (1.0, 1.0)
    if exclude_mask is not None:
        kept = tuple(  # type: ignore[assignment]
            of_batch(np.stack([bilinear(each, *lab.shape[1:3]) < 0.5 for each in exclude_mask]), len(lab))[..., None]
            for lab in (ours, theirs)
        )
    (mean, spread), (other_mean, other_spread) = (
        ((lab * part).mean((1, 2), keepdims=True), (lab * part).std((1, 2), keepdims=True))
        for lab, part in zip((ours, theirs), kept, strict=True)
    )
    found = filling.to_rgb((ours - mean) * (other_spread / np.maximum(spread, 1e-6)) + other_mean)
    return np.clip((1 - strength) * target[..., :3] + strength * found, 0, 1).astype(np.float32)


@node(
    "INPAINT_VAEEncodeInpaintConditioning", GROUP, link("positive", "CONDITIONING"), link("negative", "CONDITIONING"),
    link("vae"), link("pixels", "IMAGE"), MASK, gives="CONDITIONING CONDITIONING LATENT LATENT",
    title="VAE Encode & Inpaint Conditioning",
)  # fmt: skip
def encode(
    room: Room, positive: Texts, negative: Texts, vae: Vae, pixels: np.ndarray, mask: np.ndarray
) -> tuple[Texts, Texts, Latent, Latent]:
    """What `InpaintModelConditioning` gives, and before the latent one of the pictures without what is under the mask."""
    positive, negative, latent = inpainting(room, positive, negative, vae, pixels, mask, True)
    assert latent.mask is not None
    grey = positive[0].joined if positive else None
    without = replace(latent, samples=latent.samples if grey is None else grey, mask=np.rint(latent.mask))
    return positive, negative, without, latent
