"""The denoiser, text encoders and autoencoder in files of their own, in every kind of file that people have."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
sys.path.insert(0, str(Path(__file__).parent))

from architecture_models import ENGINES, SMALL, VOCABULARY  # noqa: E402

from graphc_images.errors import ModelError, SettingError  # noqa: E402
from graphc_images.models import Conditioning, load_model  # noqa: E402
from graphc_images.models.encoders import encoder_of  # noqa: E402
from graphc_images.pipeline import Pipeline  # noqa: E402

pytestmark = pytest.mark.torch
DENOISER, VAE = "model.diffusion_model.", "first_stage_model."
CLIP_L, T5 = "text_encoders.clip_l.transformer.", "text_encoders.t5xxl.transformer."

LLAMA = {
    r"shared\.": "token_embd.",
    r"encoder\.final_layer_norm\.": "enc.output_norm.",
    r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.(q|k|v|o)\.": r"enc.blk.\1.attn_\2.",
    r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.relative_attention_bias\.": r"enc.blk.\1.attn_rel_b.",
    r"encoder\.block\.(\d+)\.layer\.0\.layer_norm\.": r"enc.blk.\1.attn_norm.",
    r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_0\.": r"enc.blk.\1.ffn_gate.",
    r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_1\.": r"enc.blk.\1.ffn_up.",
    r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wo\.": r"enc.blk.\1.ffn_down.",
    r"encoder\.block\.(\d+)\.layer\.1\.layer_norm\.": r"enc.blk.\1.ffn_norm.",
}
"""transformers' names of T5, and llama.cpp's (gguf-py/gguf/tensor_mapping.py)."""


def in_llama(name, table=LLAMA):
    for theirs, ours in table.items():
        if re.match(theirs, name):
            return re.sub(theirs, ours, name)
    return None


def part(arrays, prefix):
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def write_gguf(path, arch, arrays, kind):
    """As city96's tools: matrices in blocks where their rows fit, biases and norms as float32. The numbers that it then has."""
    writer, numbers = gguf.GGUFWriter(path, arch), {}
    for name, array in arrays.items():
        if array.ndim == 2 and array.shape[1] % 32 == 0:
            data = gguf.quants.quantize(array, kind)
            writer.add_tensor(name, data, raw_dtype=kind)
            numbers[name] = gguf.quants.dequantize(data, kind)
        else:
            writer.add_tensor(name, array)
            numbers[name] = array
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return numbers


