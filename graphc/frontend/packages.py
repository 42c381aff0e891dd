"""The packages that read ONNX models. Nothing else needs them: engines run, and take weights, without."""

from __future__ import annotations

from importlib import import_module

from graphc.errors import GraphcError

PACKAGES = ("onnx", "onnx_ir", "google.protobuf")


def require_onnx() -> None:
    """Raises GraphcError that says what to install where a package cannot be imported."""
    for name in PACKAGES:
        try:
            import_module(name)
        except ImportError as error:
            raise GraphcError(
                f"ONNX models need onnx, onnx-ir and protobuf, engines do not: pip install onnx 'onnx-ir<0.2' ({error})"
            ) from error
