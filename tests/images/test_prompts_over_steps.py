"""Which words the model is told at each evaluation, from the prompt to the denoiser: A1111's rules, on the small model."""

import numpy as np
import pytest

import graphc_images
from graphc_images.conditions import Reading

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


def told(pipeline, monkeypatch, prompt, **settings):
    """For each evaluation the texts that the model is told, in order; text that is none of `TEXTS` is None."""
    known = {text: pipeline.conditioner([text], Reading())[0].words for text in (*TEXTS, NEGATIVE)}
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
