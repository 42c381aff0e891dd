"""Components of small models, from files in the authors' layout, beside the same weights in diffusers and transformers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
sys.path.insert(0, str(Path(__file__).parent))

from architecture_models import ENGINES, SMALL, VOCABULARY  # noqa: E402

from graphc import NothingFitsError  # noqa: E402
from graphc.weights.layouts import detect  # noqa: E402
from graphc_images.errors import ModelError, SettingError  # noqa: E402
from graphc_images.models import Conditioning, Loaded, load_model  # noqa: E402

pytestmark = pytest.mark.torch


def near(found, expected, tolerance=2e-5):
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def noise(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def as_torch(*arrays):
    return [torch.from_numpy(np.asarray(each)) for each in arrays]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    made = {}

    def file(name):
        if name not in made:
            made[name] = SMALL[name].write(folder, name=f"{name}.safetensors")
        return made[name]

    return file


def opened(name, files, **settings):
    small = SMALL[name]
    require(small.architecture.denoiser.engine)
    return small, load_model(files(name), architectures=[small.architecture], engines=ENGINES, threads=1, **settings)


def require(engine):
    if not (ENGINES / f"{engine}.gguf.gz").exists():
        pytest.skip(f"python -m examples.image_engines --small {engine} makes its engine")


def prompt(batch=2, tokens=77):
    ids = np.random.default_rng(4).integers(1000, VOCABULARY - 10, (batch, tokens))
    ids[:, 0] = VOCABULARY - 2
    for row, end in enumerate((9, 20)[:batch]):
        ids[row, end:] = VOCABULARY - 1
    return ids, [9, 20][:batch]


@pytest.mark.parametrize("name", SMALL)
def test_text_encoders(name, files):
    small, model = opened(name, files)
    for encoder in small.architecture.text:
        module = small.module(encoder, files(name))
        if encoder == "t5xxl":
            ids = np.random.default_rng(5).integers(0, 32000, (2, 13))
            mask = (np.arange(13) < np.array([[13], [6]])).astype(np.int64)
            expected = module(*as_torch(ids, mask)).last_hidden_state
            near(model.encode_tokens(encoder, ids, mask).skipping(1), expected)
            continue
        if encoder == "llm":
            ids = np.random.default_rng(5).integers(0, 151669, (2, 13))
            mask = (np.arange(13) < np.array([[13], [6]])).astype(np.int64)
            states = module(*as_torch(ids, mask), output_hidden_states=True).hidden_states
            if small.architecture.kind == "flux2":
                near(model.encode_tokens(encoder, ids, mask).skipping(1), np.concatenate(states[1:3], axis=-1))
            else:
                last = states[-1 if small.architecture.kind == "qwen_image" else -2].numpy()
                near(model.encode_tokens(encoder, ids).skipping(1)[mask == 1], last[mask == 1])
            continue
        ids, ends = prompt()
        encoded = model.encode_tokens(encoder, ids)
        expected = module(*as_torch(ids), output_hidden_states=True)
        near(encoded.skipping(1), expected.last_hidden_state)
        near(encoded.skipping(2, normed=False), expected.hidden_states[-2])
        pooled = expected.text_embeds if encoded.projected is not None else expected.pooler_output
        near(encoded.pooled(ends), pooled)
    model.close()


def test_the_autoencoder_of_flux2(files):
    small, model = opened("Flux.2 klein 4B", files)
    module = small.module("vae", files("Flux.2 klein 4B"))
    variance = module.bn.running_var + module.config.batch_norm_eps
    image = np.clip(noise(1, 3, 32, 48), -1, 1)
    posterior = module.encode(*as_torch(image)).latent_dist
    drawn = noise(1, 128, 2, 3, seed=3)
    packed = [torch.nn.functional.pixel_unshuffle(each, 2) for each in (posterior.mean, posterior.std)]
    for extra in (None, drawn):
        expected = packed[0] if extra is None else packed[0] + packed[1] * torch.from_numpy(extra)
        expected = (expected - module.bn.running_mean[:, None, None]) / torch.sqrt(variance)[:, None, None]
        near(model.encode_image(image, extra), expected)


def test_the_autoencoder_of_qwen_image(files):
    small, model = opened("Qwen-Image", files)
    module = small.module("vae", files("Qwen-Image"))
    means, deviations = (
        np.array(module.config[each], np.float32)[:, None, None] for each in ("latents_mean", "latents_std")
    )
    for height, width in ((16, 24), (40, 8)):
        image = np.clip(noise(1, 3, height, width), -1, 1)
        posterior = module.encode(*as_torch(image[:, :, None])).latent_dist
        mean, deviation = (each[:, :, 0].numpy() for each in (posterior.mean, posterior.std))
        near(model.encode_image(image), (mean - means) / deviations)
        drawn = noise(*mean.shape, seed=3)
        near(model.encode_image(image, drawn), (mean + deviation * drawn - means) / deviations)
        latent = noise(2, 16, height // 8, width // 8)
        expected = module.decode(*as_torch((latent * deviations + means)[:, :, None])).sample[:, :, 0].numpy()
        found = np.clip(model.decode_latent(latent), -1, 1)
        assert np.abs(expected).max() == 1
        assert np.abs(found).mean() < 0.9
        near(found, expected)


@pytest.mark.parametrize("name", ["Stable Diffusion 1", "Flux dev"])
def test_autoencoders(name, files):
    small, model = opened(name, files)
    require(f"{small.architecture.vae.engine}_decoder")
    module, format = small.module("vae", files(name)), small.architecture.latent
    for height, width in ((16, 24), (40, 8)):
        image = np.clip(noise(1, 3, height, width), -1, 1)
        posterior = module.encode(*as_torch(image)).latent_dist
        near(model.encode_image(image), (posterior.mean.numpy() - format.shift) * format.scale)
        drawn = noise(*posterior.mean.shape, seed=3)
        expected = posterior.mean.numpy() + posterior.std.numpy() * drawn
        near(model.encode_image(image, drawn), (expected - format.shift) * format.scale)
        latent = noise(2, format.channels, height // 8, width // 8)
        near(model.decode_latent(latent), module.decode(*as_torch(latent / format.scale + format.shift)).sample)


def test_stable_diffusion_1_denoises(files):
    small, model = opened("Stable Diffusion 1", files)
    module = small.module("denoiser", files("Stable Diffusion 1"))
    for batch, height, width, tokens in ((1, 8, 8, 77), (2, 9, 7, 154), (3, 1, 2, 1)):
        x, words = noise(batch, 4, height, width), noise(batch, tokens, 48, seed=2)
        expected = module(*as_torch(x), 601.5, *as_torch(words)).sample
        near(model.denoise(x, 601.5, Conditioning(words)), expected)
    times = np.array([3.0, 999.0, 250.0], np.float32)
    expected = module(*as_torch(x, times, words)).sample
    near(model.denoise(x, times, Conditioning(words)), expected)


def test_stable_diffusion_xl_denoises(files):
    small, model = opened("Stable Diffusion XL", files)
    module = small.module("denoiser", files("Stable Diffusion XL"))
    x, words, pooled = noise(2, 4, 8, 6), noise(2, 77, 48, seed=2), noise(2, 32, seed=3)
    sizes = np.array([[1024, 768, 0, 0, 1024, 768]], np.float32)
    added = {"text_embeds": torch.from_numpy(pooled), "time_ids": torch.from_numpy(np.repeat(sizes, 2, 0))}
    expected = module(*as_torch(x), 33.0, *as_torch(words), added_cond_kwargs=added).sample
    near(model.denoise(x, 33.0, Conditioning(words, pooled=pooled, sizes=sizes)), expected)
    with pytest.raises(SettingError, match="also wants pooled"):
        model.denoise(x, 33.0, Conditioning(words, sizes=sizes))


def test_stable_diffusion_3_denoises(files):
    small, model = opened("Stable Diffusion 3.5 medium", files)
    module = small.module("denoiser", files("Stable Diffusion 3.5 medium"))
    for height, width in ((8, 6), (14, 22)):
        x, words, pooled = noise(2, 16, height, width), noise(2, 30, 48, seed=2), noise(2, 48, seed=3)
        expected = module(*as_torch(x, words, pooled), torch.full((2,), 750.0)).sample
        near(model.denoise(x, 0.75, Conditioning(words, pooled=pooled)), expected)
    with pytest.raises(SettingError, match="multiples of 16"):
        model.denoise(noise(1, 16, 8, 7), 0.5, Conditioning(words[:1], pooled=pooled[:1]))


def packed(x):
    from diffusers import FluxPipeline

    return FluxPipeline._pack_latents(torch.from_numpy(x), *x.shape)


def test_flux_denoises(files):
    from diffusers import FluxPipeline

    small, model = opened("Flux dev", files)
    module = small.module("denoiser", files("Flux dev"))
    x, words, pooled = noise(2, 16, 8, 6), noise(2, 30, 48, seed=2), noise(2, 16, seed=3)
    places = FluxPipeline._prepare_latent_image_ids(2, 4, 3, "cpu", torch.float32)
    shared = {
        "encoder_hidden_states": torch.from_numpy(words), "pooled_projections": torch.from_numpy(pooled),
        "timestep": torch.full((2,), 0.75), "guidance": torch.full((2,), 3.5), "txt_ids": torch.zeros(30, 3),
    }  # fmt: skip
    expected = module(hidden_states=packed(x), img_ids=places, **shared).sample
    expected = FluxPipeline._unpack_latents(expected, 64, 48, 8)
    guidance = np.array([3.5], np.float32)
    given = Conditioning(words, pooled=pooled, guidance=guidance)
    near(model.denoise(x, 0.75, given), expected, 1e-4)
    reference = noise(1, 16, 4, 4, seed=7)
    beside = places.clone()
    other = FluxPipeline._prepare_latent_image_ids(2, 2, 2, "cpu", torch.float32)
    other[..., 0] = 1
    both = torch.cat([packed(x), packed(np.repeat(reference, 2, 0))], dim=1)
    expected = module(hidden_states=both, img_ids=torch.cat([beside, other]), **shared).sample[:, :12]
    expected = FluxPipeline._unpack_latents(expected, 64, 48, 8)
    given = Conditioning(words, pooled=pooled, guidance=guidance, references=(reference,))
    near(model.denoise(x, 0.75, given), expected, 1e-4)


def test_chroma_denoises(files):
    from diffusers import FluxPipeline

    small, model = opened("Chroma", files)
    module = small.module("denoiser", files("Chroma"))
    x, words = noise(2, 16, 8, 6), noise(2, 30, 48, seed=2)
    mask = (np.arange(30) < np.array([[30], [11]])).astype(np.float32)
    seen = torch.from_numpy(np.concatenate([mask, np.ones((2, 12), np.float32)], axis=1)) > 0
    expected = module(
        hidden_states=packed(x), img_ids=FluxPipeline._prepare_latent_image_ids(2, 4, 3, "cpu", torch.float32),
        encoder_hidden_states=torch.from_numpy(words), timestep=torch.full((2,), 0.75), txt_ids=torch.zeros(30, 3),
        attention_mask=seen,
    ).sample  # fmt: skip
    expected = FluxPipeline._unpack_latents(expected, 64, 48, 8)
    near(model.denoise(x, 0.75, Conditioning(words, mask=mask)), expected, 1e-4)


def test_qwen_image_denoises(files):
    """Also sizes with an odd number of squares, whose middle lies between two."""
    from diffusers import QwenImagePipeline

    small, model = opened("Qwen-Image", files)
    module = small.module("denoiser", files("Qwen-Image"))
    for height, width, tokens in ((8, 6, 30), (2, 10, 1), (6, 14, 7)):
        x, words = noise(2, 16, height, width), noise(2, tokens, 48, seed=2)
        expected = module(
            hidden_states=packed(x), encoder_hidden_states=torch.from_numpy(words), timestep=torch.tensor([0.75, 0.25]),
            img_shapes=[[(1, height // 2, width // 2)]] * 2,
        ).sample  # fmt: skip
        expected = QwenImagePipeline._unpack_latents(expected, 8 * height, 8 * width, 8)[:, :, 0]
        near(model.denoise(x, np.array([0.75, 0.25], np.float32), Conditioning(words)), expected, 1e-4)


def test_half_precision_stays_in_the_file(tmp_path):
    small = SMALL["Stable Diffusion 1"]
    require("unet_sd1")
    path = small.write(tmp_path, dtype=np.float16)
    model = load_model(path, architectures=[small.architecture], engines=ENGINES, threads=1)
    module = small.module("denoiser", path)
    x, words = noise(1, 4, 8, 8), noise(1, 77, 48, seed=2)
    near(model.denoise(x, 500.0, Conditioning(words)), module(*as_torch(x), 500.0, *as_torch(words)).sample, 1e-4)
    engine = model.loaded.there((id(model), "denoiser"))
    assert {weight.type_name for weight in engine.program.weights} == {"float32", "f16"}


def test_models_are_freed_when_they_would_not_fit(files):
    _, model = opened("Stable Diffusion 1", files, loaded=Loaded("10MiB"))
    ids, _ = prompt(1)
    words = model.encode_tokens("clip_l", ids).skipping(1)
    first = model.denoise(noise(1, 4, 8, 8), 10.0, Conditioning(words))
    assert model.loaded.there((id(model), "clip_l")) is None
    model.encode_tokens("clip_l", ids)
    assert model.loaded.there((id(model), "denoiser")) is None
    np.testing.assert_array_equal(model.denoise(noise(1, 4, 8, 8), 10.0, Conditioning(words)), first)


def test_separate_files(files, tmp_path):
    from safetensors.numpy import load_file, save_file

    whole = load_file(files("Stable Diffusion 1"))
    parts = {
        "unet": "model.diffusion_model.", "vae": "first_stage_model.", "clip": "cond_stage_model.transformer.",
    }  # fmt: skip
    for name, prefix in parts.items():
        own = {key.removeprefix(prefix): array for key, array in whole.items() if key.startswith(prefix)}
        save_file(own, tmp_path / f"{name}.safetensors")
    row = SMALL["Stable Diffusion 1"].architecture
    require("unet_sd1")
    settings = {"architectures": [row], "engines": ENGINES, "threads": 1}
    alone = load_model(tmp_path / "unet.safetensors", **settings)
    with pytest.raises(ModelError, match=r"unet\.safetensors: it has no autoencoder.*--vae FILE"):
        alone.decode_latent(noise(1, 4, 2, 2))
    text = {"clip_l": tmp_path / "clip.safetensors"}
    joined = load_model(tmp_path / "unet.safetensors", vae=tmp_path / "vae.safetensors", text=text, **settings)
    _, model = opened("Stable Diffusion 1", files)
    ids, _ = prompt(1)
    latent, image = noise(1, 4, 3, 2), np.clip(noise(1, 3, 16, 8), -1, 1)
    np.testing.assert_array_equal(joined.decode_latent(latent), model.decode_latent(latent))
    np.testing.assert_array_equal(joined.encode_image(image), model.encode_image(image))
    found, expected = (each.encode_tokens("clip_l", ids).states for each in (joined, model))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(SettingError, match="has no clip_g"):
        load_model(tmp_path / "unet.safetensors", text={"clip_g": tmp_path / "clip.safetensors"}, **settings)


def test_loras(files):
    _, model = opened("Stable Diffusion 1", files)
    random = np.random.default_rng(8)
    name = "lora_unet_input_blocks_1_1_transformer_blocks_0_attn2_to_k"
    text = "lora_te_text_model_encoder_layers_0_self_attn_q_proj"
    change = {
        f"{name}.lora_down.weight": random.standard_normal((2, 48)).astype(np.float32),
        f"{name}.lora_up.weight": random.standard_normal((16, 2)).astype(np.float32),
        f"{text}.lora_down.weight": random.standard_normal((2, 48)).astype(np.float32),
        f"{text}.lora_up.weight": random.standard_normal((48, 2)).astype(np.float32),
        "lora_unet_nowhere.lora_down.weight": random.standard_normal((2, 48)).astype(np.float32),
        "lora_unet_nowhere.lora_up.weight": random.standard_normal((16, 2)).astype(np.float32),
    }
    x, words = noise(1, 4, 8, 8), noise(1, 77, 48, seed=2)
    ids, _ = prompt(1)
    before = model.denoise(x, 10.0, Conditioning(words)), model.encode_tokens("clip_l", ids).states
    assert model.load_lora(change, 1.0, "style") == "style"
    after = model.denoise(x, 10.0, Conditioning(words)), model.encode_tokens("clip_l", ids).states
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(before, after, strict=True))
    assert any("nowhere" in each for each in model.unmatched["style"])
    model.close()
    np.testing.assert_array_equal(model.denoise(x, 10.0, Conditioning(words)), after[0])
    model.set_lora({"style": {"denoiser": 0.0, "text_encoder": 1.0}})
    near(model.denoise(x, 10.0, Conditioning(words)), before[0], 1e-6)
    model.unload_lora("style")
    np.testing.assert_array_equal(model.denoise(x, 10.0, Conditioning(words)), before[0])
    np.testing.assert_array_equal(model.encode_tokens("clip_l", ids).states, before[1])
    with pytest.raises(SettingError, match="no LoRA is called"):
        model.set_lora({"style": 1.0})


@pytest.mark.parametrize(("prefix", "encoder"), [("lora_te1_", "clip_l"), ("lora_te2_", "clip_g")])
def test_a_lora_for_one_of_two_text_encoders(files, prefix, encoder):
    """Stable Diffusion XL's encoders have the same names and other sizes: what a file has for one is not for the other."""
    small, model = opened("Stable Diffusion XL", files)
    width = small.modules[encoder].config["hidden_size"]
    change = {}
    for name, size in (
        ("lora_unet_output_blocks_3_1_transformer_blocks_0_attn1_to_k", 32),
        (text_layer(prefix), width),
    ):
        change[f"{name}.lora_down.weight"], change[f"{name}.lora_up.weight"] = noise(2, size), noise(size, 2)
    ids, _ = prompt(1)
    before = {each: model.encode_tokens(each, ids).states for each in ("clip_l", "clip_g")}
    for file in (change, {key: array for key, array in change.items() if key.startswith(prefix)}):
        model.load_lora(file, 1.0, "style")
        assert not model.unmatched["style"]
        for each, states in before.items():
            assert (np.abs(model.encode_tokens(each, ids).states - states).max() > 1e-3) == (each == encoder)
        model.unload_lora("style")
    wrong = {key: array[:, :1] if "down" in key else array for key, array in change.items() if key.startswith(prefix)}
    with pytest.raises(NothingFitsError):
        model.load_lora(wrong)


