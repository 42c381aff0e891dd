"""Latents: what a denoiser works on, and how it is related to what an autoencoder encodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

Rows = tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class LatentFormat:
    """The latents of a family of models: `channels`, and the pixels along a side of the picture for each of theirs.

    A denoiser's latent is `(encoded - shift) * scale`, where `encoded` is the autoencoder's; `shifts` and `scales` are for each
    channel besides, where they differ. `colours` has red, green and blue
    for each channel, and `bias` is added to them: a rough picture, -1 to 1, without any network. `tiny` is the kind of TAESD
    that knows these latents. With `packed` 2, four channels are a square of the autoencoder's own latent, whose channels
    `colours` are for.
    """

    channels: int
    scale: float
    shift: float = 0.0
    pixels: int = 8
    colours: Rows = ()
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0)
    tiny: str = ""
    shifts: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    packed: int = 1

    def from_encoded(self, encoded: np.ndarray) -> np.ndarray:
        """The denoiser's latent, float32."""
        shift, scale = self._each()
        return np.asarray((encoded - shift) * scale, np.float32)

    def to_encoded(self, latent: np.ndarray) -> np.ndarray:
        """The autoencoder's, float32."""
        shift, scale = self._each()
        return np.asarray(latent / scale + shift, np.float32)

    def _each(self) -> tuple[np.ndarray, np.ndarray]:
        """Shift and scale: one number, or one for each channel."""
        shift = np.array(self.shifts or [0], np.float32)[:, None, None] + np.float32(self.shift)
        scale = np.array(self.scales or [1], np.float32)[:, None, None] * np.float32(self.scale)
        return shift, scale

    def preview(self, latent: np.ndarray) -> np.ndarray:
        """A picture [batch, 3, height, width] as small as the autoencoder's latent, about -1 to 1."""
        latent = unpacked(latent, self.packed)
        colours = np.array(self.colours, np.float32)
        mixed: np.ndarray = np.einsum("bchw,cr->brhw", latent, colours)
        mixed += np.array(self.bias, np.float32)[:, None, None]
        return mixed


