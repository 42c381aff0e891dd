"""Devices that are only asked what they support."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from graphc.ggml_library import ggml
from graphc.targets.ggml.run.choose.building import ggml_functions, ggml_names


def functions_with(supports: Callable[[Any], bool]) -> Any:
    """ggml's functions for C, with an answer of its own to what a backend supports. The answer lives as long as they do."""
    kind = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(ggml.ggml_tensor))
    answer = kind(lambda backend, node: supports(node))
    functions = type(ggml_functions())(*ggml_functions())
    functions[ggml_names().index("ggml_backend_supports_op")] = ctypes.cast(answer, ctypes.c_void_p).value
    functions.answer = answer
    return functions
