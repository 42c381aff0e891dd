"""From a picture to what a ControlNet looks at: its preprocessor, and the size and shape of what is painted.

Pictures are pixels [height, width, 3 or 4] uint8; a fourth channel is the mask of what is to be made up. Source: Mikubill's
sd-webui-controlnet (preprocessors and detectmap_proc).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.latent_scaling import Kernel, cubic, weights
from graphc_images.pictures import preprocessors as network_free
from graphc_images.pictures.filters import levels, resize_area
from graphc_images.pictures.masks import nearest

FitMode = Literal["Just Resize", "Crop and Resize", "Resize and Fill"]
FIT_MODES: tuple[FitMode, ...] = ("Just Resize", "Crop and Resize", "Resize and Fill")

UNIT = 64
"""What preprocessors see has sides of multiples of this: edges are repeated."""


@dataclass(frozen=True)
class Slider:
    """A number that a preprocessor takes: its usual value, and its range."""

    usual: float
    low: float
    high: float


@dataclass(frozen=True)
class Preprocessor:
    """What makes a hint: `run` gets pixels, the two numbers, and a seed. `scaled` says that it works at a resolution of its own,
    `masked` that it takes a mask, `shows` what kind of picture it gives (for ControlNets that tell them apart)."""

    run: Callable[[np.ndarray, float, float, int], np.ndarray]
    a: Slider | None = None
    b: Slider | None = None
    scaled: bool = False
    masked: bool = False
    shows: str | None = None
    others: tuple[str, ...] = ()
    """Other names: sd-webui-controlnet's labels, and ComfyUI's nodes."""


def _same(pixels: np.ndarray, a: float, b: float, seed: int) -> np.ndarray:
    return pixels


GAMMA = Slider(1, 0.1, 2)
PREPROCESSORS: Mapping[str, Preprocessor] = {
    "none": Preprocessor(_same),
    "canny": Preprocessor(
        lambda pixels, low, high, seed: network_free.canny(pixels, int(low), int(high)),
        Slider(100, 1, 255), Slider(200, 1, 255), scaled=True, shows="canny", others=("Canny", "CannyEdgePreprocessor"),
    ),
    "invert": Preprocessor(
        lambda pixels, a, b, seed: network_free.invert(pixels), shows="canny",
        others=("invert (from white bg & black line)", "ImageInvert"),
    ),
    "threshold": Preprocessor(
        lambda pixels, level, b, seed: network_free.threshold(pixels, level), Slider(127, 0, 255), scaled=True,
        others=("BinaryPreprocessor",),
    ),
    "blur_gaussian": Preprocessor(
        lambda pixels, sigma, b, seed: network_free.blur(pixels, sigma), Slider(9, 0.01, 64), scaled=True, shows="tile",
        others=("ImageBlur",),
    ),
    "tile_resample": Preprocessor(
        lambda pixels, factor, b, seed: network_free.tile(pixels, factor), Slider(1, 1, 8), shows="tile",
        others=("TilePreprocessor",),
    ),
    "tile_colorfix": Preprocessor(_same, Slider(8, 3, 32), shows="tile"),
    "shuffle": Preprocessor(
        lambda pixels, a, b, seed: network_free.shuffle(pixels, seed), scaled=True, others=("ShufflePreprocessor",),
    ),
    "recolor_luminance": Preprocessor(
        lambda pixels, gamma, b, seed: network_free.recolor(pixels, gamma, by="luminance"), GAMMA,
        others=("recolor", "ImageLuminanceDetector"),
    ),
    "recolor_intensity": Preprocessor(
        lambda pixels, gamma, b, seed: network_free.recolor(pixels, gamma, by="intensity"), GAMMA,
        others=("ImageIntensityDetector",),
    ),
    "scribble_xdog": Preprocessor(
        lambda pixels, level, b, seed: network_free.scribble(pixels, int(level)), Slider(32, 1, 64), scaled=True,
        shows="softedge", others=("Scribble_XDoG_Preprocessor",),
    ),
    "inpaint": Preprocessor(
        _same, masked=True, shows="inpaint", others=("inpaint_global_harmonious", "InpaintPreprocessor"),
    ),
    "inpaint_only": Preprocessor(_same, masked=True, shows="inpaint"),
}  # fmt: skip
"""By sd-webui-controlnet's names."""

RESOLUTION = 512
"""At which preprocessors work, if nobody says: the shorter side."""


def preprocessor_of(name: str) -> str:
    """The name in the table, of any of its names in large or small letters. Raises SettingError that has them all."""
    for own, each in PREPROCESSORS.items():
        if name.lower() in (other.lower() for other in (own, *each.others)):
            return own
    raise SettingError(f"there is no preprocessor {name!r}; there are {', '.join(PREPROCESSORS)}, and any ONNX file")


def preprocessed(
    pixels: np.ndarray, name: str, resolution: int, a: float | None, b: float | None, seed: int
) -> np.ndarray:
    """What a preprocessor of the table makes of a picture; numbers that are None or out of range are the usual ones."""
    found = PREPROCESSORS[name]
    first, second = within(found.a, a), within(found.b, b)
    if not found.scaled:
        return found.run(pixels, first, second, seed)
    return at_resolution(pixels, resolution, lambda shown: found.run(shown, first, second, seed))


