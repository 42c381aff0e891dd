"""Ways of A1111's first versions, and what its compatibility options mean: on the small model, and beside PyTorch."""

import numpy as np
import pytest
from PIL import Image

import graphc_images
from graphc_images.errors import SettingError
from graphc_images.noise import TorchCpu
from graphc_images.pictures.arrays import to_picture
from graphc_images.prompts.chunks import chunk_prompt
from graphc_images.prompts.encoders import CLIP_G, CLIP_L
from graphc_images.prompts.schedule import stages_of
from graphc_images.sampling.levels import scaled_linear
from graphc_images.second_pass import covering

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SMALL = {"steps": 2, "seed": 1, "width": 64, "height": 64, "cfg_scale": 3.0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two models, and the second one's autoencoder by itself."""
    from safetensors.torch import load_file, save_file
    from small_checkpoint import write_folders

    root = write_folders(tmp_path_factory.mktemp("models"), ("VAE", "Lora"), "one", "two")
    tensors = load_file(root / "Stable-diffusion" / "two.safetensors")
    own = {name: each for name, each in tensors.items() if name.startswith("first_stage_model.")}
    save_file(
        {name.removeprefix("first_stage_model."): each for name, each in own.items()},
        root / "VAE" / "other.safetensors",
    )
    down, up = torch.randn(4, 48), torch.randn(48, 4)
    lora = "lora_te_text_model_encoder_layers_0_self_attn_q_proj"
    save_file({f"{lora}.lora_down.weight": down, f"{lora}.lora_up.weight": up}, root / "Lora" / "words.safetensors")
    return root


@pytest.fixture(scope="module")
def pipeline(folders):
    return graphc_images.load("one", folders=folders)


def latent(pipeline, prompt="a red circle", **settings):
    (made,) = pipeline(prompt, **{**SMALL, **settings})
    return made.latent


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("a (red) cat", [1.0, 1.1, 1.0]),
        ("((red [cat]))", [1.21, 1.21 / 1.1]),
        ("a (red:1.5) cat", [1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.0]),  # a : 1 . 5 cat, and the brackets left out
        ("red) cat", [1.0, 1 / 1.1]),
        ("() red", [1.0, 1.0]),  # one token, whose brackets mean nothing together: it stays
    ],
)
def test_old_emphasis(text, weights):
    (chunk,) = chunk_prompt(text, CLIP_L, old=True)
    found = chunk.weights[1 : 1 + len(weights)]
    np.testing.assert_allclose(found, weights)
    assert chunk.weights[1 + len(weights) :] == (1.0,) * (76 - len(weights))
    assert len(chunk.ids) == 77


def test_old_emphasis_has_room_for_75_tokens_and_one_encoder():
    (chunk,) = chunk_prompt("red " * 100, CLIP_L, old=True)
    assert chunk.ids[1:76] == (chunk.ids[1],) * 75
    (plain,) = chunk_prompt("a (red) cat", CLIP_L, old=True, emphasis="None")
    assert plain == chunk_prompt("a (red) cat", CLIP_L, emphasis="None")[0]
    with pytest.raises(SettingError, match="old_emphasis: the old way"):
        chunk_prompt("a", CLIP_G, old=True)


def test_old_timelines():
    """A number below 1 is a share, also without a point; both passes count from 0."""
    assert list(stages_of("[a:b:.5]", 10, old=True)) == [(5, "a"), (10, "b")]
    assert list(stages_of("[a:b:2.5]", 10, old=True)) == [(2, "a"), (10, "b")]
    assert list(stages_of("[a:b:2.5]", 10)) == [(10, "a")]
    assert list(stages_of("[a:b:3]", 10, 20, old=True)) == [(3, "a"), (10, "b")]
    assert list(stages_of("[a:b:.5]", 10, 20, old=True)) == [(5, "a"), (10, "b")]


def test_levels_of_16_bits_are_those_of_torch():
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
    alphas = torch.cumprod(1 - betas, 0).half()
    expected = ((1 - alphas) / alphas) ** 0.5
    found = scaled_linear(half=True)
    np.testing.assert_array_equal(found.sigmas, expected.double().numpy())
    np.testing.assert_array_equal(found.logarithms, expected.log().double().numpy())
    np.testing.assert_array_equal(found.alphas, alphas.double().numpy())
    with pytest.raises(SettingError, match="half_alphas"):
        scaled_linear(half=True, zero_snr=True)


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1])
def test_seeds_that_torch_draws(seed):
    assert (
        TorchCpu(seed).seed() == torch.randint(0, 2**63 - 1, [], generator=torch.Generator().manual_seed(seed)).item()
    )


def test_one_noise_for_a_batch(pipeline):
    """Without A1111's care for batches, a picture's noise depends on the others that it is made with."""
    settings = {**SMALL, "sampler": "DPM++ SDE", "steps": 3}
    alone = latent(pipeline, **settings, shared_brownian=True)
    assert np.abs(alone - latent(pipeline, **settings)).max() > 1e-3
    both = pipeline("a red circle", **{**settings, "batch_size": 2}, shared_brownian=True)
    assert np.abs(alone - both[0].latent).max() > 1e-3
    careful = pipeline("a red circle", **{**settings, "batch_size": 2})
    assert np.abs(latent(pipeline, **settings) - careful[0].latent).max() < 1e-4


