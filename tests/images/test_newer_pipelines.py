"""Models that read their prompts by a language model, beside diffusers' own pipelines, from words to the last latent."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from graphc_images.errors import SettingError

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from test_pipelines import AGAINST, FLOW, HEIGHT, PROMPT, WIDTH, asked, flow, near, noise, opened, painted, quiet  # noqa: E402

pytestmark = pytest.mark.torch

TALK = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""What Qwen3's own template makes of words alone."""


def qwen_tokenizer():
    from test_tokenizers import transformers_qwen

    found = transformers_qwen()
    found.chat_template = TALK
    found.model_max_length = 1024
    return found


def of_z_image(modules):
    return quiet(diffusers.ZImagePipeline(
        scheduler=flow(), vae=modules["vae"], text_encoder=modules["llm"], tokenizer=qwen_tokenizer(),
        transformer=modules["denoiser"],
    ))  # fmt: skip


def test_z_image(tmp_path):
    """Also words that are filled up to another multiple of 32 than those of the negative prompt."""
    pipeline, modules = opened("Z-Image", tmp_path)
    oracle, start = of_z_image(modules), noise(16)
    given = {**asked(start), "sigmas": list(FLOW[:-1])}
    expected = oracle(**given, guidance_scale=0.0).images[0]
    near(painted(pipeline, start, FLOW), expected)
    for prompt in (given["prompt"], "(many) words" + ", words" * 12):
        expected = oracle(**{**given, "prompt": prompt}, negative_prompt=AGAINST, guidance_scale=3.0).images[0]
        settings = {"noise": start.numpy(), "sigmas": FLOW, "height": given["height"], "width": given["width"]}
        (made,) = pipeline(prompt, negative_prompt=AGAINST, cfg_scale=4.0, sampler="Euler", seed=1, **settings)
        near(made, expected)


def of_klein(modules):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    given = modules["llm"].config.to_dict()
    text = Qwen3ForCausalLM(Qwen3Config(**{**given, "vocab_size": 16})).eval()
    text.model = modules["llm"]
    return quiet(diffusers.Flux2KleinPipeline(
        scheduler=flow(), vae=modules["vae"], text_encoder=text, tokenizer=qwen_tokenizer(),
        transformer=modules["denoiser"],
    ))  # fmt: skip


def packed(oracle, latent):
    """A latent of the autoencoder as the transformer takes it."""
    found, statistics = oracle._patchify_latents(latent), oracle.vae.bn
    variance = statistics.running_var + oracle.vae.config.batch_norm_eps
    return (found - statistics.running_mean[:, None, None]) / torch.sqrt(variance)[:, None, None]


def test_flux2_klein(tmp_path):
    pipeline, modules = opened("Flux.2 klein 4B", tmp_path)
    oracle = of_klein(modules)
    start = torch.randn((1, 128, HEIGHT // 16, WIDTH // 16), generator=torch.Generator().manual_seed(3))
    given = {**asked(start), "sigmas": list(FLOW[:-1]), "text_encoder_out_layers": (1, 2), "num_inference_steps": 5}
    expected = oracle(**given, guidance_scale=1.0).images
    near(painted(pipeline, start, FLOW), packed(oracle, expected)[0])
    expected = oracle(**given, guidance_scale=4.0).images
    made = painted(pipeline, start, FLOW, negative_prompt="", cfg_scale=4.0)
    near(made, packed(oracle, expected)[0])
    decoded = oracle.vae.decode(expected).sample[0].permute(1, 2, 0).numpy()
    level = np.clip(decoded / 2 + 0.5, 0, 1)
    assert (np.abs(np.asarray(made.image) / 255 - level) < 1.01 / 255).mean() > 0.999
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (80, 64, 3), np.uint8))
    references = [picture, picture.transpose(Image.Transpose.ROTATE_90)]
    expected = oracle(**given, guidance_scale=1.0, image=references).images
    made = painted(pipeline, start, FLOW, reference_images=tuple(references))
    near(made, packed(oracle, expected)[0])


