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
INSIDE = "it is a part of a loop of decoding, whose cache it writes in place"
DEVICE = "what it computes is defined by the kernels of one kind of device"
DEVICE_HELP = "take the model from which it was made for that device"
TRAINING = "it is for training"
TRAINING_HELP = "export the model for inference"
RECURRENT = "a state that is changed row by row is not supported"
RECURRENT_HELP = "export the model with ONNX's LinearAttention"
TEXT = "it works on texts"
TEXT_HELP = "make numbers of texts before the model"
SPARSE = "attention to places that an indexer chooses is not supported"
PLAIN = "export the model with plain attention"

GROUPS: dict[tuple[str, str], tuple[str, ...]] = {
    (LOOP, LOOP_HELP): ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch", "BifurcationDetector"),
    (INSIDE, LOOP_HELP): ("DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention", "DecoderAttention"),
    ("attention to a sparse pattern of blocks is not supported", PLAIN): ("SparseAttention", "DynamicSparseAttention"),
    ("attention to a window and to global tokens is not supported", "optimize the model without it"): (
        "LongformerAttention",
        "QOrderedLongformerAttention",
    ),
    (CACHE, CACHE_HELP): ("PagedAttention", "SparsePagedAttention"),
    (SPARSE, PLAIN): (
        "SparseAttentionIndexer",
        "PackedSparseAttentionIndexer",
        "PackedSparseAttentionIndexerMerge",
    ),
    ("it holds a program for another device", "take the model from which it was compiled"): ("EPContext", "Snpe"),
    (DEVICE, DEVICE_HELP): (
        "ConvStateReplay",
        "DequantizeBFP",
        "DequantizeWithOrder",
        "GatedDeltaNetStateReplay",
        "GatherPacked",
        "GemmFloat8",
        "HyperConnectionLowRankMix",
        "Mamba2Verify",
        "MatMulBlockQuantizedFp4Weight",
        "MatMulBlockQuantizedFp8Weight",
        "MatMulFpQ4",
        "MatMulNBitsQLoRA",
        "MatMulPacked",
        "MoEPacked",
        "QOrderedAttention",
        "QOrderedGelu",
        "QOrderedLayerNormalization",
        "QOrderedMatMul",
        "QuantizeBFP",
        "QuantizeWithOrder",
        "RMSNormRotary",
        "RouterGateUpProj",
        "SpeculativePrefixCommit",
    ),
    (TRAINING, TRAINING_HELP): ("BitmaskDropout", "BitmaskBiasDropout"),
    (RECURRENT, RECURRENT_HELP): (
        "GatedDeltaNet",
        "LinearAttention",
        "LinearAttentionGate",
        "VarlenCausalConvWithState",
    ),
    (TEXT, TEXT_HELP): ("Tokenizer", "MurmurHash3", "NGramHashMapping", "VarlenNGramHashMapping"),
    ("streams and gates of models of one maker are not supported", "export the model as plain operators"): (
        "EngramGate",
        "HyperConnectionPostMix",
        "HyperConnectionPreMix",
        "MoEGroupRouter",
    ),
    ("its settings are tensors, or it has a mask that its documentation does not explain", "use ONNX's operator"): (
        "ConvTransposeWithDynamicPads",
        "MaxpoolWithMask",
    ),
    ("a recurrent layer with attention inside is not supported", "write it as a loop of plain operators"): (
        "AttnLSTM",
    ),
    ("a path that is searched in a table is not supported", "search it behind the model"): ("DynamicTimeWarping",),
    ("matrices that are stored sparsely are not supported", "store the matrix densely"): ("SparseToDenseMatMul",),
}

REFUSED = {operator: why for why, operators in GROUPS.items() for operator in operators}
"""Why, and what helps."""


@onnx_op(*REFUSED, domain=MICROSOFT)
def refuse(node: OnnxNode, emit: SizeEmit) -> Value:
    """Refused, always."""
    raise Refused(*REFUSED[node.operator])
