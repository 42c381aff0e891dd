"""Rows of tokens for text encoders, weights on what they give, and the inputs of denoisers."""

import numpy as np
import pytest

from graphc_images.errors import SettingError
from graphc_images.prompts import conditioning, lengths
from graphc_images.prompts.chunks import chunk_prompt
from graphc_images.prompts.embeddings import Embedding, missing_embeddings
from graphc_images.prompts.emphasis import weigh_a1111, weigh_comfyui
from graphc_images.prompts.encoders import CLIP_G, CLIP_L, T5

START, END, COMMA = 49406, 49407, 267
A = 320


def test_a_short_prompt():
    for rules, pad in ((CLIP_L, END), (CLIP_G, 0)):
        for mode in ("a1111", "comfyui"):
            (chunk,) = chunk_prompt("a (a:2)", rules, mode)
            assert chunk.ids == (START, A, A, END, *[pad] * 73)
            assert chunk.weights == (1, 1, 2, *[1] * 74)


def test_an_empty_prompt():
    for mode in ("a1111", "comfyui"):
        (chunk,) = chunk_prompt("", CLIP_G, mode)
        assert chunk.ids == (START, END, *[0] * 75)
        (chunk,) = chunk_prompt("", T5, mode)
        assert chunk.ids == (1, *[0] * 255)


def test_chunks_end_at_commas():
    words = "a " * 60 + ", " + "a " * 20
    first, second = chunk_prompt(words, CLIP_L)
    assert first.ids == (START, *[A] * 60, COMMA, *[END] * 15)
    assert second.ids == (START, *[A] * 20, *[END] * 56)
    first, second = chunk_prompt(words, CLIP_L, comma_backtrack=10)
    assert first.ids == (START, *[A] * 60, COMMA, *[A] * 14, END)
    assert second.ids[:7] == (START, *[A] * 6)
    assert chunk_prompt(words, CLIP_L, comma_backtrack=0) == [first, second]
    early = chunk_prompt("a, " + "a " * 100, CLIP_L)
    assert early[0].ids == (START, A, COMMA, *[A] * 73, END)
    # A comma that would itself be the first of the next chunk stays there.
    late = chunk_prompt("a " * 75 + ", a", CLIP_L)
    assert late[1].ids[:4] == (START, COMMA, A, END)


def test_exactly_full_chunks():
    for mode in ("a1111", "comfyui"):
        assert [len(chunk_prompt("a " * count, CLIP_L, mode)) for count in (74, 75, 76, 150, 151)] == [1, 1, 2, 2, 3]
        assert all(len(chunk.ids) == len(chunk.weights) == 77 for chunk in chunk_prompt("a " * 400, CLIP_L, mode))


def test_break():
    first, second = chunk_prompt("a BREAK a a", CLIP_L)
    assert first.ids[:3] == (START, A, END)
    assert second.ids[:4] == (START, A, A, END)
    assert len(chunk_prompt("a BREAK", CLIP_L)) == 1
    assert len(chunk_prompt("BREAK BREAK a", CLIP_L)) == 3
    assert len(chunk_prompt("a BREAK a", CLIP_L, "comfyui")) == 1
    assert len(chunk_prompt("(a BREAK a)", CLIP_L)) == 1  # as in A1111


def test_t5_has_one_row_of_any_length():
    (chunk,) = chunk_prompt("a (cat:1.5) " * 200, T5)
    assert len(chunk.ids) == len(chunk.weights) > 600
    assert chunk.ids[-1] == 1
    assert 1.5 in chunk.weights
    first, second = chunk_prompt("a " * 300 + "BREAK a", T5)
    assert len(first.ids) == len(second.ids) == 601
    assert second.ids[:3] == (3, 9, 1)
    assert set(second.ids[3:]) == {0}


def test_brackets_may_be_literal():
    (chunk,) = chunk_prompt("(a:2)", CLIP_L, emphasis="None")
    assert list(chunk.ids[1:6]) == CLIP_L.tokens("(a:2)")
    assert set(chunk.weights) == {1}


def test_what_stands_behind_an_end_is_padding():
    (chunk,) = chunk_prompt("a<|endoftext|>a", CLIP_G)
    assert chunk.ids == (START, A, END, *[0] * 74)


