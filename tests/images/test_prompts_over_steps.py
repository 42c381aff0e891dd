"""Which words the model is told at each evaluation, from the prompt to the denoiser: A1111's rules, on the small model."""

import numpy as np
import pytest

import graphc_images
from graphc_images.conditions import Reading, Told

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NEGATIVE = "ugly"
TEXTS = ("red circle", "blue circle", "green circle", "red circle AND blue square", "blue square", "big red circle", "")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    from small_checkpoint import small_modules, write_small

    return graphc_images.load(write_small(tmp_path_factory.mktemp("models") / "small.safetensors", small_modules()))


def alike(a, b):
    return a.shape == b.shape and np.abs(a - b).max() < 1e-4


def read(pipeline, text, mode="a1111"):
    """What the model is told for a text."""
    ((conditioning,),) = pipeline.conditioner([Told((text,))], Reading(mode))
    return conditioning


def told(pipeline, monkeypatch, prompt, **settings):
    """For each evaluation the texts that the model is told, in order; text that is none of `TEXTS` is None."""
    known = {text: read(pipeline, text).words for text in (*TEXTS, NEGATIVE)}
    seen, denoise = [], pipeline.model.denoise

    def spy(x, time, conditioning, **more):
        rows = conditioning.words
        seen.append([next((text for text, words in known.items() if alike(words[0], row)), None) for row in rows])
        return denoise(x, time, conditioning, **more)

    monkeypatch.setattr(pipeline.model, "denoise", spy)
    settings = {"sampler": "Euler", "steps": 4, "seed": 1, "width": 64, "height": 64, "cfg_scale": 3.0, **settings}
    pipeline(prompt, negative_prompt=NEGATIVE, **settings)
    return seen


def first(evaluations):
    return [names[0].split()[0] for names in evaluations]


AGAIN = {"hires_scale": 1.5, "hires_denoising_strength": 0.9}
"""A second pass. In A1111 a step that is a number counts on from the first pass, and a share of 1.5 is half of the second."""


@pytest.mark.parametrize(
    ("prompt", "settings", "words"),
    [
        ("[red|blue|green] circle", {}, "red red blue green"),
        ("[[red:blue:1]:green:3] circle", {"steps": 5}, "red red blue blue green"),
        ("[red:blue:0.5] circle", {"sampler": "Heun", "steps": 3}, "red red red red blue"),
        ("[red:blue:2] circle", {**AGAIN, "steps": 3, "hires_steps": 1}, "red red red | blue"),
        ("[red:blue:1.5] circle", {**AGAIN, "steps": 1, "hires_steps": 4}, "red | red red red blue"),
    ],
)
def test_words_change_with_the_steps(pipeline, monkeypatch, prompt, settings, words):
    """A stage counts up to and with the evaluation of its number, from 0, as A1111's reconstruct_cond_batch has it."""
    seen = told(pipeline, monkeypatch, prompt, **settings)
    before, _, after = words.partition(" | ")
    steps = len(before.split())
    assert first(seen)[:steps] == before.split()
    again = first(seen)[steps:]
    assert again[: len(after.split())] == after.split()
    assert bool(again) == bool(after)
    assert {names[-1] for names in seen} == {NEGATIVE}


def test_both_sides_of_and_are_told_with_their_weights(pipeline, monkeypatch):
    seen = told(pipeline, monkeypatch, "red circle AND blue square :0.5", steps=2)
    assert seen == [["red circle", "blue square", NEGATIVE]] * 2


def test_and_is_the_sum_of_its_sides(pipeline):
    """One step from known estimates: away from the negative prompt by each side's weight times the scale."""
    noise = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)
    settings = {"sampler": "Euler", "sigmas": (3.0, 0.0), "width": 64, "height": 64, "noise": noise}
    red, blue, against = (
        pipeline(text, cfg_scale=1.0, **settings)[0].latent for text in ("red circle", "blue square", NEGATIVE)
    )
    prompt = "red circle AND blue square :-0.5"
    (made,) = pipeline(prompt, negative_prompt=NEGATIVE, cfg_scale=3.0, **settings)
    expected = against + 3.0 * ((red - against) - 0.5 * (blue - against))
    assert np.abs(made.latent - expected).max() < 1e-3 * max(1, np.abs(expected).max())


def test_break_begins_a_chunk(pipeline, monkeypatch):
    parts = [read(pipeline, text).words for text in ("red circle", "blue square")]
    broken = read(pipeline, "red circle BREAK blue square").words
    assert np.abs(broken - np.concatenate(parts, 1)).max() < 1e-4
    assert read(pipeline, "red circle BREAK blue square", "comfyui").words.shape[1] == parts[0].shape[1]


def test_loras_by_part(pipeline, tmp_path):
    """`<lora:name:te:unet>`: of a LoRA for the text encoder, the second weight does nothing; and so on."""
    from safetensors.numpy import save_file

    random = np.random.default_rng(2)
    down, up = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 48), (48, 4)))
    name = "lora_te_text_model_encoder_layers_0_self_attn_q_proj"
    save_file({f"{name}.lora_down.weight": down, f"{name}.lora_up.weight": up}, tmp_path / "words.safetensors")
    file, settings = tmp_path / "words.safetensors", {"steps": 1, "seed": 1, "width": 64, "height": 64}
    made = {}
    plain = pipeline("a shape", **settings)[0].latent
    for weights in ("0:1", "1:0", "te=1:unet=0", "1"):
        made[weights] = pipeline(f"a shape<lora:{file}:{weights}>", **settings)[0].latent
    assert made["0:1"].tobytes() == plain.tobytes()
    assert np.abs(made["1:0"] - plain).max() > 0
    assert made["1:0"].tobytes() == made["te=1:unet=0"].tobytes() == made["1"].tobytes()


def test_loras_that_fit_nothing_are_named(pipeline, tmp_path, caplog):
    from safetensors.numpy import save_file

    import graphc

    fits = "lora_te_text_model_encoder_layers_0_self_attn_q_proj"
    zeros = {f"{fits}.lora_down.weight": (4, 48), f"{fits}.lora_up.weight": (48, 4)}
    other = {name.replace("layers_0", "layers_77"): shape for name, shape in zeros.items()}
    for name, tensors in {"part": {**zeros, **other}, "none": other}.items():
        save_file(
            {key: np.zeros(shape, np.float32) for key, shape in tensors.items()}, tmp_path / f"{name}.safetensors"
        )
    settings = {"steps": 1, "seed": 1, "width": 64, "height": 64}
    pipeline(f"a<lora:{tmp_path / 'part.safetensors'}:1>", **settings)
    assert "part.safetensors: in this model nothing fits" in caplog.text
    assert "layers_77" in caplog.text
    (left_out,) = pipeline(f"a<lora:{tmp_path / 'none.safetensors'}:1>", **settings)
    assert "none.safetensors: it is left out" in caplog.text
    assert "Lora hashes" not in left_out.parameters
    with pytest.raises(graphc.NothingFitsError):
        pipeline("a", loras={str(tmp_path / "none.safetensors"): 1.0}, **settings)