def text_layer(prefix):
    return f"{prefix}text_model_encoder_layers_0_self_attn_q_proj"


def test_a_lora_for_t5_alone(files):
    """It is not loaded for LoRAs of other parts; one that is for nothing else has it loaded."""
    small, model = opened("Flux dev", files)
    width = small.modules["t5xxl"].config["d_model"]
    name = "lora_te3_encoder_block_0_layer_0_SelfAttention_q"
    rows = small.weights()["text_encoders.t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.q.weight"].shape[0]
    file = {f"{name}.lora_down.weight": noise(2, width), f"{name}.lora_up.weight": noise(rows, 2)}
    model.load_lora(file, 1.0, "style")
    ids = np.array([[5, 6, 7, 1]])
    with_it = model.encode_tokens("t5xxl", ids).states
    model.unload_lora("style")
    assert np.abs(model.encode_tokens("t5xxl", ids).states - with_it).max() > 1e-3
    with pytest.raises(NothingFitsError):
        model.load_lora({key.replace("block_0", "block_77"): array for key, array in file.items()})
    assert not model.loras


def changes_as(small, model, file, weights):
    """A LoRA of Flux, all of it, changes what the model makes as much as if it had these weights."""
    told = (
        noise(1, 16, 8, 6),
        0.5,
        Conditioning(noise(1, 9, 48, seed=2), noise(1, 16, seed=3), guidance=np.float32([3.5])),
    )
    before = model.denoise(*told)
    model.load_lora(file, 1.0, "style")
    assert not model.unmatched["style"]
    after = model.denoise(*told)
    assert np.abs(after - before).max() > 1e-3
    changed = load_model(weights, architectures=[small.architecture], engines=ENGINES, threads=1)
    near(after, changed.denoise(*told), 1e-4)


