"""Models that read their prompts by a language model, beside diffusers' own pipelines, from words to the last latent."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from test_pipelines import AGAINST, FLOW, PROMPT, asked, flow, near, noise, opened, painted, quiet  # noqa: E402

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


def test_words_of_a_batch_are_filled_up_alone(tmp_path):
    """Prompts that change over the steps are encoded together, and are no longer for that."""
    pipeline, _ = opened("Z-Image", tmp_path)
    start = noise(16)
    alone = painted(pipeline, start, FLOW)
    settings = {"noise": start.numpy(), "sigmas": FLOW, "height": start.shape[2] * 8, "width": start.shape[3] * 8}
    (made,) = pipeline(f"[{'many words ' * 30}::0.0]{PROMPT}", sampler="Euler", seed=1, **settings)
    assert np.abs(made.latent - alone.latent).max() < 1e-3
