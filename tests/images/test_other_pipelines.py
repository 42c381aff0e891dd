"""Models that are used in another way than from words alone, beside diffusers' own pipelines, to the last latent."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from graphc_images.errors import SettingError

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from test_pipelines import (  # noqa: E402
    AGAINST,
    FLOW,
    HEIGHT,
    SIGMAS,
    WIDTH,
    asked,
    eps,
    flow,
    near,
    noise,
    opened,
    painted,
    quiet,
    t5_tokenizer,
    tokenizer,
)  # fmt: skip

pytestmark = pytest.mark.torch
UNSAFE = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8))
WHITE = Image.new("L", (WIDTH, HEIGHT), 255)


@pytest.fixture
def likeliest(monkeypatch):
    """diffusers draws the latents of pictures; here it takes the likeliest ones."""
    from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution

    monkeypatch.setattr(DiagonalGaussianDistribution, "sample", lambda self, generator=None: self.mean)


def as_latent(pipeline, picture):
    return torch.from_numpy(pipeline.model.encode_image(as_array(picture)))


def as_array(picture):
    return (np.asarray(picture, np.float32) / np.float32(127.5) - 1).transpose(2, 0, 1)[None]


def of_clip(modules):
    return {
        "vae": modules["vae"],
        "unet": modules["denoiser"],
        "scheduler": eps(),
        "tokenizer": tokenizer("<|endoftext|>"),
    }


def of_sdxl(modules, scheduler=None):
    if scheduler is None:
        modules["vae"].register_to_config(scaling_factor=0.13025)
    return {
        "vae": modules["vae"], "unet": modules["denoiser"], "scheduler": scheduler or eps(),
        "text_encoder": modules.get("clip_l"), "text_encoder_2": modules["clip_g"],
        "tokenizer": tokenizer("<|endoftext|>") if "clip_l" in modules else None, "tokenizer_2": tokenizer("!"),
        "add_watermarker": False,
    }  # fmt: skip


def of_flux(modules):
    modules["vae"].register_to_config(shift_factor=0.1159, scaling_factor=0.3611)
    return {
        "scheduler": flow(), "vae": modules["vae"], "text_encoder": modules["clip_l"],
        "tokenizer": tokenizer("<|endoftext|>"), "text_encoder_2": modules["t5xxl"], "tokenizer_2": t5_tokenizer(),
        "transformer": modules["denoiser"],
    }  # fmt: skip


def of_words(oracle, start, **settings):
    """What a pipeline of Flux' kind gives."""
    packed = oracle._pack_latents(start, *start.shape)
    settings = {"sigmas": list(FLOW[:-1]), "max_sequence_length": 256, **settings}
    result = oracle(**asked(packed, **settings)).images
    return oracle._unpack_latents(result, HEIGHT, WIDTH, oracle.vae_scale_factor)[0]


def test_instruct_pix2pix(tmp_path):
    pipeline, modules = opened("Stable Diffusion 1 instruct-pix2pix", tmp_path)
    oracle = quiet(
        diffusers.StableDiffusionInstructPix2PixPipeline(text_encoder=modules["clip_l"], **of_clip(modules), **UNSAFE)
    )
    start, steps = noise(4), 4  # whose times are whole, at which A1111 and diffusers agree
    oracle.scheduler.set_timesteps(steps)
    sigmas = tuple(map(float, oracle.scheduler.sigmas))
    given = asked(start + as_latent(pipeline, PICTURE) / sigmas[0], num_inference_steps=steps, negative_prompt=AGAINST)
    del given["height"], given["width"]
    expected = oracle(image=PICTURE, guidance_scale=6.0, image_guidance_scale=1.7, **given).images[0]
    settings = {"negative_prompt": AGAINST, "image": PICTURE, "denoising_strength": 1.0, "steps": steps}
    near(painted(pipeline, start, sigmas, cfg_scale=6.0, image_cfg_scale=1.7, **settings), expected)
    near(  # without guidance by the prompt, that by the picture still counts
        painted(pipeline, start, sigmas, cfg_scale=1.0 + 1e-12, image_cfg_scale=1.7, **settings),
        torch.from_numpy(painted(pipeline, start, sigmas, cfg_scale=1.0, image_cfg_scale=1.7, **settings).latent),
    )
    with pytest.raises(SettingError, match=r"image: .*changes a picture, and there is none"):
        pipeline("words", height=HEIGHT, width=WIDTH)


