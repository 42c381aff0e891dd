"""Models that onnxruntime's own quantizers wrote, for `graphc bench` beside onnxruntime.

    python benchmarks/quantized.py models
    graphc bench models/resnet_static.onnx --runtime graphc --runtime onnxruntime --rounds 15
    graphc bench models/bert_dynamic.onnx --dim t=128 …
    graphc bench models/decoder_4_bits.onnx --dim t=1 …

ResNet-50 with static quantization around its operators (a scale for each channel of the weights), BERT with dynamic quantization,
and the products of a decoder of 2048 channels with weights of 4 bits, which meet one token at a time or many. Needs torch,
transformers and onnxruntime; the weights are drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from onnxruntime import quantization
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn
from transformers import BertConfig, BertModel, ResNetConfig, ResNetModel

CHANNELS, WIDE, LAYERS = 2048, 5632, 6
"""Of the decoder; `WIDE` is what its gates have."""


class ResNet(nn.Module):
    """ResNet-50 with its classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.classes = ResNetModel(ResNetConfig()), nn.Linear(2048, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """Images [N, 3, 224, 224]."""
        return self.classes(self.features(image).pooler_output.flatten(1))  # type: ignore[no-any-return]


class Bert(nn.Module):
    """BERT, of its usual size."""

    def __init__(self) -> None:
        super().__init__()
        self.model = BertModel(BertConfig(attn_implementation="eager"))

    def forward(self, ids: Tensor) -> Tensor:
        """Tokens [N, T]."""
        return self.model(ids).last_hidden_state  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """What a decoder multiplies with for each token: two matrices of its attention, and three of its gates."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(CHANNELS, CHANNELS)] * 2 + [(CHANNELS, WIDE)] * 2 + [(WIDE, CHANNELS)]
        self.layers = nn.ModuleList(
            nn.ModuleList(nn.Linear(*size, bias=False) for size in sizes) for _ in range(LAYERS)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Tokens' states [T, CHANNELS]."""
        for first, second, gate, up, down in self.layers:  # type: ignore[misc]
            x = x + second(torch.tanh(first(x)))
            x = x + down(nn.functional.silu(gate(x)) * up(x))
            x = x / (x.abs().mean(-1, keepdim=True) + 1e-6)
        return x


class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]
    """One input to see ranges by."""

    def __init__(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.left: Iterator[Mapping[str, np.ndarray]] = iter([inputs])

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        """The next input."""
        return next(self.left, None)


def exported(model: nn.Module, given: Tensor, name: str, free: dict[int, str], folder: Path) -> Path:
    """The model's file, prepared for quantizers."""
    plain, prepared = folder / "plain.onnx", folder / "prepared.onnx"
    axes = {name: free} if free else {}
    torch.onnx.export(
        model.eval(), (given,), plain, dynamo=False, input_names=[name], output_names=["y"], dynamic_axes=axes,
        opset_version=17,
    )  # fmt: skip
    quant_pre_process(plain, prepared, skip_symbolic_shape=True)
    plain.unlink()
    return prepared


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    image = torch.randn(1, 3, 224, 224)
    prepared = exported(ResNet(), image, "image", {}, folder)
    quantization.quantize_static(
        prepared, folder / "resnet_static.onnx", Calibration({"image": image.numpy()}), per_channel=True,
        quant_format=quantization.QuantFormat.QDQ, weight_type=quantization.QuantType.QInt8,
        activation_type=quantization.QuantType.QUInt8,
    )  # fmt: skip
    prepared = exported(Bert(), torch.randint(0, 30000, (1, 128)), "ids", {1: "t"}, folder)
    quantization.quantize_dynamic(prepared, folder / "bert_dynamic.onnx")
    prepared = exported(Decoder(), torch.randn(2, CHANNELS), "x", {0: "t"}, folder)
    for name, level in (("decoder_4_bits", None), ("decoder_4_bits_by_bytes", 4)):
        writer = MatMulNBitsQuantizer(
            onnx.load(prepared), bits=4, block_size=32, is_symmetric=True, accuracy_level=level
        )
        writer.process()
        writer.model.save_model_to_file(str(folder / f"{name}.onnx"))
    prepared.unlink()


if __name__ == "__main__":
    main()
