"""Preprocessors that are ONNX files of the user's: depth, lines, poses, segments.

What such a file wants and what it gives is told by its name, by one table of the models that people use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import graphc
from graphc_images.errors import ModelError
from graphc_images.folders import ModelFolders
from graphc_images.from_files import Stamp, stamp
from graphc_images.pictures.arrays import flatten
from graphc_images.pictures.filters import levels
from graphc_images.pictures.hints import PREPROCESSORS, RESOLUTION, at_resolution, at_size, preprocessed

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
EVEN = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
PLAIN = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
IN_LEVELS = ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))
"""Means and deviations of red, green and blue, from 0 to 1, that are taken off and divided by; the last for 0 to 255."""

Reading = Callable[[np.ndarray], np.ndarray]


def near_is_white(found: np.ndarray) -> np.ndarray:
    """Depth [1, height, width] as most ControlNets were trained: from the least to the largest number."""
    low, high = found.min(), found.max()
    return np.asarray((found - low) * (255 / (high - low)) if high > low else np.zeros_like(found))


def far_is_white(found: np.ndarray) -> np.ndarray:
    """The same of models that give distances."""
    return near_is_white(-found)


def lines(found: np.ndarray) -> np.ndarray:
    """White lines: numbers from 0 to 1, or what a logistic function has still to make of them."""
    if found.min() < 0 or found.max() > 1:
        found = 1 / (1 + np.exp(-found))
    return np.asarray(found[:1] * 255)


def drawn(found: np.ndarray) -> np.ndarray:
    """White lines, of a drawing in black on white."""
    return np.asarray(255 - lines(found))


def normals(found: np.ndarray) -> np.ndarray:
    """Directions [3, height, width], -1 to 1, as colours."""
    length = np.sqrt((found**2).sum(0, keepdims=True))
    return np.asarray((found / np.maximum(length, 1e-6) + 1) * 127.5)


def segments(found: np.ndarray) -> np.ndarray:
    """A colour for the most likely class, of those that ControlNets for segments were trained with."""
    classes = found[0].astype(int) if len(found) == 1 else found.argmax(0)
    return np.asarray(ADE20K[classes % len(ADE20K)].transpose(2, 0, 1), np.float32)


def picture(found: np.ndarray) -> np.ndarray:
    """What is a picture already: red, green and blue or gray, from 0 to 1, from -1 to 1, or in levels."""
    if found.max() > 2:
        return found
    return np.asarray((found + 1) * 127.5 if found.min() < -0.1 else found * 255)


ADE20K = np.frombuffer(bytes.fromhex("""
    787878 b47878 06e6e6 503232 04c803 787850 8c8c8c cc05ff e6e6e6 04fa07 e005ff ebff07 96053d 787846 08ff33
    ff0652 8fff8c ccff04 ff3307 cc4603 0066c8 3de6fa ff0633 0b66ff ff0747 ff09e0 0907e6 dcdcdc ff095c 7009ff
    08ffd6 07ffe0 ffb806 0aff47 ff290a 07ffff e0ff08 6608ff ff3d06 ffc207 ff7a08 00ff14 ff0829 ff0599 0633ff
    eb0cff a09614 00a3ff 8c8c8c fa0a0f 14ff00 1fff00 ff1f00 ffe000 99ff00 0000ff ff4700 00ebff 00adff 1f00ff
    0bc8c8 ff5200 00fff5 003dff 00ff70 00ff85 ff0000 ffa300 ff6600 c2ff00 008fff 33ff00 0052ff 00ff29 00ffad
    0a00ff adff00 00ff99 ff5c00 ff00ff ff00f5 ff0066 ffad00 ff0014 ffb8b8 001fff 00ff3d 0047ff ff00cc 00ffc2
    00ff52 000aff 0070ff 3300ff 00c2ff 007aff 00ffa3 ff9900 00ff0a ff7000 8fff00 5200ff a3ff00 ffeb00 08b8aa
    8500ff 00ff5c b800ff ff001f 00b8ff 00d6ff ff0070 5cff00 00e0ff 70e0ff 46b8a0 a300ff 9900ff 47ff00 ff00a3
    ffcc00 ff008f 00ffeb 85ff00 ff00eb f500ff ff007a fff500 0abed4 d6ff00 00ccff 1400ff ffff00 0099ff 0029ff
    00ffcc 2900ff 29ff00 ad00ff 00f5ff 4700ff 7a00ff 00ffb8 005cff b8ff00 0085ff ffd600 19c2c2 66ff00 5c00ff