def within(slider: Slider | None, value: float | None) -> float:
    """A number of a preprocessor: the usual one for None, and for what is out of range."""
    if slider is None:
        return 0.0
    return slider.usual if value is None or not slider.low <= value <= slider.high else value


def at_resolution(
    pixels: np.ndarray, resolution: int, run: Callable[[np.ndarray], np.ndarray], unit: int = UNIT
) -> np.ndarray:
    """What a function makes of a picture whose shorter side has this many pixels, and whose sides are multiples of a unit: its
    edges are repeated, and what that gave is cut off."""
    scale = resolution / min(pixels.shape[:2])
    height, width = (max(int(np.rint(side * scale)), 1) for side in pixels.shape[:2])
    scaled = at_size(pixels[..., :3], height, width)
    more = [(0, -height % unit), (0, -width % unit), (0, 0)]
    return run(np.pad(scaled, more, mode="edge"))[:height, :width]


def at_size(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture at another size: means over areas if it becomes smaller, else cubic as OpenCV has it."""
    if pixels.shape[:2] == (height, width):
        return pixels
    if height * width < pixels.shape[0] * pixels.shape[1]:
        return levels(resize_area(pixels.astype(np.float64), height, width))
    kernel = Kernel(2, cubic(-0.75))
    down, across = weights(pixels.shape[0], height, kernel), weights(pixels.shape[1], width, kernel)
    return levels(np.einsum("hy,yxc,wx->hwc", down, pixels.astype(np.float64), across, optimize=True))


def hint_at_size(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """A hint at another size: few colours are not mixed, and what is black and white stays so."""
    if pixels.shape[:2] == (height, width):
        return pixels
    colours, mask = pixels[..., :3], pixels[..., 3:]
    count = len(np.unique(colours.reshape(-1, 3), axis=0))
    if 2 < count < 200:
        found = nearest(colours, height, width)
        mask = nearest(mask, height, width)
    else:
        found, mask = at_size(colours, height, width), at_size(mask, height, width)
    if count == 2 and colours.min() < 16 and colours.max() > 240:
        found = _black_and_white(found)
    return np.concatenate([found, np.where(mask > 127, 255, 0).astype(np.uint8)], -1)


def _black_and_white(pixels: np.ndarray) -> np.ndarray:
    """Every pixel black or white, divided where that separates the two best (Otsu 1979)."""
    gray = pixels.astype(np.float32).mean(-1).clip(0, 255).astype(np.uint8)
    counts = np.bincount(gray.ravel(), minlength=256) / gray.size
    below, mean = np.cumsum(counts), np.cumsum(counts * np.arange(256))
    with np.errstate(divide="ignore", invalid="ignore"):
        between = np.nan_to_num((mean[-1] * below - mean) ** 2 / (below * (1 - below)), posinf=0)
    white = gray > int(between.argmax())
    return np.asarray(np.repeat(np.where(white, 255, 0)[..., None], 3, -1), np.uint8)


def fitted(pixels: np.ndarray, height: int, width: int, mode: FitMode) -> np.ndarray:
    """A hint in the size of what is painted: stretched, cut where it is over, or with room of its borders' colour around it; in
    that room, a mask says that all is to be made up."""
    if mode == "Just Resize":
        return hint_at_size(pixels, height, width)
    scales = height / pixels.shape[0], width / pixels.shape[1]
    scale = min(scales) if mode == "Resize and Fill" else max(scales)
    inner = hint_at_size(pixels, *(max(int(np.rint(side * scale)), 1) for side in pixels.shape[:2]))
    rows, columns = inner.shape[:2]
    top, left = abs(height - rows) // 2, abs(width - columns) // 2
    if mode == "Crop and Resize":
        return inner[top : top + height, left : left + width]
    borders = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    colour = np.median(borders, axis=0).astype(np.uint8)
    colour[3:] = 255
    found = np.tile(colour, (height, width, 1))
    found[top : top + rows, left : left + columns] = inner
    return found


def pixel_perfect(pixels: np.ndarray, height: int, width: int, mode: FitMode) -> int:
    """The resolution at which a preprocessor gives a hint that needs no scaling."""
    scales = height / pixels.shape[0], width / pixels.shape[1]
    scale = min(scales) if mode == "Resize and Fill" else max(scales)
    return int(np.rint(scale * min(pixels.shape[:2])))


def as_array(pixels: np.ndarray) -> np.ndarray:
    """What a control looks at [1, 3, height, width], 0 to 1; -1 where the mask, if there is one, has something made up."""
    colours = pixels[..., :3]
    found = colours.astype(np.float32).transpose(2, 0, 1) / np.float32(255)
    masked = network_free.inpaint(colours, pixels[..., 3] / 255) if pixels.shape[-1] == 4 else found
    return np.ascontiguousarray(masked[None])
