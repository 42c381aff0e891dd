"""Files as onnxruntime's tools leave them: its optimizer of transformers, its sessions, its conversion to float16 and its
quantizers, on small models that PyTorch's exporters wrote. Each agrees with onnxruntime on the same file, or with the file
before, where onnxruntime has kernels for GPUs alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from microsoft_nodes import overflows, run_onnxruntime
from optimized_models import LEVELS, optimized, used

import graphc
from graphc.runtime.compare import relative_error

pytest.importorskip("torch")
optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
quantization = pytest.importorskip("onnxruntime.quantization")
shape_inference = pytest.importorskip("onnxruntime.quantization.shape_inference")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from export import export  # noqa: E402
from zoo import EXAMPLES, EXPORTERS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

Arrays = Mapping[str, np.ndarray]

TYPES = {
    "bert": "bert",
    "gpt2": "gpt2",
    "vit": "vit",
    "sd15_clip_small": "clip",
    "sd15_vae_decoder_small": "vae",
    "t5_encoder": "t5",
    "whisper_encoder_short": "bart",
    "llama": "gpt2",
    "llama_cached": "gpt2",
}
"""Models of the zoo, and what the optimizer is told that they are."""

MORE = {
    "gpt2_cached": "gpt2",
    "qwen3": "qwen3",
    "sd15_vae_encoder_small": "vae",
    "sd15_unet_small": "unet",
    "sd3_transformer": "mmdit",
    "swin": "swin",
}

WRITTEN = {
    "bert": {"microsoft.BiasGelu", "microsoft.SkipLayerNormalization"},
    "sd15_clip_small": {"microsoft.QuickGelu"},
    "sd15_vae_decoder_small": {"microsoft.GroupNorm", "microsoft.SkipGroupNorm", "microsoft.NhwcConv"},
    "llama": {"microsoft.SkipSimplifiedLayerNormalization"},
}
"""Operators that the optimizer puts into what TorchScript's exporter wrote."""

ROUNDING, HALF, BYTES = 1e-5, 2e-2, 5e-2


