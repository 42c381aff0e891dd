"""ggml's Python bindings, loaded such that its threads sleep when they wait, unless the environment says otherwise.

OpenMP reads this when it is loaded. Spinning gains next to nothing where processors are free, and where other programs need them
too, every step of a model waits for a thread that has to be given a processor again: it becomes many times slower.
"""

from __future__ import annotations

import os

_silent = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}.isdisjoint(os.environ)
if _silent:
    os.environ["OMP_WAIT_POLICY"] = "passive"

import ggml  # noqa: E402

if _silent:
    del os.environ["OMP_WAIT_POLICY"]

__all__ = ["ggml"]
