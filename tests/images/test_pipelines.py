"""Whole pipelines of small models with seeded weights beside diffusers' own, from the prompt's words to the last latent."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from graphc_images.models import load_model
from graphc_images.pipeline import Pipeline

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
pytestmark = pytest.mark.torch

PROMPT, AGAINST = "a red circle, left of a blue square", "yellow, a star"
SIGMAS = (14.6, 6.3, 2.7, 0.9, 0.2, 0.0)
FLOW = (1.0, 0.9, 0.7, 0.45, 0.2, 0.0)
HEIGHT, WIDTH = 64, 48


def tokenizer(padding):
    from test_tokenizers import transformers_clip

    found = transformers_clip()
    found.pad_token = padding
    found.model_max_length = 77
    return found


def t5_tokenizer():
    from test_tokenizers import transformers_t5

    return transformers_t5()


def flow():
    return diffusers.FlowMatchEulerDiscreteScheduler(shift=1.0)


def eps():
    return diffusers.EulerDiscreteScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", timestep_spacing="linspace", steps_offset=1
    )


def opened(name, folder, **changed):
    """A pipeline of a small model, and diffusers' modules with the same numbers; `changed` are other tensors of the file."""
    from architecture_models import ENGINES, SMALL, VARIANTS

    small = {**SMALL, **VARIANTS}[name]
    engine = small.architecture.denoiser.engine
    if not (ENGINES / f"{engine}.gguf.gz").exists():
        pytest.skip(f"python -m examples.image_engines --small makes {engine}")
    path = folder / f"{name}.safetensors"
    save_file(small.weights(dtype=np.float16) | changed, path)
    model = load_model(path, architectures=[small.architecture], engines=ENGINES, threads=2)
    modules = {part: small.module(part, path) for part in small.modules}
    return Pipeline(model, name), modules