def exported(name: str, exporter: str, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A model's file, and its inputs."""
    path = export(EXAMPLES[name], exporter, folder / name)
    return path, dict(np.load(path.parent / "inputs.npz"))


def fused(path: Path, kind: str, level: int, half: bool = False) -> onnx.ModelProto:
    """What the optimizer of transformers makes of a file, after onnxruntime's own at a level (0 for none)."""
    changed = optimizer.optimize_model(str(path), kind, num_heads=0, hidden_size=0, opt_level=level)
    if half:
        changed.convert_float_to_float16()
    target = path.parent / "fused.onnx"
    changed.save_model_to_file(str(target))
    return onnx.load(target)


def outputs(proto: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    """What graphc computes."""
    return graphc.compile(proto, threads=1).run(inputs)


def typed(proto: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    """The inputs in the types that a file has."""
    types = {
        each.name: onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type) for each in proto.graph.input
    }
    return {name: array.astype(types[name]) for name, array in inputs.items() if name in types}


def check(proto: onnx.ModelProto, inputs: Arrays, before: Arrays, bound: float, what: str) -> None:
    """graphc gives what onnxruntime does, or, if onnxruntime's CPU cannot run the file, what the file gave before."""
    given = typed(proto, inputs)
    onnxruntime = pytest.importorskip("onnxruntime")
    try:
        wanted: Arrays = run_onnxruntime(proto, given)
    except (
        onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
        onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
    ):
        wanted = before
    assert relative_error(outputs(proto, given), wanted) <= bound, what


def check_optimizer(name: str, kind: str, exporter: str, levels: tuple[int, ...], folder: Path) -> None:
    path, inputs = exported(name, exporter, folder)
    plain = onnx.load(path)
    before = run_onnxruntime(plain, typed(plain, inputs))
    for level in levels:
        changed = fused(path, kind, level)
        missing = WRITTEN.get(name, set()) - used(changed) if (exporter, level) == ("torchscript", 0) else ()
        assert not missing
        check(changed, inputs, before, ROUNDING, f"fused after level {level}")
    for each in LEVELS:
        check(optimized(plain, each, folder), inputs, before, ROUNDING, f"a session's level {each}")
    changed = fused(path, kind, 0, half=True)
    given = typed(changed, inputs)
    # onnxruntime rounds the logarithms of T5's distances to float16, and takes other buckets
    assert relative_error(outputs(changed, given), before) <= HALF, "float16"


@pytest.mark.parametrize("name", TYPES)
def test_the_optimizer_of_transformers(name: str, tmp_path: Path) -> None:
    check_optimizer(name, TYPES[name], "torchscript", (0, 2), tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", TYPES | MORE)
def test_the_optimizer_of_transformers_at_each_level(name: str, exporter: str, tmp_path: Path) -> None:
    if exporter in EXAMPLES[name].refusals:
        pytest.skip(EXAMPLES[name].refusals[exporter])
    check_optimizer(name, (TYPES | MORE)[name], exporter, (0, 1, 2, 99), tmp_path)


class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
    """One example."""

    def __init__(self, inputs: Arrays) -> None:
        self.examples: Iterator[Arrays] = iter([inputs])

    def get_next(self) -> Arrays | None:
        return next(self.examples, None)


Quantizing = Callable[[Path, Path, Arrays], None]


def dynamic(**settings: Any) -> Quantizing:
    return lambda path, target, inputs: quantization.quantize_dynamic(
        path, target, reduce_range=overflows(), **settings
    )


def static(form: str, **settings: Any) -> Quantizing:
    def quantize(path: Path, target: Path, inputs: Arrays) -> None:
        form_ = getattr(quantization.QuantFormat, form)
        reader, narrow = Calibration(inputs), overflows()
        quantization.quantize_static(path, target, reader, quant_format=form_, reduce_range=narrow, **settings)

    return quantize


def few_bits(form: str = "QOperator", **settings: Any) -> Quantizing:
    def quantize(path: Path, target: Path, inputs: Arrays) -> None:
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        form_ = getattr(quantization.QuantFormat, form)
        writer = MatMulNBitsQuantizer(onnx.load(path), block_size=32, quant_format=form_, **settings)
        writer.process()
        writer.model.save_model_to_file(str(target))

    return quantize


def bitsandbytes(path: Path, target: Path, inputs: Arrays) -> None:
    from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

    writer = MatMulBnb4Quantizer(onnx.load(path), MatMulBnb4Quantizer.NF4, 32)
    writer.process()
    writer.model.save_model_to_file(str(target))


SIGNED = {"weight_type": quantization.QuantType.QInt8, "per_channel": True}
WIDE = {"activation_type": quantization.QuantType.QUInt16, "extra_options": {"UseQDQContribOps": True}}

QUANTIZERS: dict[str, tuple[Quantizing, float]] = {
    "dynamic": (dynamic(), ROUNDING),
    "static, operators": (static("QOperator"), BYTES),
    "static, around operators": (static("QDQ"), BYTES),
    "4 bits": (few_bits(bits=4, is_symmetric=True), ROUNDING),
    "4 bits with zero points": (few_bits(bits=4, is_symmetric=False), ROUNDING),
    "dynamic, signed": (dynamic(**SIGNED), ROUNDING),
    "static, signed": (static("QDQ", activation_type=quantization.QuantType.QInt8, **SIGNED), BYTES),
    "static, 16 bits": (static("QDQ", **WIDE), BYTES),
    "4 bits around operators": (few_bits("QDQ", bits=4, is_symmetric=True), ROUNDING),
    "8 bits": (few_bits(bits=8), ROUNDING),
    "bitsandbytes": (bitsandbytes, ROUNDING),
}
"""What each writes, and how far results may be apart: where bytes are rounded, a difference of rounding is one of a step. (In T5,
whose sums nothing normalizes, the steps of onnxruntime's QLinearSoftmax, which rounds by a table, grow to an eighth.)"""


def check_quantizers(name: str, exporter: str, quantizers: Iterable[str], sessions: bool, folder: Path) -> None:
    plain, inputs = exported(name, exporter, folder)
    given, path = typed(onnx.load(plain), inputs), folder / "prepared.onnx"
    shape_inference.quant_pre_process(plain, path, skip_symbolic_shape=True)
    for what in quantizers:
        (quantize, bound), target = QUANTIZERS[what], folder / "quantized.onnx"
        quantize(path, target, given)
        changed = onnx.load(target)
        check(changed, inputs, {}, bound, what)
        if sessions:  # which may make products of bytes where the file had numbers
            check(optimized(changed, "all", folder), inputs, {}, BYTES, f"{what}, in a session")


@pytest.mark.parametrize(
    ("name", "quantizers"),
    [
        ("gpt2", ("dynamic", "4 bits with zero points")),
        ("tiny_cnn", ("static, operators", "static, around operators")),
    ],
)
def test_quantizers(name: str, quantizers: tuple[str, ...], tmp_path: Path) -> None:
    check_quantizers(name, "torchscript", quantizers, False, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["bert", "resnet", "llama", "vit", "mobilenet_v2"])
def test_all_quantizers(name: str, tmp_path: Path) -> None:
    check_quantizers(name, "dynamo", QUANTIZERS, True, tmp_path)