def test_latents_of_flux2_are_previewed(tmp_path):
    pipeline, _ = opened("Flux.2 klein 4B", tmp_path)
    format = pipeline.model.architecture.latent
    latent = np.random.default_rng(1).standard_normal((1, 128, 3, 2)).astype(np.float32)
    own = diffusers.Flux2KleinPipeline._unpatchify_latents(torch.from_numpy(latent)).numpy()
    expected = np.einsum("bchw,cr->brhw", own, np.array(format.colours)) + np.array(format.bias)[:, None, None]
    assert np.abs(format.preview(latent) - expected).max() < 1e-5
    with pytest.raises(SettingError, match="width: 24 is not a multiple of 16"):
        pipeline("words", width=24, height=32)


def test_words_of_a_batch_are_filled_up_alone(tmp_path):
    """Prompts that change over the steps are encoded together, and are no longer for that."""
    pipeline, _ = opened("Z-Image", tmp_path)
    start = noise(16)
    alone = painted(pipeline, start, FLOW)
    settings = {"noise": start.numpy(), "sigmas": FLOW, "height": start.shape[2] * 8, "width": start.shape[3] * 8}
    (made,) = pipeline(f"[{'many words ' * 30}::0.0]{PROMPT}", sampler="Euler", seed=1, **settings)
    assert np.abs(made.latent - alone.latent).max() < 1e-3


def of_qwen_image(modules):
    return quiet(diffusers.QwenImagePipeline(
        scheduler=flow(), vae=modules["vae"], text_encoder=modules["llm"], tokenizer=qwen_tokenizer(),
        transformer=modules["denoiser"],
    ))  # fmt: skip


def test_qwen_image(tmp_path):
    """Also with a negative prompt of another length, by plain guidance and by diffusers' own, and the picture."""
    pipeline, modules = opened("Qwen-Image", tmp_path)
    oracle, start = of_qwen_image(modules), noise(16)
    squares = oracle._pack_latents(start, 1, 16, HEIGHT // 8, WIDTH // 8)
    given = {**asked(squares), "sigmas": list(FLOW[:-1])}

    def latent(**settings):
        found = oracle(**given, **settings).images
        return oracle._unpack_latents(found, HEIGHT, WIDTH, 8)[0, :, 0]

    near(painted(pipeline, start, FLOW, cfg_scale=1.0), latent(true_cfg_scale=1.0))
    told = {"negative_prompt": f"(many) words, {AGAINST}"}
    expected = latent(**told, true_cfg_scale=4.0)
    made = painted(pipeline, start, FLOW, **told, cfg_scale=4.0, cfg_lengths=True)
    near(made, expected)
    means, deviations = (
        torch.tensor(oracle.vae.config[each])[:, None, None] for each in ("latents_mean", "latents_std")
    )
    decoded = oracle.vae.decode((expected * deviations + means)[None, :, None]).sample[0, :, 0].permute(1, 2, 0).numpy()
    level = np.clip(decoded / 2 + 0.5, 0, 1)
    assert (np.abs(np.asarray(made.image) / 255 - level) < 1.01 / 255).mean() > 0.999
    plain = painted(pipeline, start, FLOW, **told, cfg_scale=4.0)
    assert np.abs(plain.latent - expected.numpy()).max() > 1e-2


def test_the_schedule_of_qwen_image():
    """That of the published scheduler_config.json."""
    from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift

    from graphc_images.sampling import schedulers
    from graphc_images.sampling.levels import flow_levels

    oracle = diffusers.FlowMatchEulerDiscreteScheduler(
        base_image_seq_len=256, base_shift=0.5, max_image_seq_len=8192, max_shift=0.9, shift_terminal=0.02,
        use_dynamic_shifting=True, time_shift_type="exponential",
    )  # fmt: skip
    levels = flow_levels("qwen_image")
    for steps, tokens in ((4, 256), (20, 6889), (50, 1024)):
        mu = calculate_shift(tokens, 256, 8192, 0.5, 0.9)
        oracle.set_timesteps(sigmas=np.linspace(1, 1 / steps, steps), mu=mu)
        want = schedulers.Wanted(steps, levels, levels.lowest, levels.highest, family="qwen_image", tokens=tokens)
        assert schedulers.qwen_image(want) == pytest.approx(oracle.sigmas.tolist(), abs=1e-6)
