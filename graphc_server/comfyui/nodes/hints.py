"""Nodes that make of a picture what ControlNets look at, under the names of Fannovel16's comfyui_controlnet_aux.

Source: its node_wrappers and hint_image_enchance.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc_images import ModelError
from graphc_images.pictures.hints import FIT_MODES, FitMode, at_resolution, fitted, preprocessor_of
from graphc_images.pictures.masks import bilinear
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.table import Input, choice, link, node, side, switch, whole

GROUP = "ControlNet Preprocessors"
IMAGE = link("image")
RESOLUTION = whole("resolution", 512, 64, 16384, optional=True)


def _made(room: Room, image: np.ndarray, module: str, resolution: int, *numbers: float) -> np.ndarray:
    first, second = (*numbers, None, None)[:2]
    found = []
    for each in image[..., :3]:
        pixels = (each * 255).clip(0, 255).astype(np.uint8)
        made, _ = room.library.models.detectors.made(pixels, module, resolution, (first, second), 0)
        found.append(np.ascontiguousarray(made[..., :3]))
    return np.stack(found).astype(np.float32) / np.float32(255)


def _of_table(name: str, title: str, *numbers: Input) -> None:
    """A node of a preprocessor that needs no network; `numbers` are the names of what it takes."""
    own = preprocessor_of(name)

    def run(room: Room, image: np.ndarray, resolution: int, **given: float) -> np.ndarray:
        return _made(room, image, own, resolution, *given.values())

    run.__doc__ = f"The preprocessor {own}, at a resolution."
    node(name, GROUP, IMAGE, *numbers, RESOLUTION, gives="IMAGE", title=title)(run)


_of_table(
    "CannyEdgePreprocessor",
    "Canny Edge",
    whole("low_threshold", 100, 0, 255, optional=True),
    whole("high_threshold", 200, 0, 255, optional=True),
)
_of_table("Scribble_XDoG_Preprocessor", "Scribble XDoG Lines", whole("threshold", 32, 1, 64, optional=True))

NETWORKS = {
    "DepthAnythingV2Preprocessor": (
        "Depth Anything V2 - Relative",
        ("depth_anything", "depth-anything", "dav2", "depth"),
    ),
    "LineArtPreprocessor": ("Realistic Lineart", ("lineart", "line_art")),
    "AnyLineArtPreprocessor_aux": ("AnyLine Lineart", ("anyline", "mteed", "lineart")),
    "PiDiNetPreprocessor": ("PiDiNet Soft-Edge Lines", ("pidi", "softedge", "teed", "hed")),
    "BAE-NormalMapPreprocessor": ("BAE Normal Map", ("bae", "normal")),
    "DWPreprocessor": ("DWPose Estimator", ("pose",)),
    "OneFormer-COCO-SemSegPreprocessor": ("OneFormer COCO Segmentor", ("oneformer", "seg")),
}
"""Nodes whose networks are ONNX files of the user's, and words in their names, the best first."""


def _file(room: Room, words: tuple[str, ...], name: str) -> str:
    files = room.library.models.files("preprocessor")
    for word in words:
        for each in files:
            if word in each.name.lower():
                return each.name
    there = ", ".join(each.name for each in files) or "none"
    raise ModelError(
        f"{name} wants a network: put its ONNX file, with {words[0]!r} in its name, into the folder preprocessors, "
        f"where there is {there}"
    )


def _of_network(name: str, title: str, words: tuple[str, ...]) -> None:
    def run(room: Room, image: np.ndarray, resolution: int) -> np.ndarray:
        return _made(room, image, _file(room, words, name), resolution)

    def changed(room: Room, **others: Any) -> list[str]:
        return [f"{each.path} {each.path.stat().st_mtime_ns}" for each in room.library.models.files("preprocessor")]

    run.__doc__ = f"What an ONNX file of the folder preprocessors, with {words[0]!r} in its name, makes of a picture."
    node(name, GROUP, IMAGE, RESOLUTION, gives="IMAGE", title=title, changed=changed)(run)


for _name, (_title, _words) in NETWORKS.items():
    _of_network(_name, _title, _words)


@node("ScribblePreprocessor", GROUP, IMAGE, RESOLUTION, gives="IMAGE", title="Scribble Lines")
def scribble(room: Room, image: np.ndarray, resolution: int) -> np.ndarray:
    """Black where a picture is darker than half, and else white, as if it were a drawing."""

    def drawn(pixels: np.ndarray) -> np.ndarray:
        return np.repeat(np.where(pixels.min(-1, keepdims=True) < 127, 0, 255), 3, -1).astype(np.uint8)

    pixels = (image[..., :3] * 255).clip(0, 255).astype(np.uint8)
    return np.stack([at_resolution(each, resolution, drawn) for each in pixels]).astype(np.float32) / np.float32(255)


@node(
    "InpaintPreprocessor", GROUP, IMAGE, link("mask"), switch("black_pixel_for_xinsir_cn", False, optional=True), gives="IMAGE",
    title="Inpaint Preprocessor",
)  # fmt: skip
def inpaint(room: Room, image: np.ndarray, mask: np.ndarray, black_pixel_for_xinsir_cn: bool) -> np.ndarray:
    """Pictures that ControlNets for inpainting follow: -1, or black, where a mask is white."""
    masks = np.stack([bilinear(each, *image.shape[1:3]) for each in mask]) > 0.5
    masks = masks if len(masks) == len(image) else masks[:1]
    hidden = np.float32(0 if black_pixel_for_xinsir_cn else -1)
    return np.where(masks[..., None], hidden, image[..., :3]).astype(np.float32)


@node(
    "HintImageEnchance", GROUP, link("hint_image", "IMAGE"), side("image_gen_width", 512, 8), side("image_gen_height", 512, 8),
    choice("resize_mode", FIT_MODES, FIT_MODES[0]), gives="IMAGE", title="Enchance And Resize Hint Images",
)  # fmt: skip
def enhance(
    room: Room, hint_image: np.ndarray, image_gen_width: int, image_gen_height: int, resize_mode: FitMode
) -> np.ndarray:
    """Hints at another size, in which lines stay thin and colours stay few."""
    room.check_pixels(image_gen_width, image_gen_height, len(hint_image))
    pixels = (hint_image * 255).clip(0, 255).astype(np.uint8)
    made = [fitted(each, image_gen_height, image_gen_width, resize_mode) for each in pixels]
    return np.stack(made).astype(np.float32) / np.float32(255)