def test_stable_diffusion_2_predicts_velocity(tmp_path):
    name = "model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias"
    wide = (np.random.default_rng(5).standard_normal(16) * 0.3).astype(np.float16)
    pipeline, modules = opened("Stable Diffusion 2", tmp_path, **{name: wide})
    assert pipeline.model.recognized.prediction == "v"
    oracle = quiet(diffusers.StableDiffusionPipeline(
        **{**of_clip(modules), "tokenizer": tokenizer("!")}, text_encoder=modules["clip_h"], **UNSAFE
    ))  # fmt: skip
    oracle.scheduler.register_to_config(prediction_type="v_prediction")
    start = noise(4)
    expected = oracle(**asked(start, negative_prompt=AGAINST, guidance_scale=6.0, sigmas=list(SIGMAS))).images[0]
    near(painted(pipeline, start, SIGMAS, negative_prompt=AGAINST, cfg_scale=6.0), expected)


def test_stable_diffusion_xl_inpainting(tmp_path, likeliest):
    """A1111 begins with the picture and noise, diffusers with noise alone."""
    pipeline, modules = opened("Stable Diffusion XL inpainting", tmp_path)
    oracle = quiet(diffusers.StableDiffusionXLInpaintPipeline(**of_sdxl(modules)))
    start = noise(4)
    given = asked(start + as_latent(pipeline, PICTURE) / SIGMAS[0], negative_prompt=AGAINST, guidance_scale=6.0)
    expected = oracle(image=PICTURE, mask_image=WHITE, strength=1.0, sigmas=list(SIGMAS), **given).images[0]
    mine = painted(
        pipeline, start, SIGMAS, negative_prompt=AGAINST, cfg_scale=6.0, image=PICTURE, mask=WHITE, mask_blur=0,
        denoising_strength=1.0, steps=len(SIGMAS) - 1,
    )  # fmt: skip
    near(mine, expected)


def goes_on_with(pipeline, second):
    """Whatever model a pipeline is to load as a refiner, it is this one."""
    pipeline.others._checkpoint = lambda name: Path(__file__)
    pipeline.model.sibling = lambda *path, **modules: second.model


def test_the_refiner_goes_on(tmp_path):
    pipeline, modules = opened("Stable Diffusion XL", tmp_path)
    second, refining = opened("Stable Diffusion XL refiner", tmp_path)
    first = quiet(diffusers.StableDiffusionXLPipeline(**of_sdxl(modules)))
    oracle = quiet(diffusers.StableDiffusionXLImg2ImgPipeline(**of_sdxl(refining), requires_aesthetics_score=True))
    start = noise(4)
    shared = {"negative_prompt": AGAINST, "guidance_scale": 6.0, "sigmas": list(SIGMAS)}
    halfway = first(**asked(start, denoising_end=0.5, **shared)).images
    given = asked(None, image=halfway, denoising_start=0.5, **{**shared, "num_inference_steps": len(SIGMAS) - 1})
    del given["height"], given["width"], given["latents"]
    expected = oracle(**given).images[0]
    goes_on_with(pipeline, second)
    settings = {"negative_prompt": AGAINST, "cfg_scale": 6.0, "refiner": "refiner"}
    near(painted(pipeline, start, SIGMAS, refiner_switch_at=0.5, **settings), expected)
    alone = first(**asked(start, **shared)).images[0]
    near(painted(pipeline, start, SIGMAS, refiner_switch_at=1.0, **settings), alone)
    third, _ = opened("Stable Diffusion 1", tmp_path)
    goes_on_with(third, second)
    with pytest.raises(SettingError, match="does not go on from latents of"):
        third("words", refiner="refiner", height=HEIGHT, width=WIDTH)


