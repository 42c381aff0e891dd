"""The packages that read ONNX models. Nothing else needs them: engines run, and take weights, without."""

from __future__ import annotations

import sysconfig
from importlib import import_module

from graphc.errors import GraphcError

PACKAGES = ("onnx", "onnx_ir", "google.protobuf")

ON_MUSL = ", for which pip needs a C++ compiler, as onnx has no wheel for musl; or compile the model on another system"


def require_onnx() -> None:
    """Raises GraphcError that says what to install where a package cannot be imported."""
    for name in PACKAGES:
        try:
            import_module(name)
        except ImportError as error:
            raise GraphcError(
                "ONNX models need onnx, onnx-ir and protobuf, engines do not: "
                f"pip install onnx 'onnx-ir<0.2' ml_dtypes{ON_MUSL if is_musl() else ''} ({error})"
            ) from error


def is_musl() -> bool:
    """True if this Python is linked with musl's C library, as Alpine's is."""
    return "musl" in (sysconfig.get_config_var("SOABI") or "")
