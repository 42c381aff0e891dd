"""What is said of files of each kind."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from graphc_images.commands import image
from graphc_images.errors import ImageError
from graphc_images.inspecting import tags_of, told
from graphc_images.pictures.files import Notes, save_picture
from graphc_images.pictures.graphs import graph_of


def write(path, tensors, metadata=None):
    from safetensors.numpy import save_file

    save_file({name: np.zeros(shape, np.float32) for name, shape in tensors.items()}, path, metadata)
    return path


LORA = {
    "lora_unet_down_blocks_0_attentions_0_proj_in.lora_down.weight": (8, 320),
    "lora_unet_down_blocks_0_attentions_0_proj_in.lora_up.weight": (320, 8),
    "lora_te_text_model_encoder_layers_0_mlp_fc1.lora_down.weight": (4, 768),
}


def test_a_lora_says_what_it_was_trained_on(tmp_path):
    tags = {"5_cats": {"cat": 7, "a red hat": 2}, "1_more": {"cat": 1}}
    said = {"ss_output_name": "cats", "ss_base_model_version": "sd_v1", "ss_tag_frequency": json.dumps(tags),
            "modelspec.trigger_phrase": "catz", "ss_network_dim": "None"}  # fmt: skip
    lines = told(write(tmp_path / "cats.safetensors", LORA, said))
    assert lines[0] == "a LoRA"
    assert {"title: cats", "made for: sd_v1", "trigger words: catz", "tags: cat (8), a red hat (2)"} <= set(lines)
    assert "changes the text encoder and the denoiser" in lines
    assert "rank: 4, 8" in told(write(tmp_path / "plain.safetensors", LORA))


@pytest.mark.parametrize("ending", [
    "diff", "w_norm", "hada_w1_a", "lokr_w2", "oft_blocks", "oft_R.weight", "on_input", "a1.weight", "to_q_lora.down.weight",
    "processor.qkv_lora1.up.weight", "lora_A.default.weight", "lambda_layer",
])  # fmt: skip
def test_relatives_of_loras(tmp_path, ending):
    tensors = {f"lora_transformer_x.{ending}": (2, 2), "bundle_emb.my.word.clip_l": (2, 768), "a": (1,), "b": (1,)}
    lines = told(write(tmp_path / "x.safetensors", tensors))
    assert (lines[0], lines[-2]) == ("a LoRA", "changes the denoiser")
    assert lines[-1] == "embeddings, which prompts may name while it is on: my.word"


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"b": "x"}}', "[" * 100_000])
def test_tags_that_are_damaged_are_none(text):
    assert tags_of({"ss_tag_frequency": text}) == []


@pytest.mark.parametrize(
    ("tensors", "lines"),
    [
        ({"clip_l": (3, 768), "clip_g": (3, 1280)}, ["an embedding", "3 vectors of 768 for clip_l"]),
        ({"emb_params": (2, 768)}, ["an embedding", "2 vectors of 768 for clip_l"]),
        ({"decoder.conv_in.weight": (512, 16, 3, 3), "encoder.x": (1,)}, ["an autoencoder", "latents of 16 channels"]),
        ({"1.weight": (64, 32, 3, 3), "3.conv.0.weight": (64, 64, 3, 3)}, ["a tiny autoencoder", "latents of 32 channels"]),
        ({"control_model.input_blocks.0.0.weight": (1,), "y": (1,)}, ["a ControlNet"]),
        ({"text_model.embeddings.token_embedding.weight": (10, 768), "y": (1,), "z": (1,), "w": (1,)}, ["a text encoder (CLIP)"]),
        ({"encoder.block.0.layer.0.SelfAttention.q.weight": (4, 4), "y": (1,), "z": (1,), "w": (1,)}, ["a text encoder (T5)"]),
    ],
)  # fmt: skip
def test_other_kinds(tmp_path, tensors, lines):
    assert told(write(tmp_path / "x.safetensors", tensors))[: len(lines)] == lines


def test_what_is_nothing_is_said(tmp_path):
    with pytest.raises(ImageError, match=r"x\.safetensors: it is not a model of pictures that is known"):
        told(write(tmp_path / "x.safetensors", {"a": (1,), "b": (2,), "c": (3,), "d": (4,)}))


def test_pictures_say_their_text_or_their_graph(tmp_path):
    graph = graph_of("a cat", "", checkpoint="m.safetensors", width=64, height=64, seed=5, steps=9, cfg=7.0,
                     sampler="euler", scheduler="normal")  # fmt: skip
    picture = Image.new("RGB", (8, 8))
    save_picture(picture, tmp_path / "graph.webp", Notes("", {"prompt": graph}))
    assert {"prompt: a cat", "steps: 9", "sampler: euler"} <= set(told(tmp_path / "graph.webp"))
    save_picture(picture, tmp_path / "none.png")
    assert told(tmp_path / "none.png") == ["the file does not say how the picture was made"]


def test_commands(tmp_path):
    (tmp_path / "models" / "Lora").mkdir(parents=True)
    (tmp_path / "models" / "VAE").mkdir()
    file = write(tmp_path / "models" / "Lora" / "cats.safetensors", LORA)
    write(tmp_path / "models" / "VAE" / "v.safetensors", {"a": (1,)})

    def said(*arguments):
        return CliRunner().invoke(image, [*map(str, arguments)], catch_exceptions=False).output

    assert "cats" in said("models", tmp_path)
    assert "v.safetensors" not in said("models", "--models", tmp_path, "--kind", "lora")
    assert "SHA-256: " in said("info", file, "--hash")
    for wrong in (["models"], ["models", str(tmp_path), "--kind", "x"]):
        assert isinstance(CliRunner().invoke(image, wrong).exception, ImageError)