def test_playground(tmp_path):
    """Its latents have a mean and a deviation for each channel, and it was trained as EDM."""
    pipeline, modules = opened("Stable Diffusion XL", tmp_path, edm_mean=np.zeros(4), edm_std=np.ones(4))
    modules["vae"].register_to_config(
        latents_mean=[-1.6574, 1.886, -1.383, 2.5155], latents_std=[8.4927, 5.9022, 6.5498, 5.2299], scaling_factor=0.5
    )
    scheduler = diffusers.EDMEulerScheduler()
    oracle = quiet(diffusers.StableDiffusionXLPipeline(**of_sdxl(modules, scheduler)))
    scheduler.set_timesteps(5)
    sigmas, start = tuple(map(float, scheduler.sigmas)), noise(4)
    given = asked(start, negative_prompt=AGAINST, guidance_scale=3.0, num_inference_steps=5)
    expected = oracle(**given).images[0]
    begun = start * float(scheduler.init_noise_sigma) / sigmas[0]
    made = painted(pipeline, begun, sigmas, negative_prompt=AGAINST, cfg_scale=3.0)
    near(made, expected)
    decoded = oracle(**{**given, "output_type": "np"}).images[0]
    assert (np.abs(np.asarray(made.image) / 255 - decoded) < 1.01 / 255).mean() > 0.999
    format = pipeline.model.architecture.latent
    latent = pipeline.model.encode_image(as_array(PICTURE))
    assert np.abs(format.from_encoded(format.to_encoded(latent)) - latent).max() < 1e-5


def test_flux_fill(tmp_path, likeliest):
    from graphc_images.seen import seen
    from graphc_images.settings import Settings

    pipeline, modules = opened("Flux Fill", tmp_path)
    oracle = quiet(diffusers.FluxFillPipeline(**of_flux(modules)))
    start = noise(16)
    expected = of_words(oracle, start, image=PICTURE, mask_image=WHITE, guidance_scale=30.0)
    mine = painted(
        pipeline, start, FLOW, guidance=30.0, image=PICTURE, mask=WHITE, mask_blur=0, denoising_strength=1.0,
        steps=len(FLOW) - 1,
    )  # fmt: skip
    near(mine, expected)
    part = Image.fromarray((np.random.default_rng(2).random((HEIGHT, WIDTH)) > 0.5).astype(np.uint8) * 255)
    pixels, mask = torch.from_numpy(as_array(PICTURE)), torch.from_numpy(np.float32(part) / 255)[None, None]
    given = (1, 16, 1, HEIGHT, WIDTH, torch.float32, "cpu", None)
    squares, kept = oracle.prepare_mask_latents(mask, pixels * (1 - mask), *given)
    found = seen(pipeline.model, Settings(), tuple(start.shape), as_array(PICTURE), part).channels
    expected = torch.cat([kept, squares], 2)
    found = oracle._pack_latents(torch.from_numpy(found), *found.shape)
    assert np.abs(found - expected).max() < 1e-4 * expected.abs().max()


def test_flux_control(tmp_path, likeliest):
    pipeline, modules = opened("Flux Canny or Depth", tmp_path)
    oracle = quiet(diffusers.FluxControlPipeline(**of_flux(modules)))
    start = noise(16)
    expected = of_words(oracle, start, control_image=PICTURE, guidance_scale=10.0)
    near(painted(pipeline, start, FLOW, guidance=10.0, control_image=PICTURE), expected)
    with pytest.raises(SettingError, match=r"control_image: .*give one"):
        pipeline("words", height=HEIGHT, width=WIDTH)


def test_flux_kontext(tmp_path, likeliest):
    pipeline, modules = opened("Flux dev", tmp_path)
    oracle = quiet(diffusers.FluxKontextPipeline(**of_flux(modules)))
    start, reference = noise(16), PICTURE.crop((0, 0, 32, 48))
    settings = {"image": reference, "max_area": HEIGHT * WIDTH, "_auto_resize": False}
    expected = of_words(oracle, start, guidance_scale=2.5, **settings)
    near(painted(pipeline, start, FLOW, guidance=2.5, reference_images=(reference,)), expected)
    other, _ = opened("Stable Diffusion 1", tmp_path)
    with pytest.raises(SettingError, match="reference_images: Stable Diffusion 1 does not look at any"):
        other("words", height=HEIGHT, width=WIDTH, reference_images=(reference,))


