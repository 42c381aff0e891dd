"""Classical machine learning: the domain ai.onnx.ml, as skl2onnx and its relatives write it. Where its text leaves something
open, operators mean what onnxruntime's kernels compute."""
