"""Samplers: the ways from noise to a picture, each one short function beside its paper.

A sampler is a generator. It takes a model that denoises, `x` (the noise, or a noised picture) and the noise levels, and yields a
`Step` after each; the last step's `x` is the result. Coefficients are Python floats, so `x` keeps its type.
"""

from graphc_images.sampling.samplers.steps import Noise, PairDenoiser, Step

__all__ = ["Noise", "PairDenoiser", "Step"]