def test_comfyui_breaks_before_short_pieces():
    first, second = chunk_prompt("a " * 73 + "(a a a:2)", CLIP_L, "comfyui")
    assert first.ids == (START, *[A] * 73, END, END, END)
    assert second.weights[1:4] == (2, 2, 2)
    first, second = chunk_prompt("a " * 73 + "(a a a a a a a a:2)", CLIP_L, "comfyui")
    assert first.ids == (START, *[A] * 75, END)
    assert second.weights[1:7] == (2,) * 6


def embedding(name, rows):
    return Embedding(name, {"clip_l": np.arange(rows * 768, dtype=np.float32).reshape(rows, 768)})


def test_embeddings():
    known = [embedding("bad", 1), embedding("bad hands", 3)]
    (chunk,) = chunk_prompt("a (bad hands:1.2), bad", CLIP_L, embeddings=known)
    assert [(found.place, found.name, len(found.vectors)) for found in chunk.inserted] == [
        (2, "bad hands", 3),
        (6, "bad", 1),
    ]
    assert chunk.ids[:8] == (START, A, 0, 0, 0, COMMA, 0, END)
    assert chunk.weights[:6] == (1, 1, 1.2, 1.2, 1.2, 1)
    assert chunk_prompt("bad", CLIP_G, embeddings=known)[0].inserted == ()
    first, second = chunk_prompt("a " * 74 + "bad hands", CLIP_L, embeddings=known)
    assert (first.inserted, second.inserted[0].place) == ((), 1)


def test_embeddings_of_comfyui():
    known = [embedding("x", 2), embedding("long", 80)]
    (chunk,) = chunk_prompt("a (embedding:x, a:1.5) embedding:none x", CLIP_L, "comfyui", embeddings=known)
    assert [(found.place, found.name) for found in chunk.inserted] == [(2, "x")]
    assert chunk.ids[:6] == (START, A, 0, 0, COMMA, A)
    assert chunk.weights[2:6] == (1.5,) * 4
    assert chunk.ids[6:8] == (chunk_prompt("x", CLIP_L)[0].ids[1], END)  # a name that nothing has is left out
    assert missing_embeddings("a (embedding:x:1.2) embedding:none, embedding:x,", known) == ["none"]
    first, second = chunk_prompt("embedding:long", CLIP_L, "comfyui", embeddings=known)
    assert [len(chunk.inserted[0].vectors) for chunk in (first, second)] == [75, 5]


def test_files_of_embeddings():
    row = np.zeros((2, 768), np.float32)
    assert list(Embedding.from_tensors("x", {"emb_params": row}).vectors) == ["clip_l"]
    both = Embedding.from_tensors("x", {"clip_l": row, "clip_g": np.zeros((2, 1280), np.float32)})
    assert list(both.vectors) == ["clip_l", "clip_g"]
    assert Embedding.from_tensors("x", {"*": row[0]}).vectors["clip_l"].shape == (1, 768)
    for wrong in ({"a": row[:, :5]}, {"a": row, "b": row}, {"clip_g": row}, {}, {"a": np.float32(1)}):
        with pytest.raises(SettingError, match="embedding x"):
            Embedding.from_tensors("x", wrong)


def test_emphasis():
    rng = np.random.default_rng(0)
    hidden = rng.normal(1, 1, (2, 77, 8)).astype(np.float32)
    empty = rng.normal(size=(1, 77, 8)).astype(np.float32)
    weights = np.ones((2, 77))
    weights[0, 3] = 1.5
    original = weigh_a1111(hidden, weights)
    assert original.dtype == np.float32
    np.testing.assert_allclose(original.mean(), hidden.mean(), rtol=1e-5)
    np.testing.assert_allclose(original[0, 3] / original[0, 4], 1.5 * hidden[0, 3] / hidden[0, 4], rtol=1e-4)
    no_norm = weigh_a1111(hidden, weights, "No norm")
    np.testing.assert_array_equal(no_norm[0, 3], hidden[0, 3] * np.float32(1.5))
    np.testing.assert_array_equal(no_norm[1], hidden[1])
    assert weigh_a1111(hidden, weights, "Ignore") is hidden
    comfyui = weigh_comfyui(hidden, weights, empty)
    np.testing.assert_array_equal(comfyui[1], hidden[1])
    np.testing.assert_allclose(comfyui[0, 3], (hidden[0, 3] - empty[0, 3]) * 1.5 + empty[0, 3], rtol=1e-5)


