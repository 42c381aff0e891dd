"""graphc compiles ONNX and PyTorch models to small native programs on ggml.

`compile` makes an engine file of a model, `load` opens it, and `Model.run` runs it on NumPy arrays by name.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc.compiler import compile, from_torch, load
    from graphc.errors import GraphcError
    from graphc.runtime.model import Model, TensorInfo
    from graphc.runtime.session import Session

__version__ = "0.1.0"
__all__ = ["GraphcError", "Model", "Session", "TensorInfo", "compile", "from_torch", "load"]

_HOMES = {
    "compile": "graphc.compiler",
    "from_torch": "graphc.compiler",
    "load": "graphc.compiler",
    "GraphcError": "graphc.errors",
    "Model": "graphc.runtime.model",
    "TensorInfo": "graphc.runtime.model",
    "Session": "graphc.runtime.session",
}


def _load_ggml() -> None:
    """Load ggml with threads that sleep when they wait, unless the environment says otherwise.

    OpenMP reads this when it is loaded. Spinning gains next to nothing where processors are free, and where other programs need
    them too, every step of a model waits for a thread that has to be given a processor again: it becomes many times slower.
    """
    silent = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}.isdisjoint(os.environ)
    if silent:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    import ggml  # noqa: F401

    if silent:
        del os.environ["OMP_WAIT_POLICY"]


_load_ggml()


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that a command pays only for what it runs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'graphc' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
