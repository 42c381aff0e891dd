"""Small pictures of latents while they are made, without a VAE: each pixel's channels times a matrix.

Source: ComfyUI's comfy/latent_formats.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.pictures.arrays import to_picture


class Preview(NamedTuple):
    """Red, green and blue by channel of the latent, in 10,000ths, and what is added."""

    factors: tuple[tuple[int, int, int], ...]
    bias: tuple[int, int, int] = (0, 0, 0)


PREVIEWS = {
    "sd1": Preview(((3512, 2297, 3227), (3250, 4974, 2350), (-2829, 1762, 2721), (-2120, -2616, -7177))),
    "sdxl": Preview(
        ((3651, 4232, 4341), (-2533, -42, 1068), (1076, 1111, -362), (-3165, -2492, -2188)), (1084, -175, -11)
    ),
    "sd3": Preview(
        (
            *((-922, -175, 749), (311, 633, 954), (1994, 927, 458), (856, 339, 902), (587, 272, -496), (-6, 1104, 309)),
            *(
                (978, 306, 427),
                (-42, 1038, 1358),
                (-194, 20, 669),
                (-488, 130, -268),
                (922, 988, 951),
                (-278, 524, -542),
            ),
            *((332, 456, 895), (-69, -30, -810), (-596, -465, -293), (-1448, -1463, -1189)),
        ),
        (2394, 2135, 1925),
    ),
    "flux": Preview(
        (
            *((-346, 244, 681), (34, 210, 687), (275, -668, -433), (-174, 160, 617), (859, 721, 329), (4, 383, 115)),
            *(
                (405, 861, 915),
                (-236, -185, -259),
                (-245, 250, 1180),
                (1008, 755, -421),
                (-515, 201, 11),
                (428, -12, -36),
            ),
            *((817, 765, 749), (-1264, -522, -1103), (-280, -881, -499), (-1262, -982, -778)),
        ),
        (-329, -718, -851),
    ),
}


def preview(latent: np.ndarray, family: str) -> Image.Image:
    """A picture of one pixel for each of a latent [channels, height, width] of a family of VAEs."""
    if family not in PREVIEWS:
        raise SettingError(f"there is no quick preview for {family!r}; there are {', '.join(PREVIEWS)}")
    factors, bias = (np.array(part, np.float32) / np.float32(10_000) for part in PREVIEWS[family])
    if latent.ndim != 3 or latent.shape[0] != len(factors):
        raise SettingError(f"a latent of {family} is [{len(factors)}, height, width], not {list(latent.shape)}")
    return to_picture(np.einsum("chw,cr->rhw", latent, factors) + bias[:, None, None])
