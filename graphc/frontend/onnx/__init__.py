"""From an ONNX model to a graph of core operators. No onnx type leaves this folder."""

from graphc.frontend.packages import require_onnx

require_onnx()

from graphc.frontend.onnx.load import load  # noqa: E402

__all__ = ["load"]