def test_chroma(tmp_path, monkeypatch):
    """One pad behind the text is seen by the transformer, and none by T5.

    diffusers' pipeline makes numbers of the mask, which attention then adds; in the network's own code it is yes or no, as here.
    """
    pipeline, modules = opened("Chroma", tmp_path)
    oracle = quiet(diffusers.ChromaPipeline(
        scheduler=flow(), vae=modules["vae"], text_encoder=modules["t5xxl"], tokenizer=t5_tokenizer(),
        transformer=modules["denoiser"],
    ))  # fmt: skip
    own, start = oracle._prepare_attention_mask, noise(16)
    monkeypatch.setattr(oracle, "_prepare_attention_mask", lambda *args, **named: own(*args, **named) > 0)
    expected = of_words(oracle, start, negative_prompt=AGAINST, guidance_scale=4.0, max_sequence_length=40)
    settings = {"negative_prompt": AGAINST, "cfg_scale": 4.0}
    near(painted(pipeline, start, FLOW, t5_mask_pad=1, **settings), expected)
    bare = painted(pipeline, start, FLOW, **settings)
    assert np.abs(bare.latent - expected.numpy()).max() > 1e-3


def test_perturbed_attention(tmp_path):
    pipeline, modules = opened("Stable Diffusion XL", tmp_path)
    oracle = quiet(diffusers.StableDiffusionXLPAGPipeline(**of_sdxl(modules), pag_applied_layers="mid"))
    start = noise(4)
    given = asked(start, negative_prompt=AGAINST, guidance_scale=6.0, sigmas=list(SIGMAS))
    expected = oracle(pag_scale=3.0, **given).images[0]
    settings = {"negative_prompt": AGAINST, "cfg_scale": 6.0}
    made = painted(pipeline, start, SIGMAS, pag_scale=3.0, **settings)
    near(made, expected)
    plain = painted(pipeline, start, SIGMAS, **settings)
    assert np.abs(made.latent - plain.latent).max() > 1e-2


def test_skip_layer_guidance(tmp_path):
    pipeline, modules = opened("Stable Diffusion 3.5 medium", tmp_path)
    oracle = quiet(diffusers.StableDiffusion3Pipeline(
        transformer=modules["denoiser"], scheduler=flow(), vae=modules["vae"], text_encoder=modules["clip_l"],
        text_encoder_2=modules["clip_g"], text_encoder_3=modules["t5xxl"], tokenizer=tokenizer("<|endoftext|>"),
        tokenizer_2=tokenizer("!"), tokenizer_3=t5_tokenizer(),
    ))  # fmt: skip
    start, layers = noise(16), (0, 1)
    skipped = {
        "skip_guidance_layers": list(layers), "skip_layer_guidance_scale": 2.8, "skip_layer_guidance_start": 0.01,
        "skip_layer_guidance_stop": 0.6,
    }  # fmt: skip
    given = {"guidance_scale": 4.0, "sigmas": list(FLOW[:-1]), "max_sequence_length": 256, "negative_prompt": AGAINST}
    expected = oracle(**asked(start, **given, **skipped)).images[0]
    settings = {"negative_prompt": AGAINST, "cfg_scale": 4.0, "slg_scale": 2.8}
    near(painted(pipeline, start, FLOW, slg_layers=layers, slg_end=2 / 3, **settings), expected)
    with pytest.raises(SettingError, match="layer 9 cannot be skipped: the model has 0 to 2"):
        painted(pipeline, start, FLOW, slg_layers=(9,), slg_end=1.0, **settings)


def test_what_a_model_cannot_leave_out(tmp_path):
    pipeline, _ = opened("Stable Diffusion 1", tmp_path)
    with pytest.raises(SettingError, match="this model can skip no layers"):
        painted(pipeline, noise(4), SIGMAS, slg_scale=3.0, slg_end=1.0)
    pipeline, _ = opened("Flux dev", tmp_path)
    with pytest.raises(SettingError, match="perturbed attention: only U-Nets"):
        painted(pipeline, noise(16), FLOW, pag_scale=3.0)
    assert math.isfinite(float(painted(pipeline, noise(16), FLOW, slg_scale=3.0, slg_layers=(0, 4)).latent.max()))
