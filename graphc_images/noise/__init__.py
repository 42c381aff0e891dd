"""Random numbers, bit for bit those of the programs whose pictures are to be made again."""

from graphc_images.noise.brownian import BrownianNoise, BrownianTree
from graphc_images.noise.generators import GENERATORS, NormalGenerator
from graphc_images.noise.philox import Philox
from graphc_images.noise.sources import BatchNoise, ImageNoise, NoiseSource, brownian_noise, noise_source
from graphc_images.noise.torch_cpu import TorchCpu

__all__ = [
    "GENERATORS",
    "BatchNoise",
    "BrownianNoise",
    "BrownianTree",
    "ImageNoise",
    "NoiseSource",
    "NormalGenerator",
    "Philox",
    "TorchCpu",
    "brownian_noise",
    "noise_source",
]
