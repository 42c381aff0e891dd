"""Where a picture's noise comes from: one generator for each image (A1111), or one for the whole batch (ComfyUI)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.modes import Mode
from graphc_images.noise.brownian import BrownianNoise, BrownianTree
from graphc_images.noise.generators import GENERATORS, NormalGenerator
from graphc_images.noise.torch_cpu import TorchCpu

LERP_ABOVE = 0.9995
"""Where noise and subnoise point nearly the same way, the arc between them is taken as a line."""


class NoiseSource(Protocol):
    """The noise that an image starts from, then as much as its sampler asks for. Arrays are [batch, channels, height, width]."""

    def first(self) -> np.ndarray:
        """The noise that the latent image starts from; asked for once, and before any other."""
        ...

    def next(self) -> np.ndarray:
        """Further noise."""
        ...

    def __call__(self, sigma: float, sigma_next: float) -> np.ndarray:
        """Further noise, for the way between two noise levels, as samplers ask for it."""
        ...


def generator_of(name: str) -> Callable[[int], NormalGenerator]:
    """The kind of generator that has this name, in upper or lower case."""
    if name.lower() not in GENERATORS:
        raise SettingError(f"there is no random number generator {name!r}; there are {', '.join(GENERATORS)}")
    return GENERATORS[name.lower()]


def slerp(share: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """From `low` (share 0) to `high` (1) on the arc between them; arrays [channels, height, width], norms taken over the height.

    A1111's (modules/rng.py), which takes the wrong axis and, for nearly parallel noise, the shares the wrong way round.
    """
    unit_low = low / np.linalg.norm(low, axis=1, keepdims=True)
    unit_high = high / np.linalg.norm(high, axis=1, keepdims=True)
    cosine = (unit_low * unit_high).sum(axis=1)
    if cosine.mean() > LERP_ABOVE:
        return low * np.float32(share) + high * np.float32(1 - share)
    angle = np.arccos(cosine)
    of_low, of_high = (np.sin(np.float32(part) * angle) / np.sin(angle) for part in (1 - share, share))
    return np.asarray(of_low[:, None] * low + of_high[:, None] * high)


def pasted(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """`old` in the middle of `new`, cut where it is larger; [channels, height, width]."""
    result = new.copy()
    source, target = [slice(None)], [slice(None)]
    for size, room in zip(old.shape[1:], new.shape[1:], strict=True):
        offset = (room - size) // 2
        length = size if offset >= 0 else size + 2 * offset
        source.append(slice(max(-offset, 0), max(-offset, 0) + length))
        target.append(slice(max(offset, 0), max(offset, 0) + length))
    result[tuple(target)] = old[tuple(source)]
    return result


class ImageNoise:
    """A1111's way (modules/rng.py, ImageRNG): each image has its own generator, so it can be made again alone."""

    def __init__(
        self,
        shape: Sequence[int],
        seeds: Sequence[int],
        generator: str = "gpu",
        subseeds: Sequence[int] = (),
        subseed_strength: float = 0.0,
        resize_from: tuple[int, int] | None = None,
        seed_delta: int = 0,
    ) -> None:
        """`shape` is [channels, height, width].

        With `subseed_strength` above 0, the noise lies by that share on the arc to the noise of the image's subseed.
        `resize_from` is the (height, width) in latent pixels at which the noise is drawn; it is then put in the middle of
        noise of the real size. `seed_delta` (ENSD) makes the generators anew after the first noise, with seeds that much higher.
        """
        if not seeds:
            raise SettingError("there are no seeds: one is needed for each image")
        if subseed_strength and len(subseeds) < len(seeds):
            raise SettingError(
                f"{len(seeds)} images with a subseed strength need as many subseeds, not {len(subseeds)}"
            )
        self.shape, self.seeds = tuple(shape), list(seeds)
        self.make = generator_of(generator)
        self.subseeds, self.subseed_strength = list(subseeds), subseed_strength
        self.resize_from = resize_from if resize_from and min(resize_from) > 0 else None
        self.seed_delta = seed_delta
        self.generators = [self.make(seed) for seed in self.seeds]

    def first(self) -> np.ndarray:
        """[images, channels, height, width]."""
        images = [self._first_of(index) for index in range(len(self.seeds))]
        if self.seed_delta:
            self.generators = [self.make(seed + self.seed_delta) for seed in self.seeds]
        return np.stack(images)

    def _first_of(self, index: int) -> np.ndarray:
        drawn = (self.shape[0], *(self.resize_from or self.shape[1:]))
        resized = drawn != self.shape
        noise = (self.make(self.seeds[index]) if resized else self.generators[index]).normal(drawn)
        if self.subseed_strength:
            noise = slerp(self.subseed_strength, noise, self.make(self.subseeds[index]).normal(drawn))
        return pasted(noise, self.generators[index].normal(self.shape)) if resized else noise

    def next(self) -> np.ndarray:
        """[images, channels, height, width]."""
        return np.stack([generator.normal(self.shape) for generator in self.generators])

    def __call__(self, sigma: float, sigma_next: float) -> np.ndarray:
        """As `next`."""
        return self.next()


