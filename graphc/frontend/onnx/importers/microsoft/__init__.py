"""Operators of the domains com.microsoft and com.microsoft.nchwc, which onnxruntime's optimizers and quantizers, Optimum and
Olive put into files. Where they are not pinned down by their schemas, they mean what onnxruntime's CPU kernels compute."""