def unpacked(latent: np.ndarray, side: int) -> np.ndarray:
    """Channels as squares of `side` x `side`: so many times fewer, and an image that is larger."""
    batch, channels, height, width = latent.shape
    cut = latent.reshape(batch, channels // side**2, side, side, height, width).transpose(0, 1, 4, 2, 5, 3)
    return np.ascontiguousarray(cut.reshape(batch, channels // side**2, side * height, side * width))


def packed(latent: np.ndarray, side: int) -> np.ndarray:
    """The reverse: squares as channels."""
    batch, channels, height, width = latent.shape
    cut = latent.reshape(batch, channels, height // side, side, width // side, side).transpose(0, 1, 3, 5, 2, 4)
    return np.ascontiguousarray(cut.reshape(batch, side**2 * channels, height // side, width // side))


SD1 = LatentFormat(
    4,
    0.18215,
    colours=(
        (0.3512, 0.2297, 0.3227), (0.3250, 0.4974, 0.2350), (-0.2829, 0.1762, 0.2721), (-0.2120, -0.2616, -0.7177),
    ),
    tiny="taesd",
)  # fmt: skip
SHAPES = LatentFormat(
    4,
    SD1.scale,
    colours=((0.5001, 0.5672, 0.6453), (-0.2298, -0.2136, -0.1315), (0.0694, -0.0056, -0.1680), (-0.0525, -0.1581, -0.3146)),
    bias=(0.6221, 0.5821, 0.5592),
)  # fmt: skip
"""The small model's (`examples/shapes/latents.py` found the colours)."""
SDXL = LatentFormat(
    4,
    0.13025,
    colours=(
        (0.3651, 0.4232, 0.4341), (-0.2533, -0.0042, 0.1068), (0.1076, 0.1111, -0.0362), (-0.3165, -0.2492, -0.2188),
    ),
    bias=(0.1084, -0.0175, -0.0011),
    tiny="taesdxl",
)  # fmt: skip
PLAYGROUND = replace(
    SDXL,
    scale=0.5,
    shifts=(-1.6574, 1.886, -1.383, 2.5155),
    scales=tuple(1 / deviation for deviation in (8.4927, 5.9022, 6.5498, 5.2299)),
)
"""Playground 2.5: each channel less its mean, divided by its deviation; the colours are those of SDXL."""
SD3 = LatentFormat(
    16,
    1.5305,
    0.0609,
    colours=(
        (-0.0922, -0.0175, 0.0749), (0.0311, 0.0633, 0.0954), (0.1994, 0.0927, 0.0458), (0.0856, 0.0339, 0.0902),
        (0.0587, 0.0272, -0.0496), (-0.0006, 0.1104, 0.0309), (0.0978, 0.0306, 0.0427), (-0.0042, 0.1038, 0.1358),
        (-0.0194, 0.0020, 0.0669), (-0.0488, 0.0130, -0.0268), (0.0922, 0.0988, 0.0951), (-0.0278, 0.0524, -0.0542),
        (0.0332, 0.0456, 0.0895), (-0.0069, -0.0030, -0.0810), (-0.0596, -0.0465, -0.0293), (-0.1448, -0.1463, -0.1189),
    ),
    bias=(0.2394, 0.2135, 0.1925),
    tiny="taesd3",
)  # fmt: skip
FLUX = LatentFormat(
    16,
    0.3611,
    0.1159,
    colours=(
        (-0.0346, 0.0244, 0.0681), (0.0034, 0.0210, 0.0687), (0.0275, -0.0668, -0.0433), (-0.0174, 0.0160, 0.0617),
        (0.0859, 0.0721, 0.0329), (0.0004, 0.0383, 0.0115), (0.0405, 0.0861, 0.0915), (-0.0236, -0.0185, -0.0259),
        (-0.0245, 0.0250, 0.1180), (0.1008, 0.0755, -0.0421), (-0.0515, 0.0201, 0.0011), (0.0428, -0.0012, -0.0036),
        (0.0817, 0.0765, 0.0749), (-0.1264, -0.0522, -0.1103), (-0.0280, -0.0881, -0.0499), (-0.1262, -0.0982, -0.0778),
    ),
    bias=(-0.0329, -0.0718, -0.0851),
    tiny="taef1",
)  # fmt: skip
WAN_MEANS = (
    -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497,
    0.2503, -0.2921,
)  # fmt: skip
WAN_DEVIATIONS = (
    2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251,
    1.9160,
)  # fmt: skip
WAN = LatentFormat(
    16,
    1.0,
    colours=(
        (-0.1299, -0.1692, 0.2932), (0.0671, 0.0406, 0.0442), (0.3568, 0.2548, 0.1747), (0.0372, 0.2344, 0.1420),
        (0.0313, 0.0189, -0.0328), (0.0296, -0.0956, -0.0665), (-0.3477, -0.4059, -0.2925), (0.0166, 0.1902, 0.1975),
        (-0.0412, 0.0267, -0.1364), (-0.1293, 0.0740, 0.1636), (0.0680, 0.3019, 0.1128), (0.0032, 0.0581, 0.0639),
        (-0.1251, 0.0927, 0.1699), (0.0060, -0.0633, 0.0005), (0.3477, 0.2275, 0.2950), (0.1984, 0.0913, 0.1861),
    ),
    bias=(-0.1835, -0.0868, -0.3360),
    tiny="taew2_1",
    shifts=WAN_MEANS,
    scales=tuple(1 / each for each in WAN_DEVIATIONS),
)  # fmt: skip
FLUX2 = LatentFormat(
    128,
    1.0,
    pixels=16,
    colours=(
        (0.0058, 0.0113, 0.0073), (0.0495, 0.0443, 0.0836), (-0.0099, 0.0096, 0.0644), (0.2144, 0.3009, 0.3652),
        (0.0166, -0.0039, -0.0054), (0.0157, 0.0103, -0.0160), (-0.0398, 0.0902, -0.0235), (-0.0052, 0.0095, 0.0109),
        (-0.3527, -0.2712, -0.1666), (-0.0301, -0.0356, -0.0180), (-0.0107, 0.0078, 0.0013), (0.0746, 0.0090, -0.0941),
        (0.0156, 0.0169, 0.0070), (-0.0034, -0.0040, -0.0114), (0.0032, 0.0181, 0.0080), (-0.0939, -0.0008, 0.0186),
        (0.0018, 0.0043, 0.0104), (0.0284, 0.0056, -0.0127), (-0.0024, -0.0022, -0.0030), (0.1207, -0.0026, 0.0065),
        (0.0128, 0.0101, 0.0142), (0.0137, -0.0072, -0.0007), (0.0095, 0.0092, -0.0059), (0.0000, -0.0077, -0.0049),
        (-0.0465, -0.0204, -0.0312), (0.0095, 0.0012, -0.0066), (0.0290, -0.0034, 0.0025), (0.0220, 0.0169, -0.0048),
        (-0.0332, -0.0457, -0.0468), (-0.0085, 0.0389, 0.0609), (-0.0076, 0.0003, -0.0043), (-0.0111, -0.0460, -0.0614),
    ),
    bias=(-0.0329, -0.0718, -0.0851),
    tiny="taef2",
    packed=2,
)  # fmt: skip
"""The autoencoder's engines scale its latents, by statistics that are in its file."""
