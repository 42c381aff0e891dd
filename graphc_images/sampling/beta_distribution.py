"""The beta distribution's quantiles, without scipy."""

from __future__ import annotations

import math

SMALL = 1e-300


def density(x: float, a: float, b: float) -> float:
    """The distribution's density for 0 < x < 1."""
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(scale + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x))


def fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method (Numerical Recipes 6.4)."""
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), SMALL)
    result = d
    for m in range(1, 1000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + numerator * d)
            c = 1 + numerator / c
            result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return result


def cumulative(x: float, a: float, b: float) -> float:
    """The share of the distribution below x."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - cumulative(1 - x, b, a)
    return density(x, a, b) * x * (1 - x) / a * fraction(x, a, b)


def quantile(share: float, a: float, b: float) -> float:
    """The x below which `share` of the distribution lies, by halving; a and b above 0."""
    if share <= 0 or share >= 1:
        return float(share >= 1)
    low, high = 0.0, 1.0
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            return middle
        if cumulative(middle, a, b) < share:
            low = middle
        else:
            high = middle