def words_of_both(pipeline, monkeypatch, prompt, negative, **settings):
    """How many tokens the model is told of the prompt and of the negative prompt, and the words themselves."""
    seen, denoise = [], pipeline.model.denoise

    def spy(x, time, conditioning, **more):
        seen.extend(conditioning.words[row] for row in range(len(conditioning.words)))
        return denoise(x, time, conditioning, **more)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.model, "denoise", spy)
        pipeline(prompt, negative_prompt=negative, **{**SMALL, "steps": 1, **settings})
    return seen[:2]


@pytest.mark.parametrize("swapped", [False, True])
def test_prompts_are_filled_up(pipeline, monkeypatch, swapped):
    prompt, negative = ("blue", "red " * 80) if swapped else ("red " * 80, "blue")
    plain = words_of_both(pipeline, monkeypatch, prompt, negative)
    assert sorted(len(each) for each in plain) == [77, 154]
    short, empty = plain[0 if swapped else 1], words_of_both(pipeline, monkeypatch, "", "blue")[0]
    padded = words_of_both(pipeline, monkeypatch, prompt, negative, pad_prompts="empty")
    filled = padded[0 if swapped else 1]
    assert [len(each) for each in padded] == [154, 154]
    np.testing.assert_allclose(filled, np.concatenate([short, empty]), atol=1e-5)
    last = words_of_both(pipeline, monkeypatch, prompt, negative, pad_prompts="last")
    if swapped:  # the negative prompt is cut
        np.testing.assert_allclose(last[1], plain[1][:77], atol=1e-5)
    else:
        np.testing.assert_allclose(last[1], np.concatenate([short, short[-1:].repeat(77, 0)]), atol=1e-5)


