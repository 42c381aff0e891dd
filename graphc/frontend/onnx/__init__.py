"""From an ONNX model to a graph of core operators. No onnx type leaves this folder."""

from graphc.frontend.onnx.load import load

__all__ = ["load"]
