"""Models whose pictures are known, or were computed by the programs that are followed."""

import math

import numpy as np

LOW, HIGH = 0.029167158529, 14.614641189575
"""The ends of Stable Diffusion's noise levels."""


def karras(count):
    """Karras' levels with exact ends, in float64, then 0."""
    low, high = LOW ** (1 / 7), HIGH ** (1 / 7)
    return [(high + step / (count - 1) * (low - high)) ** 7 for step in range(count)] + [0.0]


def flow(count=10, shift=3.0):
    """Even times of a flow, shifted."""
    times = [1 - step / count for step in range(count + 1)]
    return [shift * time / (1 + (shift - 1) * time) for time in times]


class Sine:
    """D(x, sigma) = sin(x) / (1 + sigma); half of it without the prompt."""

    def __init__(self):
        self.evaluations = 0

    def __call__(self, x, sigma):
        self.evaluations += 1
        return np.sin(x) / (1 + sigma)

    def pair(self, x, sigma):
        denoised = self(x, sigma)
        return denoised, denoised * 0.5


class SineNoise(Sine):
    """eps(x, t) = sin(x) (0.5 + t / 2000), at the model's times."""

    def __call__(self, x, timestep):
        self.evaluations += 1
        return np.sin(x) * (0.5 + timestep / 2000)


class Gaussian:
    """The exact model of pictures that are normal with a mean and a deviation.

    Where picture and noise mix as x = alpha * picture + sigma * noise, x is normal too, and the way of the flow of
    probability from x to no noise is a straight line in the normal score.
    """

    def __init__(self, mean=0.3, deviation=0.7, flow=False):
        self.mean, self.deviation, self.flow = mean, deviation, flow

    def __call__(self, x, sigma):
        alpha = 1 - sigma if self.flow else 1.0
        spread = alpha**2 * self.deviation**2 + sigma**2
        return self.mean + (x - alpha * self.mean) * (alpha * self.deviation**2 / spread)

    def result(self, x, sigma):
        alpha = 1 - sigma if self.flow else 1.0
        return self.mean + (x - alpha * self.mean) * self.deviation / math.hypot(alpha * self.deviation, sigma)


def half(sigma, sigma_next):
    """Each draw of the programs' numbers."""
    return np.array([0.5])