def test_a_second_pass_covers_another_shape(pipeline):
    """A1111 makes a picture larger until it covers the size, and cuts off what is over; it does not stretch it."""
    assert covering((512, 512), (768, 512), 8).size == (768, 768)
    assert covering((512, 512), (768, 512), 8).cut == (0, 32)
    assert covering((512, 768), (1024, 1024), 8).cut == (0, (1536 - 1024) // 8)
    assert covering((512, 768), (1024, 1536), 8) == covering((512, 768), (1024, 1536), 1)
    drawn = np.arange(2 * 12 * 8, dtype=np.float32).reshape(1, 2, 12, 8)
    np.testing.assert_array_equal(covering((64, 64), (64, 64), 8).trimmed(drawn), drawn)
    np.testing.assert_array_equal(covering((64, 96), (64, 56), 8).trimmed(drawn), drawn[:, :, 2:9])
    for upscaler in ("Latent", "Lanczos"):
        again = {"hires_width": 96, "hires_height": 64, "hires_upscaler": upscaler, "hires_denoising_strength": 0.5}
        (made,) = pipeline("a red circle", **SMALL, **again)
        assert made.image.size == (96, 64)


def test_the_second_pass_has_modules_of_its_own(pipeline, folders):
    again = {"hires_scale": 1.5, "hires_denoising_strength": 0.5}
    decoded = graphc_images.load("one", folders=folders, vae="other").model.decode_latent(
        latent(pipeline, **again)[None]
    )[0]
    (same,), (built_in,), (other,) = (
        pipeline("a red circle", **SMALL, **again, hires_modules=modules) for modules in (None, (), ("other",))
    )
    assert same.image.tobytes() == built_in.image.tobytes() != other.image.tobytes()
    assert other.image.tobytes() == to_picture(decoded).tobytes()
    with pytest.raises(graphc_images.ImageError, match="nothing-such"):
        pipeline("a", **SMALL, **again, hires_modules=("nothing-such",))


def test_another_checkpoint_has_the_same_autoencoder(folders):
    """A1111 and Forge keep the chosen autoencoder when they change to the model of the second pass."""
    again = {**SMALL, "hires_scale": 1.5, "hires_denoising_strength": 0.5, "hires_checkpoint": "one"}
    plain = graphc_images.load("two", folders=folders)("a red circle", **again)[0]
    chosen = graphc_images.load("two", folders=folders, vae="other")("a red circle", **again)[0]
    assert plain.image.tobytes() != chosen.image.tobytes()
    np.testing.assert_array_equal(plain.latent, chosen.latent)


def test_networks_of_a_second_prompt(pipeline):
    """They are on in the second pass alone, and off again in the next picture's first."""
    again = {"hires_scale": 1.5, "hires_denoising_strength": 0.9}
    plain = latent(pipeline, **again)
    named = "a red circle<lora:words:1>"
    late, early = (
        latent(pipeline, **again, hires_prompt=named),
        latent(pipeline, named, **again, hires_prompt="a red circle"),
    )
    assert np.abs(late - plain).max() > 1e-3
    assert np.abs(early - plain).max() > 1e-3
    assert np.abs(late - early).max() > 1e-3
    two = pipeline("a red circle", **{**SMALL, **again, "batches": 2}, hires_prompt=named)
    np.testing.assert_array_equal(two[0].latent, late)
    np.testing.assert_array_equal(two[1].latent, latent(pipeline, **{**again, "seed": 2}, hires_prompt=named))
    np.testing.assert_array_equal(latent(pipeline, **again), plain)
    kept = latent(pipeline, **again, hires_prompt=named, hires_same_networks=True)  # the LoRA is one of words alone
    np.testing.assert_array_equal(kept, plain)
    with pytest.raises(SettingError, match="hypernet"):
        pipeline("a", **SMALL, **again, hires_prompt="b<hypernet:x:1>")


def test_the_refiner_has_its_turn(pipeline):
    again = {"hires_scale": 1.5, "hires_denoising_strength": 0.9, "steps": 4}
    refined = {"refiner": "two", "refiner_switch_at": 0.4}
    made = {
        turn: latent(pipeline, **again, **refined, hires_refiner=turn)
        for turn in ("first pass", "second pass", "both passes")
    }
    made["none"] = latent(pipeline, **again)
    assert len({each.tobytes() for each in made.values()}) == 4
    times, steps = (
        latent(pipeline, **refined, steps=6, scheduler="Karras", refiner_by_steps=each) for each in (False, True)
    )
    assert np.abs(times - steps).max() > 1e-3


def test_guidance_left_out_in_every_step(pipeline):
    below = {"s_min_uncond": 15.0, "steps": 4, "negative_prompt": "blue"}
    every = latent(pipeline, **below, s_min_uncond_all=True)
    assert np.abs(every - latent(pipeline, **below)).max() > 1e-3
    np.testing.assert_allclose(every, latent(pipeline, steps=4, cfg_scale=1.0), atol=1e-4)


def painted(pipeline, **settings):
    image, mask = Image.new("RGB", (64, 64), "red"), Image.new("L", (64, 64))
    mask.paste(255, (0, 0, 32, 64))
    given = {"image": image, "mask": mask, "mask_blur": 0.0, "denoising_strength": 1.0, **settings}
    (made,) = pipeline("a red circle", **{**SMALL, **given})
    return made


def test_a_mask_is_softer_across_than_down(pipeline):
    mask = Image.new("L", (64, 64))
    mask.paste(255, (16, 16, 48, 48))
    across = np.asarray(painted(pipeline, mask=mask, mask_blur=4.0, mask_blur_y=0.0).mask).astype(int)
    assert (across[:16] == 0).all()
    assert 0 < across[32, 14] < 255
    both = np.asarray(painted(pipeline, mask=mask, mask_blur=4.0).mask).astype(int)
    assert np.abs(both - both.T).max() <= 2  # rounded once for each direction, and doubled


@pytest.mark.parametrize("only_masked", [False, True])
def test_what_was_painted_comes_by_itself(pipeline, only_masked):
    made = painted(pipeline, only_masked=only_masked, only_masked_padding=4)
    assert made.mask.size == made.painted.size == made.image.size
    opacity = np.asarray(made.painted)[..., 3]
    np.testing.assert_array_equal(opacity, np.asarray(made.mask))
    inside = opacity == 255
    np.testing.assert_array_equal(np.asarray(made.painted)[inside][:, :3], np.asarray(made.image)[inside])
    (whole,) = pipeline("a", **SMALL)
    assert whole.mask is whole.painted is None


def test_without_the_picture_over_it(pipeline):
    kept, bare = painted(pipeline), painted(pipeline, overlay=False)
    red = (np.asarray(kept.image) == (255, 0, 0)).all(-1)
    assert red[:, 32:].all()
    assert not (np.asarray(bare.image) == (255, 0, 0)).all(-1)[:, 32:].all()
    np.testing.assert_array_equal(kept.latent, bare.latent)


def test_what_is_transparent_has_a_colour(pipeline):
    clear, green = Image.new("RGBA", (64, 64)), Image.new("RGB", (64, 64), "#00ff00")
    start = {"denoising_strength": 0.5}
    np.testing.assert_array_equal(
        latent(pipeline, image=clear, background="#00ff00", **start), latent(pipeline, image=green, **start)
    )
    with pytest.raises(SettingError, match="background: 'no colour'"):
        latent(pipeline, image=clear, background="no colour", **start)


def test_a_small_picture_is_made_larger_by_an_upscaler(pipeline):
    drawn = Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8))
    start = {"image": drawn, "denoising_strength": 0.5}
    nearest = drawn.resize((64, 64), Image.Resampling.NEAREST)
    np.testing.assert_array_equal(
        latent(pipeline, **start, resize_upscaler="Nearest"), latent(pipeline, **{**start, "image": nearest})
    )
    large = {**start, "image": drawn.resize((96, 96))}
    np.testing.assert_array_equal(latent(pipeline, **large, resize_upscaler="Nearest"), latent(pipeline, **large))
    with pytest.raises(SettingError, match="resize_upscaler: there is no"):
        latent(pipeline, **start, resize_upscaler="no-such")