class BatchNoise:
    """ComfyUI's way (comfy/sample.py, default_noise_sampler): one generator for the batch, another for the sampler.

    Torch's CPU generator in ComfyUI itself. The sampler's generator starts at the seed, plus one where that runs on the CPU.
    """

    def __init__(
        self, shape: Sequence[int], seed: int, batch_index: Sequence[int] | None = None, generator: str = "cpu"
    ) -> None:
        """`shape` is [batch, channels, height, width]. `batch_index` names the images of a larger batch that are wanted."""
        if batch_index is not None and len(batch_index) != shape[0]:
            raise SettingError(f"a batch of {shape[0]} images needs as many numbers of images, not {len(batch_index)}")
        self.shape, self.seed, self.batch_index = tuple(shape), seed, batch_index
        self.make = generator_of(generator)
        self.generator = self.make(seed + 1)

    def first(self) -> np.ndarray:
        """[batch, channels, height, width]."""
        generator = self.make(self.seed)
        if self.batch_index is None:
            return generator.normal(self.shape)
        images = [generator.normal((1, *self.shape[1:])) for _ in range(max(self.batch_index) + 1)]
        return np.concatenate([images[index] for index in self.batch_index])

    def next(self) -> np.ndarray:
        """[batch, channels, height, width]."""
        return self.generator.normal(self.shape)

    def __call__(self, sigma: float, sigma_next: float) -> np.ndarray:
        """As `next`."""
        return self.next()


def noise_source(
    mode: Mode, shape: Sequence[int], seed: int, generator: str | None = None, subseed: int = 0, **settings: object
) -> NoiseSource:
    """The source of a batch [batch, channels, height, width] in a mode; `settings` are those of its class.

    Seeds of the batch's images follow each other, in A1111's mode; with a subseed strength, it is the subseeds that do.
    """
    if mode == "comfyui":
        return BatchNoise(shape, seed, generator=generator or "cpu", **settings)  # type: ignore[arg-type]
    steps = range(shape[0])
    moving = not settings.get("subseed_strength")
    seeds = [seed + step if moving else seed for step in steps]
    subseeds = [subseed + step for step in steps]
    return ImageNoise(shape[1:], seeds, generator=generator or "gpu", subseeds=subseeds, **settings)  # type: ignore[arg-type]


def brownian_noise(
    mode: Mode,
    shape: Sequence[int],
    seeds: Sequence[int],
    sigmas: Sequence[float],
    generator: str | None = None,
    *,
    shared: bool = False,
) -> BrownianNoise:
    """Brownian noise for [batch, channels, height, width], over the whole schedule `sigmas`: a tree for each image, or for all.

    `seeds` has the seed of each image; in ComfyUI's mode the first counts. Without a `generator`, A1111's is "gpu" and
    ComfyUI's "cpu" (its samplers whose names end in `_gpu`: "gpu"). `shared`: A1111's without its care for batches, where
    k-diffusion draws a seed for the whole batch from PyTorch's generator, which was last set to the last image's.
    """
    positive = [float(np.float32(sigma)) for sigma in sigmas if sigma > 0]
    if not positive:
        raise SettingError("a schedule for Brownian noise needs a noise level above 0")
    if not seeds or min(seeds) < 0:
        raise SettingError(f"Brownian noise needs seeds that are 0 or above, not {list(seeds)}")
    one = mode == "comfyui" or shared
    seeds = [TorchCpu(seeds[-1]).seed()] if shared else seeds
    make = generator_of(generator or ("cpu" if mode == "comfyui" else "gpu"))
    of_tree = shape if one else shape[1:]

    def draw(seed: int, size: Sequence[int]) -> np.ndarray:
        return make(seed).normal(size)

    trees = [BrownianTree(min(positive), max(positive), of_tree, seed, draw) for seed in (seeds[:1] if one else seeds)]
    return BrownianNoise(trees, batch=one)