def noise(channels):
    return torch.randn((1, channels, HEIGHT // 8, WIDTH // 8), generator=torch.Generator().manual_seed(3))


def near(mine, expected):
    expected = expected.numpy()
    assert np.isfinite(expected).all()
    assert mine.latent.shape == expected.shape
    assert np.abs(mine.latent - expected).max() < 1e-4 * np.abs(expected).max()


def painted(pipeline, start, sigmas, **settings):
    (made,) = pipeline(
        PROMPT, noise=start.numpy(), sampler="Euler", sigmas=sigmas, height=HEIGHT, width=WIDTH, seed=1, **settings
    )
    return made


def asked(start, **settings):
    return {
        "prompt": PROMPT, "latents": start, "height": HEIGHT, "width": WIDTH, "num_inference_steps": None,
        "output_type": "latent", **settings,
    }  # fmt: skip


def quiet(pipeline):
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def test_stable_diffusion_1(tmp_path):
    pipeline, modules = opened("Stable Diffusion 1", tmp_path)
    oracle = quiet(diffusers.StableDiffusionPipeline(
        vae=modules["vae"], text_encoder=modules["clip_l"], tokenizer=tokenizer("<|endoftext|>"), unet=modules["denoiser"],
        scheduler=eps(), safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    ))  # fmt: skip
    start = noise(4)
    expected = oracle(**asked(start, negative_prompt=AGAINST, guidance_scale=6.0, sigmas=list(SIGMAS))).images[0]
    near(painted(pipeline, start, SIGMAS, negative_prompt=AGAINST, cfg_scale=6.0), expected)


def test_inpainting_models(tmp_path, monkeypatch):
    """A1111 begins with the picture and noise, diffusers with noise alone, and with a latent by chance and not the likeliest."""
    from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution

    monkeypatch.setattr(DiagonalGaussianDistribution, "sample", lambda self, generator=None: self.mean)
    pipeline, modules = opened("Stable Diffusion 1 inpainting", tmp_path)
    oracle = quiet(diffusers.StableDiffusionInpaintPipeline(
        vae=modules["vae"], text_encoder=modules["clip_l"], tokenizer=tokenizer("<|endoftext|>"), unet=modules["denoiser"],
        scheduler=eps(), safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    ))  # fmt: skip
    pixels = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    image, mask = Image.fromarray(pixels), Image.new("L", (WIDTH, HEIGHT), 255)
    start, latent = noise(4), pipeline.model.encode_image((pixels / np.float32(127.5) - 1).transpose(2, 0, 1)[None])
    settings = asked(start + torch.from_numpy(latent) / SIGMAS[0], negative_prompt=AGAINST, guidance_scale=6.0)
    expected = oracle(image=image, mask_image=mask, strength=1.0, sigmas=list(SIGMAS), **settings).images[0]
    mine = painted(
        pipeline, start, SIGMAS, negative_prompt=AGAINST, cfg_scale=6.0, image=image, mask=mask, mask_blur=0,
        denoising_strength=1.0, steps=len(SIGMAS) - 1,
    )  # fmt: skip
    near(mine, expected)


def test_stable_diffusion_xl(tmp_path):
    pipeline, modules = opened("Stable Diffusion XL", tmp_path)
    oracle = quiet(diffusers.StableDiffusionXLPipeline(
        vae=modules["vae"], text_encoder=modules["clip_l"], text_encoder_2=modules["clip_g"],
        tokenizer=tokenizer("<|endoftext|>"), tokenizer_2=tokenizer("!"), unet=modules["denoiser"], scheduler=eps(),
        add_watermarker=False,
    ))  # fmt: skip
    start = noise(4)
    expected = oracle(**asked(start, negative_prompt=AGAINST, guidance_scale=6.0, sigmas=list(SIGMAS))).images[0]
    near(painted(pipeline, start, SIGMAS, negative_prompt=AGAINST, cfg_scale=6.0), expected)


def test_encoders_read_one_after_the_other(tmp_path, monkeypatch):
    """Where memory holds one encoder, each is loaded once for all prompts."""
    pipeline, _ = opened("Stable Diffusion XL", tmp_path)
    calls = []
    encode = pipeline.model.encode_tokens
    monkeypatch.setattr(
        pipeline.model, "encode_tokens", lambda name, *given: calls.append(name) or encode(name, *given)
    )
    pipeline(f"{PROMPT} AND a house", negative_prompt=AGAINST, steps=1, height=HEIGHT, width=WIDTH)
    assert [name for name, _ in groupby(calls)] == ["clip_l", "clip_g"]
    assert len(calls) == 6
    pipeline(f"{PROMPT} AND a house :0.5", negative_prompt=AGAINST, steps=1, height=HEIGHT, width=WIDTH)
    assert len(calls) == 6, "what was read is kept"


def test_stable_diffusion_3(tmp_path):
    pipeline, modules = opened("Stable Diffusion 3.5 medium", tmp_path)
    oracle = quiet(diffusers.StableDiffusion3Pipeline(
        transformer=modules["denoiser"], scheduler=flow(), vae=modules["vae"], text_encoder=modules["clip_l"],
        text_encoder_2=modules["clip_g"], text_encoder_3=modules["t5xxl"], tokenizer=tokenizer("<|endoftext|>"),
        tokenizer_2=tokenizer("!"), tokenizer_3=t5_tokenizer(),
    ))  # fmt: skip
    start = noise(16)
    settings = {
        "negative_prompt": AGAINST,
        "guidance_scale": 4.0,
        "sigmas": list(FLOW[:-1]),
        "max_sequence_length": 256,
    }
    expected = oracle(**asked(start, **settings)).images[0]
    near(painted(pipeline, start, FLOW, negative_prompt=AGAINST, cfg_scale=4.0), expected)


def test_flux(tmp_path):
    pipeline, modules = opened("Flux dev", tmp_path)
    oracle = quiet(diffusers.FluxPipeline(
        scheduler=flow(), vae=modules["vae"], text_encoder=modules["clip_l"], tokenizer=tokenizer("<|endoftext|>"),
        text_encoder_2=modules["t5xxl"], tokenizer_2=t5_tokenizer(), transformer=modules["denoiser"],
    ))  # fmt: skip
    start = noise(16)
    packed = oracle._pack_latents(start, *start.shape)
    settings = {"guidance_scale": 3.5, "sigmas": list(FLOW[:-1]), "max_sequence_length": 256}
    result = oracle(**asked(packed, **settings)).images
    expected = oracle._unpack_latents(result, HEIGHT, WIDTH, oracle.vae_scale_factor)[0]
    near(painted(pipeline, start, FLOW, guidance=3.5), expected)
