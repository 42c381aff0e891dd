"""Files that change, and embeddings without effect: a pipeline that is kept uses what is there now, and says what it cannot."""

import os

import numpy as np
import pytest

import graphc
import graphc_images
from graphc_images.from_files import FromFiles

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SMALL = {"steps": 1, "seed": 1, "width": 64, "height": 64, "cfg_scale": 1.0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    from small_checkpoint import write_folders

    return write_folders(tmp_path_factory.mktemp("models"), ("Lora", "embeddings"), "one")


@pytest.fixture(scope="module")
def pipeline(folders):
    return graphc_images.load("one", folders=folders)


def write(path, **tensors):
    """A file whose time is another than that of the one before, also where clocks are coarse."""
    from safetensors.numpy import save_file

    before = path.stat().st_mtime_ns if path.exists() else 0
    save_file({name: np.ascontiguousarray(each, np.float32) for name, each in tensors.items()}, path)
    if before:
        os.utime(path, ns=(before + 10**9, before + 10**9))
    return path


def lora(seed):
    numbers = np.random.default_rng(seed)
    name = "lora_te_text_model_encoder_layers_0_self_attn_q_proj"
    return {
        f"{name}.lora_down.weight": numbers.normal(size=(4, 48)),
        f"{name}.lora_up.weight": numbers.normal(size=(48, 4)),
    }


def test_what_was_made_of_files():
    closed = []
    known = FromFiles(closed.append)
    assert [known("a", lambda: 1), known("a", lambda: 2)] == [1, 1]
    known.drop("a")
    assert (closed, known.names(), known.values()) == ([1], [], [])
    few = FromFiles(closed.append, 2)
    assert [few(name, lambda name=name: name.upper()) for name in "abac"] == ["A", "B", "A", "C"]
    assert (closed, few.names()) == ([1, "B"], ["a", "c"])


def test_a_lora_that_changes(pipeline, folders):
    path = write(folders / "Lora" / "style.safetensors", **lora(0))
    pipeline.folders.refresh()
    (first,) = pipeline("a red circle<lora:style:1>", **SMALL)
    write(path, **lora(1))
    (second,) = pipeline("a red circle<lora:style:1>", **SMALL)
    assert np.abs(first.latent - second.latent).max() > 1e-3
    fresh = graphc_images.load("one", folders=folders)
    np.testing.assert_array_equal(fresh("a red circle<lora:style:1>", **SMALL)[0].latent, second.latent)
    hashes = [each.parameters.partition("Lora hashes: ")[2].partition(", ")[0] for each in (first, second)]
    assert hashes[0] != hashes[1]


def test_an_embedding_that_changes(pipeline, folders):
    numbers = np.random.default_rng(0)
    path = write(folders / "embeddings" / "zzword.safetensors", emb_params=numbers.normal(size=(1, 48)))
    pipeline.folders.refresh()
    (first,) = pipeline("a zzword", **SMALL)
    write(path, emb_params=numbers.normal(size=(1, 48)))
    (second,) = pipeline("a zzword", **SMALL)
    assert np.abs(first.latent - second.latent).max() > 1e-3


def test_a_damaged_embedding_is_an_error_though_no_prompt_names_it(pipeline, tmp_path):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    for file, error in ((bad, graphc.GraphcError), (tmp_path / "none.safetensors", graphc.GraphcError)):
        with pytest.raises(error, match=file.name):
            pipeline("a circle", embeddings={"word": str(file)}, **SMALL)
    wrong = write(tmp_path / "wrong.safetensors", emb_params=np.zeros((1, 5)))
    with pytest.raises(graphc_images.SettingError, match="fits no text encoder"):
        pipeline("a circle", embeddings={"word": str(wrong)}, **SMALL)


def test_a_damaged_embedding_in_the_folders_is_left_out(pipeline, folders, caplog):
    """Its name may be a part of any word."""
    (plain,) = pipeline("a circle", **SMALL)
    for damaged in ("rcl.pt", "cir.safetensors"):
        (folders / "embeddings" / damaged).write_bytes(b"no tensors")
    pipeline.folders.refresh()
    (made,) = pipeline("a circle", **SMALL)
    assert made.latent.tobytes() == plain.latent.tobytes()
    assert [each.partition(" is left out")[0] for each in caplog.messages] == [
        "the embedding 'cir'",
        "the embedding 'rcl'",
    ]
    for damaged in ("rcl.pt", "cir.safetensors"):
        (folders / "embeddings" / damaged).unlink()
    pipeline.folders.refresh()


def test_embeddings_without_effect_are_named(pipeline, tmp_path, caplog):
    fits = write(tmp_path / "fits.safetensors", emb_params=np.zeros((1, 48)))
    other = write(tmp_path / "other.safetensors", clip_g=np.zeros((1, 1280)))
    pipeline("a circle", embeddings={"unnamed": str(fits), "elsewhere": str(other)}, batches=2, **SMALL)
    assert caplog.messages == ["no prompt names the embedding 'unnamed'", "no prompt names the embedding 'elsewhere'"]
    caplog.clear()
    pipeline("elsewhere", embeddings={"elsewhere": str(other)}, **SMALL)
    assert caplog.messages == [
        "the embedding 'elsewhere' is for clip_g, which the model has not: its name is read as words"
    ]
