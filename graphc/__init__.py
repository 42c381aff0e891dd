"""graphc compiles ONNX and PyTorch models to small native programs on ggml.

`compile` makes an engine file of a model, `load` opens it, and `Model.run` runs it on NumPy arrays by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc.backends.precision import set_float32_matmul_precision
    from graphc.build import build_application
    from graphc.cache import keep, make_cache_folder
    from graphc.compiler import compile
    from graphc.errors import GraphcError, NothingFitsError
    from graphc.files import open_regular, replacing
    from graphc.frontend.torch import from_torch
    from graphc.graph_text import parse_graph
    from graphc.ir.graph import Graph
    from graphc.loading import load
    from graphc.runtime.devices import Device, devices
    from graphc.runtime.model import Model, TensorInfo
    from graphc.runtime.options import RunOptions, SessionOptions
    from graphc.runtime.session import InferenceSession, Session
    from graphc.runtime.values import OrtValue
    from graphc.targets.ggml.run.choose.library import limit_rounded_weights
    from graphc.targets.ggml.run.device.options import memory_limits
    from graphc.weights.checkpoint import open_checkpoint

__version__ = "0.1.0"
__all__ = [
    "Device",
    "Graph",
    "GraphcError",
    "InferenceSession",
    "Model",
    "NothingFitsError",
    "OrtValue",
    "RunOptions",
    "Session",
    "SessionOptions",
    "TensorInfo",
    "build_application",
    "compile",
    "devices",
    "from_torch",
    "keep",
    "limit_rounded_weights",
    "load",
    "make_cache_folder",
    "memory_limits",
    "open_checkpoint",
    "open_regular",
    "parse_graph",
    "replacing",
    "set_float32_matmul_precision",
]

_HOMES = {
    "build_application": "graphc.build",
    "compile": "graphc.compiler",
    "from_torch": "graphc.frontend.torch",
    "load": "graphc.loading",
    "limit_rounded_weights": "graphc.targets.ggml.run.choose.library",
    "set_float32_matmul_precision": "graphc.backends.precision",
    "Graph": "graphc.ir.graph",
    "parse_graph": "graphc.graph_text",
    "Device": "graphc.runtime.devices",
    "devices": "graphc.runtime.devices",
    "memory_limits": "graphc.targets.ggml.run.device.options",
    "open_checkpoint": "graphc.weights.checkpoint",
    "keep": "graphc.cache",
    "make_cache_folder": "graphc.cache",
    "open_regular": "graphc.files",
    "replacing": "graphc.files",
    "GraphcError": "graphc.errors",
    "NothingFitsError": "graphc.errors",
    "Model": "graphc.runtime.model",
    "TensorInfo": "graphc.runtime.model",
    "Session": "graphc.runtime.session",
    "InferenceSession": "graphc.runtime.session",
    "SessionOptions": "graphc.runtime.options",
    "RunOptions": "graphc.runtime.options",
    "OrtValue": "graphc.runtime.values",
}


def __dir__() -> list[str]:
    """The public names, and what every module has."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that a command pays only for what it runs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'graphc' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