def test_lengths():
    short, long = np.arange(6.0).reshape(1, 3, 2), np.zeros((1, 7, 2))
    assert lengths.pad_with_last(short, 5)[0, :, 0].tolist() == [0, 2, 4, 4, 4]
    assert lengths.pad_with_last(long, 3).shape == (1, 3, 2)
    empty = np.full((1, 2, 2), 9.0)
    assert lengths.pad_with_empty(short, empty, 8)[0, :, 0].tolist() == [0, 2, 4, 9, 9, 9, 9]
    np.testing.assert_array_equal(lengths.pad_with_empty(long, empty, 3), long)
    assert [array.shape[1] for array in lengths.repeat_to_common([short, np.zeros((1, 6, 2))])] == [6, 6]
    assert lengths.repeat_to_common([short, long]) is None


def test_sinusoids_are_those_of_diffusers():
    """get_timestep_embedding(…, 256, flip_sin_to_cos=True, downscale_freq_shift=0), at some places of each."""
    known = {
        1024.0: [0.98735, -0.13344, -0.68571, 0.99395, -0.15853, -0.98851, -0.50105, 0.10982],
        768.0: [0.11912, -0.28815, 0.17311, 0.9966, 0.99288, -0.27527, -0.92353, 0.08244],
        0.0: [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        6.0: [0.96017, -0.50156, 0.9982, 1.0, -0.27942, 0.57403, 0.03373, 0.00064],
        2.5: [-0.80114, -0.17291, 0.99969, 1.0, 0.59847, 0.86953, 0.01406, 0.00027],
    }
    found = conditioning.sinusoids(known).reshape(5, 256)[:, [0, 5, 64, 127, 128, 140, 200, 255]]
    np.testing.assert_allclose(found, list(known.values()), atol=1e-4)


def test_inputs_of_sdxl_and_its_refiner():
    pooled = np.ones((2, 1280), np.float32)
    vector = conditioning.sdxl_vector(pooled, size=(512, 768), crop=(1, 2))
    assert vector.shape == (2, 2816)
    np.testing.assert_array_equal(vector[1, 1280:], conditioning.sinusoids([512, 768, 1, 2, 512, 768]))
    refiner = conditioning.refiner_vector(pooled, size=(512, 768), aesthetic_score=2.5)
    assert refiner.shape == (2, 2560)
    np.testing.assert_array_equal(refiner[0, -256:], conditioning.sinusoids([2.5]))
    assert conditioning.sdxl_context(np.zeros((1, 77, 768)), np.zeros((1, 77, 1280))).shape == (1, 77, 2048)


def test_inputs_of_sd3():
    clip_l, clip_g = np.full((1, 77, 768), 1.0, np.float32), np.full((1, 77, 1280), 2.0, np.float32)
    context = conditioning.sd3_context(clip_l, clip_g, np.full((1, 256, 4096), 3.0, np.float32))
    assert context.shape == (1, 333, 4096)
    assert context[0, 0, [0, 768, 2048]].tolist() == [1, 2, 0]
    assert context[0, 77, 0] == 3
    shapes = {
        who: conditioning.sd3_context(clip_l, clip_g, None, rows_without_t5=rows).shape[1]
        for who, rows in conditioning.SD3_ROWS_WITHOUT_T5.items()
    }
    assert shapes == {"a1111": 154, "forge": 333, "diffusers": 333, "comfyui": 77}
    assert conditioning.sd3_vector(np.zeros((1, 768)), np.zeros((1, 1280))).shape == (1, 2048)


def test_empty_negatives():
    assert conditioning.is_zeroed("sdxl", "a1111", ["", ""])
    assert not conditioning.is_zeroed("sdxl", "a1111", ["", "x"])
    assert not conditioning.is_zeroed("sdxl", "comfyui", [""])
    assert not conditioning.is_zeroed("sd1", "a1111", [""])


def test_masks_of_t5():
    ids = np.array([[5, 1, 0, 0], [1, 0, 0, 0], [5, 6, 7, 1], [0, 0, 0, 0]])
    assert conditioning.text_mask(ids).sum(1).tolist() == [2, 1, 4, 0]
    assert conditioning.text_mask(ids, visible_pads=1).sum(1).tolist() == [3, 2, 4, 1]
