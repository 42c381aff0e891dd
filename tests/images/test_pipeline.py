"""Whole pipelines beside diffusers' own, and what their settings do."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import graphc_images
from graphc_images.describing import settings_of
from graphc_images.errors import ModelError, SettingError
from graphc_images.pictures.files import open_picture
from graphc_images.pictures.parameters import read_parameters
from graphc_images.prompts.chunks import chunk_prompt
from graphc_images.prompts.encoders import CLIP_L
from graphc_images.sampling import guidance
from graphc_images.settings import Settings
from graphc_images.starting import start_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SIGMAS = (14.6, 9.1, 5.4, 3.1, 1.7, 0.9, 0.4, 0.1, 0.0)
PROMPT, AGAINST = "a red circle left of a blue square", "yellow"


@pytest.fixture(scope="module")
def modules():
    from small_checkpoint import small_modules

    return small_modules()


@pytest.fixture(scope="module")
def checkpoint(modules, tmp_path_factory):
    from small_checkpoint import write_small

    return write_small(tmp_path_factory.mktemp("models") / "small.safetensors", modules)


@pytest.fixture(scope="module")
def pipeline(checkpoint):
    return graphc_images.load(checkpoint, threads=2)


def words(text_encoder, prompt):
    (chunk,) = chunk_prompt(prompt, CLIP_L)
    return text_encoder(torch.tensor([chunk.ids])).last_hidden_state


def diffusers_pipeline(modules, kind):
    import diffusers

    unet, vae, text = modules
    scheduler = diffusers.EulerDiscreteScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", timestep_spacing="linspace"
    )
    parts = {"unet": unet, "vae": vae, "text_encoder": text, "tokenizer": None, "scheduler": scheduler}
    made = getattr(diffusers, kind)(**parts, safety_checker=None, feature_extractor=None, requires_safety_checker=False)
    made.set_progress_bar_config(disable=True)
    return made


def noise(seed, shape=(4, 16, 16)):
    return torch.randn((1, *shape), generator=torch.Generator().manual_seed(seed))


def test_text_to_image_is_that_of_diffusers(pipeline, modules):
    text = modules[2]
    oracle = diffusers_pipeline(modules, "StableDiffusionPipeline")
    result = oracle(
        prompt_embeds=words(text, PROMPT), negative_prompt_embeds=words(text, AGAINST), latents=noise(7),
        sigmas=list(SIGMAS), num_inference_steps=None, guidance_scale=5.0, output_type="latent",
    ).images  # fmt: skip
    (mine,) = pipeline(
        PROMPT, negative_prompt=AGAINST, sampler="Euler", sigmas=SIGMAS, cfg_scale=5.0, seed=7, generator="cpu"
    )
    expected = result[0].numpy()
    assert np.abs(mine.latent - expected).max() < 1e-4 * max(1, np.abs(expected).max())
    with torch.no_grad():
        decoded = modules[1].decode(result / modules[1].config.scaling_factor).sample[0]
    pixels = np.clip((decoded.numpy() + 1) * 127.5, 0, 255).transpose(1, 2, 0)
    close = np.abs(np.asarray(mine.image, np.float32) - pixels) <= 1.01
    assert close.mean() > 0.999


def test_a_batch_is_what_its_pictures_are_alone(pipeline):
    settings = {"steps": 3, "sampler": "Euler a", "cfg_scale": 3.0}
    both = pipeline(PROMPT, seed=5, batch_size=2, **settings)
    alone = [pipeline(PROMPT, seed=seed, **settings)[0] for seed in (5, 6)]
    assert [each.seed for each in both] == [5, 6]
    for one, other in zip(both, alone, strict=True):
        assert np.abs(one.latent - other.latent).max() < 1e-3


def test_the_same_request_gives_the_same_bytes(pipeline):
    first, second = (pipeline(PROMPT, steps=2, seed=3)[0].image.tobytes() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("mode", "most"), [("a1111", 0.3), ("comfyui", 1e-4)])
def test_a_picture_that_is_not_changed_stays(pipeline, mode, most):  # A1111 takes the last step at least
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (128, 128, 3), np.uint8))
    (kept,) = pipeline(PROMPT, image=image, denoising_strength=0.0, seed=1, mode=mode)
    latent = pipeline.model.encode_image((np.asarray(image, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None])
    assert np.abs(kept.latent - latent[0]).max() < most


@pytest.mark.parametrize("mode", ["a1111", "comfyui"])
def test_inpainting_leaves_what_is_not_masked(pipeline, mode):
    random = np.random.default_rng(0)
    image = Image.fromarray(random.integers(0, 255, (128, 128, 3), np.uint8))
    mask = Image.new("L", (128, 128))
    mask.paste(255, (64, 0, 128, 128))
    (painted,) = pipeline(
        PROMPT, image=image, mask=mask, mask_blur=0, denoising_strength=0.9, steps=4, seed=1, mode=mode
    )
    before, after = np.asarray(image), np.asarray(painted.image)
    assert (before[:, :60] == after[:, :60]).all()
    assert np.abs(before[:, 70:].astype(int) - after[:, 70:]).mean() > 5


def test_comfyui_keeps_the_greys_of_a_mask(pipeline):
    mask = Image.fromarray(np.random.default_rng(1).integers(0, 256, (64, 64), np.uint8))
    asked = Settings("x", image=Image.new("RGB", (64, 64)), mask=mask, mask_blur=0, seed=1, width=64, height=64)
    found = {mode: start_of(pipeline.model, pipeline.resolved(replace(asked, mode=mode)), [1], [1]).region.mask
             for mode in ("a1111", "comfyui")}  # fmt: skip
    levels = torch.from_numpy(np.asarray(mask, np.float32) / 255)[None, None]
    expected = torch.nn.functional.interpolate(levels, (8, 8), mode="bilinear").numpy()
    assert np.abs(found["comfyui"] - expected).max() < 1e-6
    assert set(np.unique(found["a1111"])) == {0.0, 1.0}


def test_only_masked_paints_in_the_box(pipeline):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8))
    mask = Image.new("L", (256, 256))
    mask.paste(255, (100, 100, 150, 140))
    (painted,) = pipeline(
        PROMPT, image=image, mask=mask, mask_blur=0, only_masked=True, steps=2, seed=1, width=128, height=128
    )
    before, after = np.asarray(image), np.asarray(painted.image)
    assert after.shape == before.shape
    inside = np.zeros((256, 256), bool)
    inside[100:140, 100:150] = True
    assert (before[~inside] == after[~inside]).all()
    assert (before[inside] != after[inside]).mean() > 0.5


@pytest.mark.parametrize("upscaler", ["Latent", "Lanczos"])
def test_the_second_pass_is_larger(pipeline, upscaler):
    (made,) = pipeline(PROMPT, steps=2, seed=1, hires_scale=1.5, hires_upscaler=upscaler, hires_denoising_strength=0.5)
    assert made.image.size == (192, 192)


def test_steps_can_be_watched_and_left(pipeline):
    seen = []
    for progress in pipeline.steps(PROMPT, steps=5, seed=1, batches=2):
        seen.append((progress.batch, progress.step, progress.steps, len(progress.pictures)))
        if progress.batch == 1:
            break
    assert seen[:5] == [(0, step, 5, 0) for step in range(1, 6)]
    assert seen[5][3] == 1
    assert progress.previews()[0].size == (16, 16)


def test_the_text_in_the_file_makes_it_again(pipeline, tmp_path):
    made = pipeline(PROMPT, negative_prompt=AGAINST, steps=2, seed=9, sampler="DPM++ 2M Karras", clip_skip=2, width=64)
    made.save(tmp_path / "out.png")
    _, notes = open_picture(tmp_path / "out.png")
    again = pipeline(**settings_of(read_parameters(notes.parameters)))
    assert again[0].image.tobytes() == made[0].image.tobytes()
    assert "Sampler: DPM++ 2M, Schedule type: Karras" in notes.parameters


@pytest.mark.parametrize("sampler", ["DDIM", "UniPC", "PLMS", "DPM++ 2M SDE", "LCM", "Restart", "Heun"])
@pytest.mark.parametrize("mode", ["a1111", "comfyui"])
def test_samplers_of_all_kinds_end_in_numbers(pipeline, sampler, mode):
    (made,) = pipeline(PROMPT, steps=3, seed=1, sampler=sampler, mode=mode, width=64, height=64)
    assert np.isfinite(made.latent).all()


def test_a_prompt_is_encoded_once(pipeline, monkeypatch):
    encoded, encode = [], pipeline.model.encode_tokens
    monkeypatch.setattr(pipeline.model, "encode_tokens", lambda *given: encoded.append(given) or encode(*given))
    settings = {"steps": 1, "width": 64, "height": 64, "negative_prompt": "and another"}
    pictures = [pipeline("a prompt of its own", seed=seed, **settings)[0] for seed in (1, 1, 2)]
    assert len(encoded) == 2
    assert pictures[0].image.tobytes() == pictures[1].image.tobytes()
    pipeline("a prompt of its own", seed=1, clip_skip=2, **settings)
    assert len(encoded) == 4


def test_loras_go_on_and_off(pipeline, modules, tmp_path, caplog):
    from safetensors.numpy import save_file

    random = np.random.default_rng(2)
    name, weight = "input_blocks_1_1_transformer_blocks_0_attn1_to_q", modules[0].state_dict()
    rows, columns = weight["down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.weight"].shape
    file = tmp_path / "style v1.5.safetensors"
    save_file({
        f"lora_unet_{name}.lora_down.weight": random.standard_normal((4, columns), np.float32),
        f"lora_unet_{name}.lora_up.weight": random.standard_normal((rows, 4), np.float32),
    }, file)  # fmt: skip
    settings = {"steps": 2, "seed": 1, "width": 64, "height": 64}
    (plain,) = pipeline("a shape", **settings)
    (half, whole) = (pipeline(f"a shape<lora:{file}:{strength}>", **settings)[0] for strength in (0.5, 1))
    (asked,) = pipeline("a shape", loras={str(file): 1.0}, **settings)
    for prompt, loras in (
        (f"a <lora:{file}:0.25>shape<lora:{file}:0.75>", {}),
        (f"a shape<lora:{file}:0.25>", {str(file): 0.75}),
    ):
        (sum_of_both,) = pipeline(prompt, loras=loras, **settings)
        assert sum_of_both.latent.tobytes() == whole.latent.tobytes()
    assert "<lora:style v1.5:1>\n" in asked.parameters
    assert 'Lora hashes: "style v1.5: ' in asked.parameters
    (off,) = pipeline("a shape", **settings)
    assert off.latent.tobytes() == plain.latent.tobytes()
    assert asked.latent.tobytes() == whole.latent.tobytes()
    assert 0 < np.abs(half.latent - plain.latent).max() < np.abs(whole.latent - plain.latent).max()
    (left_out,) = pipeline("a shape<lora:nothing:1>", **settings)
    assert "there is no LoRA 'nothing'" in caplog.text
    assert left_out.latent.tobytes() == plain.latent.tobytes()
    with pytest.raises(ModelError, match="there is no LoRA 'nothing'"):
        pipeline("a shape", loras={"nothing": 1.0}, **settings)


def test_a_second_pass_of_any_scale(pipeline):
    """Of 64 x 72 pixels 1.3 times are 83.2 x 93.6, in which 80 x 88 fit, as in A1111."""
    (made,) = pipeline(PROMPT, steps=1, seed=1, width=64, height=72, hires_scale=1.3)
    assert made.image.size == (80, 88)


def test_an_embedding_stands_for_its_vectors(pipeline, modules, tmp_path, caplog):
    from safetensors.numpy import load_file, save_file

    words = CLIP_L.tokens("red circle")
    save_file({"emb_params": modules[2].embeddings.token_embedding.weight[words].numpy()}, tmp_path / "rc.safetensors")
    settings = {"steps": 2, "seed": 1, "width": 64, "height": 64}
    named = {"a1111": "a big rc", "comfyui": "a big embedding:rc"}
    for mode, prompt in named.items():
        (plain,) = pipeline("a big red circle", mode=mode, **settings)
        (mine,) = pipeline(prompt, mode=mode, embeddings={"rc": str(tmp_path / "rc.safetensors")}, **settings)
        assert np.abs(mine.latent - plain.latent).max() < 1e-3
    name = "lora_unet_up_blocks_1_attentions_0_transformer_blocks_0_attn2_to_k"
    vectors = load_file(tmp_path / "rc.safetensors")["emb_params"]
    save_file({
        f"{name}.lora_down.weight": np.zeros((1, 48), np.float32), f"{name}.lora_up.weight": np.zeros((96, 1), np.float32),
        "bundle_emb.rc.clip_l": vectors, "bundle_emb.rc.clip_l_out": vectors,
    }, tmp_path / "both.safetensors")  # fmt: skip
    (plain,) = pipeline("a big red circle", **settings)
    (mine,) = pipeline(f"a big rc<lora:{tmp_path / 'both.safetensors'}:1>", **settings)
    assert np.abs(mine.latent - plain.latent).max() < 1e-3
    assert "bundle_emb.rc.clip_l_out is added behind a text encoder, which is not done" in caplog.text
    (without,) = pipeline("a big rc", **settings)
    assert np.abs(without.latent - plain.latent).max() > 1e-2
    pipeline("embedding:nothing", mode="comfyui", **settings)
    assert "there is no embedding nothing" in caplog.text


WRONG = {
    "width: 100 is not a multiple of 8": {"width": 100},
    "steps: 0 is not a whole number from 1": {"steps": 0},
    "steps: 20000 is not a whole number from 1 to 16384": {"steps": 20000},
    "cfg_scale: 1e+308 is not a number from -10000 to 10000": {"cfg_scale": 1e308},
    "there is no sampler 'Eular'": {"sampler": "Eular"},
    "there is no scheduler 'Karas'": {"scheduler": "Karas"},
    "there is no setting 'stepz'": {"stepz": 3},
    "mask: there is no image": {"mask": Image.new("L", (8, 8))},
    "mask: nothing is white": {
        "image": Image.new("RGB", (64, 64)), "mask": Image.new("L", (64, 64)), "only_masked": True,
    },
    "mask: it has 8 x 8 pixels, and the image 64 x 64": {
        "image": Image.new("RGB", (64, 64)), "mask": Image.new("L", (8, 8)),
    },
    "denoising_strength: nan": {"denoising_strength": float("nan")},
    "seed: 4294967296": {"seed": 2**32},
    "seed: None is not a seed": {"seed": None},
    "image: 'a.png' is not a picture": {"image": "a.png"},
    "hires_prompt: 3 is not a text": {"hires_prompt": 3},
    "loras: ['a'] is not a mapping from names to strengths": {"loras": ["a"]},
    "controls: None is not a sequence of units": {"controls": None},
    "cfg_scale: () is not a number": {"cfg_scale": ()},
    "apg: 'strong' is no record": {"apg": "strong"},
    "tiling: 1 is none of off, on": {"tiling": 1},
    "noise: its shape is [1, 4, 2, 2], and that of the latents [1, 4, 16, 16]": {
        "noise": np.zeros((1, 4, 2, 2), np.float32)
    },
    "cfg_rescale, mahiro: one of them": {"cfg_rescale": 0.5, "mahiro": True},
    "generator: there is no 'gp'": {"generator": "gp"},
    "hires_upscaler: there is no upscaler 'Lanczoz'": {"hires_scale": 2, "hires_upscaler": "Lanczoz"},
    "there is no sampler 'Haun'": {"hires_scale": 2, "hires_sampler": "Haun"},
    "width: 100 is not a multiple": {"hires_width": 100, "hires_height": 128},
    "<hypernet:x>: only LoRAs": {"prompt": "a <hypernet:x:1>"},
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_done_is_said(pipeline, message):
    with pytest.raises(SettingError) as error:
        pipeline(**WRONG[message])
    assert message in str(error.value)


def wishing(at, wish):
    """What is wished for from the step on that is counted so, and until the batch is finished."""
    asked = []

    def ask():
        asked.append(wish)
        return wish if len(asked) > at else "go on"

    return ask


@pytest.mark.parametrize(("wish", "batches"), [("stop", 1), ("skip", 2)])
def test_a_wish_ends_a_batch_with_what_there_is(pipeline, wish, batches):
    asked = Settings(prompt="a circle", steps=6, batches=2, seed=1, width=64, height=64, hires_scale=2)
    steps = list(pipeline.paint(asked, wishing(2, wish)))
    pictures = [picture for progress in steps for picture in progress.pictures]
    assert [picture.image.size for picture in pictures] == [(64, 64)] * batches
    first = [progress for progress in steps if progress.batch == 0]
    assert [progress.step for progress in first] == [1, 2, 3, 1]
    assert pictures[0].latent.tobytes() == first[2].latent[0].tobytes()


def test_previews_are_made_three_ways(pipeline):
    progress = next(pipeline.steps("a circle", steps=1, seed=1, width=64, height=64))
    sizes = {by: progress.previews(by)[0].size for by in ("rough", "tiny", "full")}
    assert sizes == {"rough": (8, 8), "tiny": (8, 8), "full": (64, 64)}


RULES = {
    "apg": (guidance.Projected(0.5, 1.0), lambda at: guidance.Projected(0.5, 1.0)(at)),
    "dynamic_thresholding": (guidance.DynamicThreshold(2.0), lambda at: guidance.DynamicThreshold(2.0)(at)),
    "cfg_zero_star": (True, guidance.zero_star),
    "mahiro": (True, guidance.mahiro),
    "cfg_lengths": (True, guidance.lengthened),
    "cfg_norm": (1.0, guidance.normed),
    "cfg_rescale": (0.5, lambda at: guidance.rescaled(at, 0.5)),
    "tangential_damping": (True, lambda at: guidance.tangential(at).mixed()),
    "fresca": (guidance.Frequencies(0.5), lambda at: guidance.Frequencies(0.5)(at).mixed()),
    "epsilon_scaling": (1.1, lambda at: guidance.noise_scaled(at.x, at.mixed(), 1.1)),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_guidance_reaches_the_arithmetic(pipeline, name):
    """One step from known estimates: those of the scales 1 and 0, which are the prompt's and the negative prompt's alone."""
    value, rule = RULES[name]
    sigma, settings = 3.0, {"sampler": "Euler", "sigmas": (3.0, 0.0), "width": 64, "height": 64, "generator": "cpu"}
    start = noise(4, (4, 8, 8)).numpy()
    told = {**settings, "noise": start, "negative_prompt": AGAINST}
    positive, negative = (pipeline(PROMPT, cfg_scale=scale, **told)[0].latent[None] for scale in (1.0, 0.0))
    (made,) = pipeline(PROMPT, cfg_scale=5.0, **told, **{name: value})
    expected = rule(guidance.Moment(start * sigma, sigma, positive, negative, 5.0))
    assert np.abs(expected - guidance.Moment(start, sigma, positive, negative, 5.0).mixed()).max() > 1e-3
    assert np.abs(made.latent - expected).max() < 1e-3 * max(1, np.abs(expected).max())


def test_perpendicular_negatives_take_the_empty_prompt(pipeline):
    settings = {
        "sampler": "Euler",
        "sigmas": (3.0, 0.0),
        "width": 64,
        "height": 64,
        "noise": noise(4, (4, 8, 8)).numpy(),
    }
    positive, negative, empty = (
        pipeline(prompt, cfg_scale=1.0, **settings)[0].latent[None] for prompt in (PROMPT, AGAINST, "")
    )
    (made,) = pipeline(PROMPT, negative_prompt=AGAINST, cfg_scale=5.0, perp_neg=0.5, **settings)
    moment = guidance.Moment(settings["noise"] * 3, 3.0, positive, negative, 5.0)
    expected = guidance.perpendicular(moment, empty, 0.5)
    assert np.abs(made.latent - expected).max() < 1e-3 * max(1, np.abs(expected).max())