"""), np.uint8).reshape(-1, 3)  # fmt: skip
"""The colours of ADE20K's 150 classes, as its people draw them, and ControlNets for segments were trained with."""


@dataclass(frozen=True)
class Detector:
    """What a kind of file wants: colours by `scale` (means and deviations), and sides that are multiples of `unit`.

    `read` makes levels [1 or 3, height, width] of what it gives, and `shows` says what they are of.
    """

    words: tuple[str, ...]
    read: Reading
    shows: str | None
    scale: tuple[tuple[float, ...], tuple[float, ...]] = PLAIN
    unit: int = 32


DETECTORS: tuple[Detector, ...] = (
    Detector(("depth_anything", "depth-anything", "dav2"), near_is_white, "depth", IMAGENET, 14),
    Detector(("midas", "dpt"), near_is_white, "depth", EVEN),
    Detector(("zoe", "metric", "distance"), far_is_white, "depth", EVEN),
    Detector(("leres",), near_is_white, "depth", IMAGENET),
    Detector(("depth",), near_is_white, "depth", IMAGENET, 14),
    Detector(("normal", "dsine", "bae"), normals, "normal", IMAGENET),
    Detector(("lineart", "line_art", "sketch"), drawn, "canny"),
    Detector(("anyline", "mlsd"), lines, "canny", IN_LEVELS),
    Detector(("hed",), lines, "softedge", IN_LEVELS),
    Detector(("pidi", "teed", "softedge", "edge"), lines, "softedge"),
    Detector(("seg", "oneformer", "upernet"), segments, "segmentation", IMAGENET),
    Detector(("pose",), picture, "openpose"),
    Detector(("",), picture, None),
)
"""By words in the file's name, the first that fits. The last is for all others: a picture in, a picture out."""


