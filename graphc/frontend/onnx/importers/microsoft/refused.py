"""Operators of onnxruntime's that are refused, by name and with the reason."""

from __future__ import annotations

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.frontend.onnx.tensors import Refused
from graphc.ir import Value

LOOP = "it is a whole loop of decoding, around models that are its attributes"
LOOP_HELP = "compile the decoder that it calls, and write the loop in the program that runs it"
CACHE = "its caches lie in blocks that a server deals out"
CACHE_HELP = "export the model with GroupQueryAttention or with plain attention"

REFUSED = {
    "BeamSearch": (LOOP, LOOP_HELP),
    "GreedySearch": (LOOP, LOOP_HELP),
    "Sampling": (LOOP, LOOP_HELP),
    "WhisperBeamSearch": (LOOP, LOOP_HELP),
    "SparseAttention": (
        "attention to a sparse pattern of blocks is not supported",
        "export the model with plain attention",
    ),
    "LongformerAttention": (
        "attention to a window and to global tokens is not supported",
        "optimize the model without it",
    ),
    "PagedAttention": (CACHE, CACHE_HELP),
    "SparsePagedAttention": (CACHE, CACHE_HELP),
    "EPContext": ("it holds a program for another device", "take the model from which it was compiled"),
}
"""Why, and what helps."""


@onnx_op(*REFUSED, domain=MICROSOFT)
def refuse(node: OnnxNode, emit: SizeEmit) -> Value:
    """Refused, always."""
    raise Refused(*REFUSED[node.operator])