def noise(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(found, expected, tolerance):
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@pytest.fixture(scope="module")
def flux(tmp_path_factory):
    """The arrays of a small Flux, and a folder."""
    return SMALL["Flux dev"].weights(), tmp_path_factory.mktemp("flux")


def opened(source, name="Flux dev", **settings):
    row = SMALL[name].architecture
    return load_model(source, architectures=[row], engines=ENGINES, threads=1, **settings)


def predicted(model):
    given = Conditioning(noise(1, 30, 48, seed=2), pooled=noise(1, 16, seed=3), guidance=np.array([3.5], np.float32))
    return model.denoise(noise(1, 16, 8, 6), 0.75, given)


@pytest.mark.parametrize(("kind", "tolerance"), [("Q8_0", 0.03), ("Q4_0", 0.03)])
def test_gguf_of_a_denoiser(flux, kind, tolerance):
    arrays, folder = flux
    own = part(arrays, DENOISER)
    numbers = write_gguf(folder / f"{kind}.gguf", "flux", own, gguf.GGMLQuantizationType[kind])
    model = opened(folder / f"{kind}.gguf")
    near(predicted(model), predicted(opened(numbers)), tolerance)
    kept = {weight.type_name for weight in model.loaded.there((id(model), "denoiser")).program.weights}
    assert kind.lower() in kept


def test_text_encoders_and_an_autoencoder_apart(flux):
    arrays, folder = flux
    for name, prefix in (("unet", DENOISER), ("vae", VAE), ("clip", CLIP_L), ("t5", T5)):
        save_file(part(arrays, prefix), folder / f"{name}.safetensors")
    files = {name: folder / f"{name}.safetensors" for name in ("unet", "vae", "clip", "t5")}
    whole, alone = opened(arrays), opened(files["unet"])
    np.testing.assert_array_equal(predicted(alone), predicted(whole))
    ids = np.random.default_rng(5).integers(0, 30000, (1, 9))
    for encoder, flag in (("clip_l", "--clip-l"), ("t5xxl", "--t5")):
        with pytest.raises(ModelError, match=rf"unet\.safetensors: it has no text encoder {encoder}.*{flag} FILE"):
            alone.encode_tokens(encoder, ids)
    joined = opened(files["unet"], vae=files["vae"], text=[files["t5"], files["clip"]])
    for encoder in ("clip_l", "t5xxl"):
        tokens = ids if encoder == "t5xxl" else np.pad(ids, ((0, 0), (0, 68)), constant_values=VOCABULARY - 1)
        found, expected = (each.encode_tokens(encoder, tokens).states for each in (joined, whole))
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(joined.decode_latent(noise(1, 16, 2, 2)), whole.decode_latent(noise(1, 16, 2, 2)))
    with pytest.raises(SettingError, match=r"it is t5xxl, as .*t5\.safetensors is"):
        opened(files["unet"], text=[files["t5"], files["t5"]])
    with pytest.raises(ModelError, match=r"vae\.safetensors: it is no text encoder that is known"):
        opened(files["unet"], text=[files["vae"]])


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gguf_of_t5(flux, kind):
    arrays, folder = flux
    arrays = {**arrays, f"{T5}encoder.embed_tokens.weight": arrays[f"{T5}shared.weight"]}  # two names of one table
    own = {llama: array for name, array in part(arrays, T5).items() if (llama := in_llama(name))}
    numbers = write_gguf(folder / f"t5-{kind}.gguf", "t5encoder", own, gguf.GGMLQuantizationType[kind])
    assert len(numbers) == len(own) > 15
    ids = np.random.default_rng(5).integers(0, 32000, (2, 9))
    found = opened(arrays, text=[folder / f"t5-{kind}.gguf"]).encode_tokens("t5xxl", ids).states
    near(found, opened(arrays).encode_tokens("t5xxl", ids).states, 1e-6 if kind == "F32" else 0.05)


QWEN = "text_encoders.qwen3_4b.transformer."
QWEN_LLAMA = {
    r"model\.embed_tokens\.": "token_embd.",
    r"model\.norm\.": "output_norm.",
    r"model\.layers\.(\d+)\.self_attn\.(q|k|v)_proj\.": r"blk.\1.attn_\2.",
    r"model\.layers\.(\d+)\.self_attn\.o_proj\.": r"blk.\1.attn_output.",
    r"model\.layers\.(\d+)\.self_attn\.(q|k)_norm\.": r"blk.\1.attn_\2_norm.",
    r"model\.layers\.(\d+)\.input_layernorm\.": r"blk.\1.attn_norm.",
    r"model\.layers\.(\d+)\.post_attention_layernorm\.": r"blk.\1.ffn_norm.",
    r"model\.layers\.(\d+)\.mlp\.(gate|up|down)_proj\.": r"blk.\1.ffn_\2.",
}


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gguf_of_z_image_and_qwen(tmp_path, kind):
    """As llama.cpp and stable-diffusion.cpp write them, whose tensors have no axes of size 1."""
    arrays = SMALL["Z-Image"].weights()
    own = {name: array.reshape(-1) if "pad_token" in name else array for name, array in part(arrays, DENOISER).items()}
    text = {in_llama(name, QWEN_LLAMA): array for name, array in part(arrays, QWEN).items()}
    assert None not in text
    assert len(text) == len(part(arrays, QWEN))
    for name, arch, given in (("z", "lumina2", own), ("qwen", "qwen3", text)):
        write_gguf(tmp_path / f"{name}.gguf", arch, given, gguf.GGMLQuantizationType[kind])
    found = opened(tmp_path / "z.gguf", "Z-Image", text=[tmp_path / "qwen.gguf"])
    whole = opened(arrays, "Z-Image")
    tolerance = 1e-6 if kind == "F32" else 0.05
    ids = np.random.default_rng(5).integers(0, 151669, (1, 32))
    words, expected = (each.encode_tokens("llm", ids).skipping(1) for each in (found, whole))
    near(words, expected, tolerance)
    given = Conditioning(expected, mask=(np.arange(32) < 20)[None].astype(np.float32))
    near(*(each.denoise(noise(1, 16, 8, 6), 0.75, given) for each in (found, whole)), tolerance)
    alone = opened(tmp_path / "z.gguf", "Z-Image")
    with pytest.raises(ModelError, match=r"z\.gguf: it has no text encoder llm, which Z-Image reads: .*--llm FILE"):
        alone.encode_tokens("llm", ids)


QWEN25 = "text_encoders.qwen25_7b.transformer."
SEEN = {"visual.patch_embed.proj.weight": np.zeros((8, 3, 2, 14, 14), np.float32)}
"""Of what Qwen2.5-VL sees pictures with."""


def parts_of_qwen_image():
    """The transformer, the text encoder and the autoencoder, by the names that their own files have."""
    arrays = SMALL["Qwen-Image"].weights()
    return part(arrays, DENOISER), part(arrays, QWEN25), part(arrays, VAE)


def painted_alike(found, whole, tolerance):
    """Words, latents and pictures of two models."""
    ids = np.random.default_rng(5).integers(0, 151669, (1, 12))
    words, expected = (each.encode_tokens("llm", ids).skipping(1) for each in (found, whole))
    near(words, expected, tolerance)
    near(*(each.denoise(noise(1, 16, 8, 6), 0.75, Conditioning(expected)) for each in (found, whole)), tolerance)
    near(*(each.decode_latent(noise(1, 16, 2, 3)) for each in (found, whole)), 1e-6)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gguf_of_qwen_image(tmp_path, kind):
    """As city96's tools write the transformer, and llama.cpp the language model, which leaves out what sees."""
    own, text, vae = parts_of_qwen_image()
    renamed = {in_llama(name, QWEN_LLAMA) or name.replace("lm_head", "output"): array for name, array in text.items()}
    assert {name for name in renamed if not name.startswith("blk.")} == {
        "token_embd.weight", "output_norm.weight", "output.weight"
    }  # fmt: skip
    for name, arch, given in (("qwen_image", "qwen_image", own), ("qwen25", "qwen2vl", renamed)):
        write_gguf(tmp_path / f"{name}.gguf", arch, given, gguf.GGMLQuantizationType[kind])
    found = opened(tmp_path / "qwen_image.gguf", "Qwen-Image", text=[tmp_path / "qwen25.gguf"], vae=vae)
    painted_alike(found, opened(SMALL["Qwen-Image"].weights(), "Qwen-Image"), 1e-6 if kind == "F32" else 0.05)
    alone = opened(tmp_path / "qwen_image.gguf", "Qwen-Image")
    with pytest.raises(ModelError, match=r"qwen_image\.gguf: it has no text encoder llm.*--llm FILE"):
        alone.encode_tokens("llm", np.zeros((1, 2), np.int64))
    with pytest.raises(ModelError, match=r"qwen_image\.gguf: it has no autoencoder.*--vae FILE"):
        alone.decode_latent(noise(1, 16, 2, 3))


@pytest.mark.parametrize("prefix", ["", DENOISER])
def test_files_of_qwen_image(tmp_path, prefix):
    """ComfyUI's three files: qwen_image_fp8_e4m3fn, qwen_2.5_vl_7b_fp8_scaled with what sees, qwen_image_vae in half the bits."""
    from safetensors.torch import save_file as save_tensors

    own, text, vae = parts_of_qwen_image()
    eighth = torch.float8_e4m3fn
    halves = {f"{prefix}{name}": torch.from_numpy(array).to(eighth) for name, array in own.items()}
    save_tensors(halves, tmp_path / "qwen_image.safetensors")
    scaled = {"scaled_fp8": torch.zeros(0, dtype=eighth)}
    numbers = {}
    for name, array in (text | SEEN).items():
        tensor = torch.from_numpy(array)
        if name.endswith("_proj.weight"):
            scale = tensor.abs().max() / 400
            scaled |= {name: (tensor / scale).to(eighth), name.replace("weight", "scale_weight"): scale.reshape(1)}
            numbers[name] = (scaled[name].float() * scale).numpy()
        else:
            scaled[name] = tensor.to(torch.bfloat16)
            numbers[name] = scaled[name].float().numpy()
    save_tensors(scaled, tmp_path / "qwen_2.5_vl_7b_fp8_scaled.safetensors")
    save_file({name: array.astype(np.float16) for name, array in vae.items()}, tmp_path / "vae.safetensors")
    same = {name.removeprefix(prefix): tensor.float().numpy() for name, tensor in halves.items()}
    whole = opened(
        same, "Qwen-Image", text=[numbers], vae={name: array.astype(np.float16) for name, array in vae.items()}
    )
    files = {"text": [tmp_path / "qwen_2.5_vl_7b_fp8_scaled.safetensors"], "vae": tmp_path / "vae.safetensors"}
    painted_alike(opened(tmp_path / "qwen_image.safetensors", "Qwen-Image", **files), whole, 1e-2)
    save_file(part(SMALL["Z-Image"].weights(), QWEN), tmp_path / "qwen3.safetensors")
    other = opened(own, "Qwen-Image", text=[tmp_path / "qwen3.safetensors"])
    with pytest.raises(ModelError, match=r"qwen3\.safetensors: .* does not fit the model"):
        other.encode_tokens("llm", np.zeros((1, 2), np.int64))


def test_all_that_is_missing_is_said_before_a_step():
    model = opened(parts_of_qwen_image()[0], "Qwen-Image")
    said = r"it has no autoencoder, .*\(--vae FILE, vae=\), and no text encoder llm, .*\(--llm FILE, text=\)$"
    with pytest.raises(ModelError, match=said):
        next(Pipeline(model, "bare").steps("words", width=64, height=64))
    assert model.loaded.there((id(model), "denoiser")) is None


def test_a_folder_of_qwen_image(tmp_path):
    """As diffusers saves it, also with today's names of the text encoder, a part in a file."""
    own, text, vae = parts_of_qwen_image()
    module = SMALL["Qwen-Image"].module("vae", SMALL["Qwen-Image"].write(tmp_path))
    named = {key: array.numpy() for key, array in module.state_dict().items()}
    today = {
        re.sub("^visual", "model.visual", re.sub(r"^model\.", "model.language_model.", name)): array
        for name, array in (text | SEEN).items()
    }
    for folder, arrays, file in (
        ("transformer", own, "diffusion_pytorch_model"), ("text_encoder", today, "model"),
        ("vae", named, "diffusion_pytorch_model"),
    ):  # fmt: skip
        (tmp_path / "folder" / folder).mkdir(parents=True)
        save_file(arrays, tmp_path / "folder" / folder / f"{file}.safetensors")
    whole = opened(SMALL["Qwen-Image"].weights(), "Qwen-Image")
    painted_alike(opened(tmp_path / "folder", "Qwen-Image"), whole, 1e-6)
    alone = opened(own, "Qwen-Image", text=[today], vae=named)
    painted_alike(alone, whole, 1e-6)
    assert vae.keys() != named.keys()


def test_eight_bits(flux):
    """Floats of 8 bits, as t5xxl_fp8_e4m3fn.safetensors has them."""
    arrays, folder = flux
    own = {name: torch.from_numpy(array).to(torch.float8_e4m3fn) for name, array in part(arrays, T5).items()}
    from safetensors.torch import save_file as save_tensors

    save_tensors(own, folder / "t5_fp8.safetensors")
    same = {name: tensor.float().numpy() for name, tensor in own.items()}
    ids = np.random.default_rng(5).integers(0, 32000, (2, 9))
    found = opened(arrays, text=[folder / "t5_fp8.safetensors"]).encode_tokens("t5xxl", ids).states
    near(found, opened(arrays, text={"t5xxl": same}).encode_tokens("t5xxl", ids).states, 1e-3)


IN_DIFFUSERS = [
    "Stable Diffusion 1", "Stable Diffusion 3.5 medium", "Flux dev", "Chroma", "Z-Image", "Flux.2 klein 4B", "Qwen-Image"
]  # fmt: skip


def test_weights_that_are_scaled_in_another_way_are_named(tmp_path):
    """As ComfyUI's nvfp4: two numbers in a byte, and a scale for each sixteen."""
    from safetensors.torch import save_file as save_tensors

    small, name = SMALL["Z-Image"], "model.diffusion_model.layers.0.feed_forward.w1."
    given = {key: torch.from_numpy(array) for key, array in small.weights().items()}
    rows, columns = given[f"{name}weight"].shape
    given[f"{name}weight"] = torch.zeros(rows, columns // 2, dtype=torch.uint8)
    given[f"{name}weight_scale"] = torch.ones(rows, columns // 16).to(torch.float8_e4m3fn)
    given[f"{name}weight_scale_2"] = torch.ones(())
    save_tensors(given, tmp_path / "nvfp4.safetensors")
    model = load_model(tmp_path / "nvfp4.safetensors", architectures=[small.architecture], engines=ENGINES)
    with pytest.raises(
        ModelError, match=r"w1\.weight: it is scaled in a way that is not supported: uint8 .* by float8"
    ):
        model.warm("denoiser")


@pytest.mark.parametrize("name", IN_DIFFUSERS)
def test_a_denoiser_in_the_layout_of_diffusers(name, tmp_path):
    """It is recognized by the marks that the published sizes have there, and gives what the authors' layout gives."""
    small = SMALL[name]
    path = small.write(tmp_path)
    module = small.module("denoiser", path)
    save_file(
        {key: array.numpy() for key, array in module.state_dict().items()},
        tmp_path / "diffusion_pytorch_model.safetensors",
    )
    pooled = noise(1, 48 if name.startswith("Stable") else 16, seed=3)
    guidance = np.array([3.5], np.float32) if name == "Flux dev" else None
    words = noise(1, 32, 96 if name.startswith("Flux.2") else 48, seed=2)
    given = Conditioning(words, pooled=pooled, guidance=guidance, mask=np.ones((1, 32), np.float32))
    x = noise(1, small.architecture.latent.channels, 8, 6)
    found, expected = (
        opened(file, name).denoise(x, 0.75, given) for file in (tmp_path / "diffusion_pytorch_model.safetensors", path)
    )
    np.testing.assert_array_equal(found, expected)


def test_an_encoder_is_told_by_its_tensors():
    def clip(width):
        return {"text_model.embeddings.token_embedding.weight": np.broadcast_to(np.float16(0), (49408, width))}

    assert encoder_of(clip(768), ["clip_l", "clip_g"]) == "clip_l"
    assert encoder_of(clip(1280), ["clip_l", "clip_g"]) == "clip_g"
    assert encoder_of({"token_embedding.weight": np.zeros((1, 1024))}, ["clip_h"]) == "clip_h"
    assert encoder_of(clip(5), ["clip_l", "t5xxl"]) == "clip_l"
    with pytest.raises(ModelError, match="width 5, which may be any of clip_l, clip_g: say which"):
        encoder_of(clip(5), ["clip_l", "clip_g"])


def test_whole_files_are_written_and_read(flux):
    arrays, folder = flux
    save_file(arrays, folder / "whole.safetensors")
    assert load_file(folder / "whole.safetensors").keys() == arrays.keys()
    assert set(opened(folder / "whole.safetensors").components) == {"denoiser", "vae", "clip_l", "t5xxl"}