class Detectors:
    """ONNX files, compiled when they are first used, or engines that graphc made of them; of one the program is kept."""

    def __init__(self, folders: ModelFolders | None) -> None:
        self.folders = folders
        self._loaded: tuple[tuple[Path, Stamp], graphc.Model] | None = None

    def has(self, name: str | os.PathLike[str]) -> bool:
        """True if a preprocessor is a file."""
        return Path(name).suffix.lower() in (".onnx", ".gguf")

    def hint(
        self,
        image: Image.Image,
        mask: Image.Image | None,
        module: str,
        resolution: int = RESOLUTION,
        numbers: tuple[float | None, float | None] = (None, None),
    ) -> Image.Image:
        """What a preprocessor makes of a picture; see `made`. A mask of the picture's size is for those that take one."""
        planes = [flatten(image), *([] if mask is None else [mask.convert("L")])]
        pixels, _ = self.made(np.dstack([np.asarray(each) for each in planes]), module, resolution, numbers, 0)
        return Image.fromarray(np.ascontiguousarray(pixels[..., :3]))

    def made(
        self, pixels: np.ndarray, module: str, resolution: int, numbers: tuple[float | None, float | None], seed: int
    ) -> tuple[np.ndarray, str | None]:
        """What a preprocessor of the table, or of a file, makes of a picture [height, width, 3 or 4], and what that shows.

        Raises as `__call__`.
        """
        if module in PREPROCESSORS:
            return preprocessed(pixels, module, resolution, *numbers, seed), PREPROCESSORS[module].shows
        return self(pixels[..., :3], module, resolution)

    def __call__(self, pixels: np.ndarray, name: str, resolution: int) -> tuple[np.ndarray, str | None]:
        """What a file makes of a picture [height, width, 3], as such pixels, and what that shows.

        The picture's shorter side gets this many pixels, if the file takes any size. Raises ModelError for a file that is not
        there, takes or gives something else than pictures, or cannot be compiled.
        """
        path = self.folders.find("preprocessor", name) if self.folders is not None else Path(name)
        if not path.is_file():
            raise ModelError(f"there is no preprocessor {str(name)!r}")
        stem = path.stem.lower()
        detector = next(each for each in DETECTORS if any(word in stem for word in each.words))
        model = self._model(path)
        found = self._sized(pixels, model, path, detector, resolution)
        return at_size(found, *_sides_at(pixels, resolution)), detector.shows

    def _model(self, path: Path) -> graphc.Model:
        key = path, stamp(path)
        if self._loaded is None or self._loaded[0] != key:
            self.close()
            try:
                made = graphc.load(path) if path.suffix.lower() == ".gguf" else graphc.compile(path)
            except graphc.GraphcError as error:
                raise ModelError(f"{path}: {error}") from error
            self._loaded = key, made
        return self._loaded[1]

    def close(self) -> None:
        """Free what is loaded."""
        if self._loaded is not None:
            self._loaded[1].close()
            self._loaded = None

    def _sized(
        self, pixels: np.ndarray, model: graphc.Model, path: Path, detector: Detector, resolution: int
    ) -> np.ndarray:
        if len(model.inputs) != 1 or len(model.inputs[0].shape) != 4:
            wants = "; ".join(map(str, model.inputs))
            raise ModelError(f"{path}: a preprocessor takes one picture, and it takes {wants}")
        shape = model.inputs[0].shape
        last = shape[3] == 3 and shape[1] != 3
        fixed = [size if isinstance(size, int) else None for size in (shape[1:3] if last else shape[2:4])]

        def run(shown: np.ndarray) -> np.ndarray:
            return _run(shown, model, path, detector, last)

        if None in fixed:
            return at_resolution(pixels, resolution, run, detector.unit)
        return run(at_size(pixels, *(size for size in fixed if size is not None)))


def _sides_at(pixels: np.ndarray, resolution: int) -> tuple[int, int]:
    scale = resolution / min(pixels.shape[:2])
    height, width = (max(int(np.rint(side * scale)), 1) for side in pixels.shape[:2])
    return height, width


def _run(shown: np.ndarray, model: graphc.Model, path: Path, detector: Detector, last: bool) -> np.ndarray:
    """Pixels in, pixels out, of the same size."""
    mean, deviation = (np.array(each, np.float32) for each in detector.scale)
    given = ((shown.astype(np.float32) / 255 - mean) / deviation)[None]
    info = model.inputs[0]
    array = np.ascontiguousarray(given if last else given.transpose(0, 3, 1, 2)).astype(info.dtype)
    try:
        found = next(iter(model({info.name: array}).values()))
    except graphc.GraphcError as error:
        raise ModelError(f"{path}: {error}") from error
    result = np.asarray(found, np.float32)
    while result.ndim > 3 and len(result) == 1:
        result = result[0]
    result = result.transpose(2, 0, 1) if result.ndim == 3 and last and result.shape[-1] <= 3 else result
    result = result[None] if result.ndim == 2 else result
    if result.ndim != 3 or 0 in result.shape:
        raise ModelError(f"{path}: it gives {list(np.shape(found))}, which is no picture")
    made = detector.read(result)
    if len(made) not in (1, 3):
        raise ModelError(
            f"{path}: it gives {len(made)} channels; a preprocessor's name says what they are, such as seg"
        )
    return at_size(levels(np.broadcast_to(made, (3, *made.shape[1:])).transpose(1, 2, 0)), *shown.shape[:2])
