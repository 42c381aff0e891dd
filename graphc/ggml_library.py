"""ggml's Python bindings, loaded such that its threads wait for a moment and then sleep, unless the environment says otherwise.

OpenMP reads this when it is loaded. By itself it has a thread spin for milliseconds: where other programs need the processors
too, every step of a model then waits for a thread that has to be given one again, and becomes many times slower. A thread that
sleeps at once is as bad where nothing else runs: waking it takes longer than most steps.
"""

from __future__ import annotations

import os
from pathlib import Path

TURNS = "4000"
"""Some ten microseconds."""

_silent = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}.isdisjoint(os.environ)
if _silent:
    os.environ["GOMP_SPINCOUNT"] = TURNS

import ggml  # noqa: E402

if _silent:
    del os.environ["GOMP_SPINCOUNT"]

__all__ = ["ggml", "ggml_include"]


def ggml_include() -> Path | None:
    """The folder of `ggml.h`, which ggml-python installs beside its package; None if it is not there."""
    package = Path(ggml.__file__).parent
    folders = (package.parent / "include", package / "include")
    return next((folder for folder in folders if (folder / "ggml.h").is_file()), None)
