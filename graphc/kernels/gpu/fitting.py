"""The coefficients of a device's roofline, from what was measured on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from graphc.kernels.gpu.roofline import TERMS, Coefficients, Terms, combined, parts_of

ROUNDS = 20
"""Fits at most: what each term adds to a time depends on the coefficients, and they on it."""

HALVINGS = 4
"""Of the way to what a fit wants, which may be too far."""

ENOUGH = 1e-4
"""A fit that takes away less of what is left of errors is the last."""

TRUST = 2.0
"""What was believed before counts as so many measurements of each coefficient."""

FACTOR = 10.0
"""No coefficient becomes so many times as large or small as it was believed to be."""

Sample = tuple[Terms, float]
"""The terms of a kernel by the data sheet, and the seconds that it took."""


def fitted(samples: Sequence[Sample], believed: Coefficients) -> Coefficients:
    """The coefficients with the least squares of relative errors. A term that limits nothing stays about as it was believed."""
    best, least = believed, _loss(samples, believed, believed)
    for _ in range(ROUNDS if samples else 0):
        wanted = np.array(astuple(_step(samples, best, believed)))
        before = np.array(astuple(best))
        nearer = (Coefficients(*(before + (wanted - before) / 2**halvings).tolist()) for halvings in range(HALVINGS))
        losses = [(_loss(samples, each, believed), each) for each in nearer]
        found, each = min(losses, key=lambda pair: pair[0])
        if found >= least * (1 - ENOUGH):
            break
        best, least = each, found
    return best


def error(samples: Sequence[Sample], by: Coefficients) -> float:
    """The root of the mean square of relative errors."""
    errors = [combined(terms, by)[0] / seconds - 1 for terms, seconds in samples]
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else 0.0


def _step(samples: Sequence[Sample], now: Coefficients, believed: Coefficients) -> Coefficients:
    """The best coefficients if each kernel is limited by what limits it now: then its time is a sum of them."""
    start = np.array(astuple(believed))
    rows = [
        [parts_of(terms, now)[0][name] * terms.seconds[name] / seconds for name in TERMS] for terms, seconds in samples
    ]
    system = np.vstack([np.array(rows) * start, np.sqrt(TRUST) * np.eye(len(TERMS))])
    wanted = np.concatenate([np.ones(len(rows)), np.full(len(TERMS), np.sqrt(TRUST))])
    found = np.linalg.lstsq(system, wanted, rcond=None)[0]
    return Coefficients(*(start * np.clip(found, 1 / FACTOR, FACTOR)).tolist())


def _loss(samples: Sequence[Sample], by: Coefficients, believed: Coefficients) -> float:
    changes = np.array(astuple(by)) / np.array(astuple(believed)) - 1
    return error(samples, by) ** 2 * len(samples) + TRUST * float(np.square(changes).sum())
