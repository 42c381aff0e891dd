"""Qwen-Image-Edit: pictures that its language model looks at, beside transformers' and diffusers'."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

import original_layouts as original  # noqa: E402
from architecture_models import drawn, prefixed  # noqa: E402
from test_newer_pipelines import qwen_tokenizer  # noqa: E402
from test_pipelines import AGAINST, FLOW, HEIGHT, WIDTH, asked, flow, near, noise, opened, painted, quiet  # noqa: E402

from examples.image_engines import small as configs  # noqa: E402
from graphc_images import seen  # noqa: E402
from graphc_images.errors import ModelError, SettingError  # noqa: E402
from graphc_images.models import looking  # noqa: E402
from graphc_images.models.looking import look_at  # noqa: E402

pytestmark = pytest.mark.torch
LLM = "text_encoders.qwen25_7b.transformer."
AREA = 128 * 128


def visual(dtype=np.float16):
    draw = np.random.default_rng(9)
    shapes = prefixed(LLM, original.visual(32, 48, 4))
    return {name: drawn(draw, name, shape).astype(dtype) for name, shape in shapes.items()}


def picture(width=100, height=70, seed=4):
    colours = np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)
    return Image.fromarray(colours).resize((width, height), Image.Resampling.BOX)


def seeing_model(words, eyes):
    """transformers' whole Qwen2.5-VL, of the language model and of what sees."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    text = {key: value for key, value in configs.QWEN25.items() if key not in ("model", "taken", "normed")}
    text["rope_parameters"] = {**text["rope_parameters"], "mrope_section": [2, 2, 2]}
    config = Qwen2_5_VLConfig(
        text_config={**text, "num_hidden_layers": 3},
        vision_config=dict(configs.QWEN25_VISUAL),
        image_token_id=looking.SEEN,
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    model.model.language_model.load_state_dict(words.state_dict())
    own = {name.removeprefix(f"{LLM}visual."): torch.from_numpy(each.astype(np.float32)) for name, each in eyes.items()}
    missing, _ = model.model.visual.load_state_dict(own, strict=False)
    assert not missing
    forward = model.forward
    # without these, the transformers of today counts pictures as words; that of Qwen-Image-Edit's days did not
    model.forward = lambda **given: forward(**given, mm_token_type_ids=(given["input_ids"] == looking.SEEN).int())
    return model.eval().requires_grad_(False)


class Processor:
    """transformers' own wants torchvision, for videos."""

    def __init__(self):
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        self.images = Qwen2VLImageProcessorPil(size={"shortest_edge": looking.LEAST, "longest_edge": looking.MOST})
        self.tokenizer = qwen_tokenizer()

    def __call__(self, text, images, padding, return_tensors):
        from transformers import BatchFeature

        found = self.images(images, return_tensors=return_tensors)
        counts = [int(each.prod()) // 4 for each in found["image_grid_thw"]]
        pad = "<|image_pad|>"
        for count in counts:
            text = [each.replace(pad, "<|once|>" * count, 1) for each in text]
        text = [each.replace("<|once|>", pad) for each in text]
        return BatchFeature({**self.tokenizer(text, padding=padding, return_tensors=return_tensors), **found})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    eyes = visual()
    pipeline, modules = opened("Qwen-Image", tmp_path_factory.mktemp("model"), **eyes)
    return pipeline, modules, seeing_model(modules["llm"], eyes)


@pytest.mark.parametrize("size", [(224, 112), (100, 70), (30, 500), (2, 2), (56, 56), (300, 260)])
def test_pictures_become_words(models, size):
    pipeline, _, whole = models
    image = picture(*size)
    found = Processor().images(image, return_tensors="pt")
    look = look_at(image)
    assert [1, *(2 * side for side in look.grid)] == found["image_grid_thw"][0].tolist()
    expected = whole.model.visual(found["pixel_values"], grid_thw=found["image_grid_thw"]).pooler_output.numpy()
    mine = pipeline.model._words_of("llm", look)
    assert np.abs(mine - expected).max() < 2e-5 * np.abs(expected).max()


def small_areas(monkeypatch):
    """References of fewer pixels, in ours and in diffusers'."""
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus

    wanted = {1 << 20: AREA, 384 * 384: AREA // 2}
    for module in (pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus):
        plain = module.calculate_dimensions
        monkeypatch.setattr(module, "calculate_dimensions", lambda area, ratio, plain=plain: plain(wanted[area], ratio))
    monkeypatch.setattr(seen, "EDITED_PIXELS", AREA)
    monkeypatch.setattr(seen, "LOOKED_AT_PIXELS", AREA // 2)


@pytest.mark.parametrize(("count", "numbered"), [(1, False), (1, True), (2, False)])
def test_qwen_image_edit(models, monkeypatch, count, numbered):
    """One picture as the first Qwen-Image-Edit, several as that of 2509; also with a negative prompt of another length."""
    small_areas(monkeypatch)
    pipeline, modules, whole = models
    first = count == 1 and not numbered
    kind = diffusers.QwenImageEditPipeline if first else diffusers.QwenImageEditPlusPipeline
    processor = Processor()
    oracle = quiet(kind(
        scheduler=flow(), vae=modules["vae"], text_encoder=whole, tokenizer=processor.tokenizer, processor=processor,
        transformer=modules["denoiser"],
    ))  # fmt: skip
    start = noise(16)
    squares = oracle._pack_latents(start, 1, 16, HEIGHT // 8, WIDTH // 8)
    references = [picture(), picture(60, 90, 5)][:count]
    given = {**asked(squares), "sigmas": list(FLOW[:-1]), "image": references[0] if first else references}

    def latent(**settings):
        return oracle._unpack_latents(oracle(**given, **settings).images, HEIGHT, WIDTH, 8)[0, :, 0]

    settings = {"reference_images": tuple(references), "numbered_references": numbered}
    near(painted(pipeline, start, FLOW, cfg_scale=1.0, **settings), latent(true_cfg_scale=1.0))
    told = {"negative_prompt": f"(many) words, {AGAINST}"}
    made = painted(pipeline, start, FLOW, **told, cfg_scale=4.0, cfg_lengths=True, **settings)
    near(made, latent(**told, true_cfg_scale=4.0))
    without = painted(pipeline, start, FLOW, cfg_scale=1.0)
    assert np.abs(made.latent - without.latent).max() > 1e-2


def test_what_was_seen_is_kept(models, monkeypatch):
    """A picture is looked at once, and the texts beside it are read once; another picture is another text."""
    small_areas(monkeypatch)
    pipeline, *_ = models
    ran = []
    plain = pipeline.model._run
    monkeypatch.setattr(pipeline.model, "_run", lambda key, feed: ran.append(key) or plain(key, feed))
    pipeline.model._seen.clear()

    def count(seed):
        ran.clear()
        settings = {"reference_images": (picture(seed=seed),), "steps": 1, "cfg_scale": 3.0}
        pipeline("words", negative_prompt="others", width=WIDTH, height=HEIGHT, seed=1, **settings)
        return [ran.count(f"llm {half}") for half in ("visual", "seeing")]

    assert [count(31), count(31), count(32), count(31)] == [[1, 2], [0, 0], [1, 2], [0, 0]]
    monkeypatch.setattr(type(pipeline.conditioner), "KEPT_BYTES", 1 << 10)
    assert [count(33), count(33), count(32)] == [[1, 2], [0, 0], [0, 2]], "of texts only the last"


def test_a_text_may_name_the_token_of_pictures(models, monkeypatch):
    small_areas(monkeypatch)
    pipeline, *_ = models
    settings = {"steps": 1, "width": WIDTH, "height": HEIGHT, "reference_images": (picture(),)}
    (made,) = pipeline("<|image_pad|> words <|image_pad|>", **settings)
    assert np.isfinite(made.latent).all()


def test_a_language_model_without_eyes(tmp_path, monkeypatch):
    small_areas(monkeypatch)
    pipeline, _ = opened("Qwen-Image", tmp_path)
    with pytest.raises(ModelError, match=r"none of the model's parameters \(visual\.patch_embed\.proj\.weight, "):
        pipeline("words", steps=1, width=WIDTH, height=HEIGHT, reference_images=(picture(),))
    with pytest.raises(SettingError, match="402 x 2: such a picture is too narrow"):
        look_at(picture(402, 2))
