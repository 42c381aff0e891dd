"""What the benchmarks rely on, without running them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


def loaded(name: str):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("part", "name", "original"),
    [
        ("unet", "time_embedding.linear_2.bias", "time_embed.2.bias"),
        ("unet", "conv_in.weight", "input_blocks.0.0.weight"),
        ("unet", "down_blocks.1.resnets.0.time_emb_proj.weight", "input_blocks.4.0.emb_layers.1.weight"),
        ("unet", "down_blocks.0.attentions.1.proj_in.weight", "input_blocks.2.1.proj_in.weight"),
        ("unet", "down_blocks.2.downsamplers.0.conv.bias", "input_blocks.9.0.op.bias"),
        ("unet", "mid_block.resnets.1.conv2.weight", "middle_block.2.out_layers.3.weight"),
        ("unet", "up_blocks.0.upsamplers.0.conv.weight", "output_blocks.2.1.conv.weight"),
        ("unet", "up_blocks.1.upsamplers.0.conv.weight", "output_blocks.5.2.conv.weight"),
        ("unet", "up_blocks.3.resnets.2.conv_shortcut.weight", "output_blocks.11.0.skip_connection.weight"),
        ("unet", "conv_norm_out.weight", "out.0.weight"),
        ("decoder", "post_quant_conv.weight", "post_quant_conv.weight"),
        ("decoder", "decoder.mid_block.attentions.0.to_out.0.weight", "decoder.mid.attn_1.proj_out.weight"),
        ("decoder", "decoder.mid_block.resnets.1.norm2.bias", "decoder.mid.block_2.norm2.bias"),
        ("decoder", "decoder.up_blocks.0.resnets.2.conv1.weight", "decoder.up.3.block.2.conv1.weight"),
        ("decoder", "decoder.up_blocks.2.upsamplers.0.conv.bias", "decoder.up.1.upsample.conv.bias"),
        ("decoder", "decoder.conv_norm_out.weight", "decoder.norm_out.weight"),
        ("text", "encoder.layers.0.mlp.fc1.weight", "text_model.encoder.layers.0.mlp.fc1.weight"),
        ("text", "text_model.final_layer_norm.bias", "text_model.final_layer_norm.bias"),
    ],
)
def test_names_of_a_checkpoint(part: str, name: str, original: str) -> None:
    assert loaded("stable_diffusion_cpp").original(part, name).name == original


def test_runs_of_several_callers_are_counted_and_compared() -> None:
    callers, right = loaded("callers"), {"y": np.arange(3)}
    assert callers.rate(lambda inputs: inputs, right, right, callers=2, seconds=0.01) > 0
    with pytest.raises(AssertionError, match="wrong results"):
        callers.rate(lambda inputs: {"y": inputs["y"] + 1}, right, right, callers=2, seconds=0.01)