def test_loras_of_xlabs(files):
    """For Flux they name what processes attention: 1 for the image's, 2 for the text's, and no number in single blocks."""
    small, model = opened("Flux dev", files)
    file, weights = {}, small.weights()
    for number, side in enumerate(("img", "txt"), 1):
        for layer, rows in (("qkv", 288), ("proj", 96)):
            down, up = 0.1 * noise(4, 96, seed=rows), 0.1 * noise(rows, 4, seed=number)
            named = f"double_blocks.1.processor.{layer}_lora{number}"
            file |= {f"{named}.down.weight": down, f"{named}.up.weight": up}
            weights[f"model.diffusion_model.double_blocks.1.{side}_attn.{layer}.weight"] += up @ down
    for layer, tensor, rows, columns in (("qkv", "linear1", 288, 96), ("proj", "linear2", 96, 480)):
        down, up = 0.1 * noise(4, columns, seed=rows), 0.1 * noise(rows, 4, seed=columns)
        named = f"single_blocks.0.processor.{layer}_lora"
        file |= {f"{named}.down.weight": down, f"{named}.up.weight": up}
        weights[f"model.diffusion_model.single_blocks.0.{tensor}.weight"][:rows] += up @ down
    changes_as(small, model, file, weights)


def test_an_oft_of_flux(files):
    """kohya's turns queries, keys, values and what is fed forward apart, though they are one tensor in its layout."""
    small, model = opened("Flux dev", files)
    file, weights = {}, small.weights()
    for name, parts in (("double_blocks.1.txt_attn.qkv", [96] * 3), ("single_blocks.0.linear1", [96, 96, 96, 384])):
        rows, weight = 0, weights[f"model.diffusion_model.{name}.weight"]
        for place, part in enumerate(parts):
            blocks = 0.3 * noise(4, part // 4, part // 4, seed=place)
            file[f"oft_unet_{name.replace('.', '_')}.oft_blocks.{place}"] = blocks
            for block in blocks.astype(np.float64):
                skew, one = block - block.T, np.eye(len(block))
                own = slice(rows, rows + len(block))
                weight[own] = ((one + skew) @ np.linalg.inv(one - skew)).T @ weight[own]
                rows += len(block)
    changes_as(small, model, file, weights)


SPELLINGS = {
    "lightx2v's": ("{}", "lora_down", "lora_up"),
    "diffusers'": ("transformer.{}", "lora_A", "lora_B"),
    "ai-toolkit's": ("diffusion_model.{}", "lora_A", "lora_B"),
    "kohya's": ("lora_unet_{}", "lora_down", "lora_up"),
    "OneTrainer's": ("lora_transformer_{}", "lora_down", "lora_up"),
    "LyCORIS's": ("lycoris_{}", "lora_down", "lora_up"),
}


TOLD = {
    "Qwen-Image": (noise(1, 16, 8, 6), Conditioning(noise(1, 9, 48, seed=2)), ("transformer_blocks",)),
    "Z-Image": (
        noise(1, 16, 8, 6),
        Conditioning(noise(1, 32, 48, seed=2), mask=np.ones((1, 32), np.float32)),
        ("layers", "noise_refiner", "context_refiner"),
    ),
    "Flux.2 klein 4B": (
        noise(1, 128, 4, 3),
        Conditioning(noise(1, 9, 96, seed=2)),
        ("double_blocks", "single_blocks"),
    ),
    "Flux dev": (
        noise(1, 16, 8, 6),
        Conditioning(noise(1, 9, 48, seed=2), noise(1, 16, seed=3), guidance=np.float32([3.5])),
        ("double_blocks", "single_blocks"),
    ),
    "Chroma": (
        noise(1, 16, 8, 6),
        Conditioning(noise(1, 9, 48, seed=2), mask=np.ones((1, 9), np.float32)),
        ("double_blocks", "single_blocks", "distilled_guidance_layer"),
    ),
}
"""A latent, what the model is told, and the blocks of which LoRAs change the matrices."""


@pytest.mark.parametrize("name", TOLD)
def test_loras_of_newer_models(name):
    """In the names that trainers write, those of the authors and of diffusers, where queries, keys and values are three; what the
    last block of Qwen-Image makes of words is in all of them, and nobody misses it. A block that there is not is named."""
    small, (x, words, blocks) = SMALL[name], TOLD[name]
    require(small.architecture.denoiser.engine)
    weights, prefix = small.weights(), "model.diffusion_model."
    settings = {"architectures": [small.architecture], "engines": ENGINES, "threads": 1}
    changed = [
        each for each, array in weights.items() if array.ndim == 2 and each.removeprefix(prefix).startswith(blocks)
    ]
    changes = {}
    for each in changed:
        rows, columns = weights[each].shape
        changes[each] = 0.1 * noise(4, columns, seed=columns), 0.1 * noise(rows, 4, seed=rows)
    merged = {
        each: array + changes[each][1] @ changes[each][0] if each in changes else array
        for each, array in weights.items()
    }
    expected = load_model(merged, **settings).denoise(x, 0.5, words)
    model = load_model(weights, **settings)
    assert np.abs(model.denoise(x, 0.5, words) - expected).max() > 1e-2 * np.abs(expected).max()
    layout = detect(
        {each.removeprefix(prefix): array.shape for each, array in weights.items() if each.startswith(prefix)}
    )
    sources = layout.sources({each.removeprefix(prefix): array for each, array in weights.items()})["transformer"]
    authors = {each.removeprefix(prefix).removesuffix(".weight"): pair for each, pair in changes.items()}
    diffusers = {
        ours.removesuffix(".weight"): (changes[prefix + source.name][0], source.array(changes[prefix + source.name][1]))
        for ours, source in sources.items()
        if prefix + source.name in changes
    }
    assert len(diffusers) >= len(authors)
    for kind, (spelling, first, second) in SPELLINGS.items():
        for names in (authors, diffusers):
            block = next(each for each in names if re.search(r"\.\d+\.", each))
            nowhere = re.sub(r"\.\d+\.", ".77.", block, count=1)
            file = {}
            for module, (down, up) in {**names, nowhere: names[block]}.items():
                called = spelling.format(module.replace(".", "_") if spelling.endswith("_{}") else module)
                file |= {f"{called}.{first}.weight": down, f"{called}.{second}.weight": np.ascontiguousarray(up)}
            model.load_lora(file, 1.0, kind)
            near(model.denoise(x, 0.5, words), expected, 1e-4)
            (left,) = model.unmatched[kind]
            assert left.replace(".", "_").endswith(nowhere.replace(".", "_"))
            model.unload_lora(kind)
