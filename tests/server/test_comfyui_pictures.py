"""Graphs beside `graphc image` in ComfyUI's mode, bit for bit; and what nodes that only graphs have must be equal to."""

import numpy as np
import pytest
from graphs import Bench, changed, node, of_text, picture, write_lora
from PIL import Image

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytestmark = pytest.mark.torch

from graphc_images.control_units import ControlUnit  # noqa: E402
from graphc_images.models import load_model  # noqa: E402
from graphc_images.pipeline import Pipeline  # noqa: E402
from graphc_images.steering import Controls  # noqa: E402

TEXTS = {"prompt": "a (red:1.3) circle", "negative_prompt": "blue, (dark:0.8)"}
SAMPLING = {"seed": 5, "steps": 3, "cfg_scale": 4.0, "width": 64, "height": 64, "mode": "comfyui"}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A bench and a pipeline of the same small model, the LoRA's file and the ControlNet's."""
    from architecture_models import ENGINES, SMALL, original
    from safetensors.numpy import save_file
    from test_controls import KINDS, original_controlnet

    root = tmp_path_factory.mktemp("comfyui")
    for name in ("checkpoints", "loras", "controlnet"):
        (root / "models" / name).mkdir(parents=True)
    small = SMALL["Stable Diffusion 1"]
    path = small.write(root / "models" / "checkpoints", name="one.safetensors")
    lora = write_lora(root / "models" / "loras" / "style.safetensors")
    control = root / "models" / "controlnet" / "edges.safetensors"
    tensors = {f"control_model.{name}": each for name, each in original_controlnet(original.SD1).items()}
    save_file(tensors, control)
    given = {"engines": ENGINES, "architectures": [small.architecture]}
    bench = Bench(root / "data", root / "models", **given, controls=KINDS)
    pipeline = Pipeline(load_model(path, **given, threads=1), "one", hashes=False)
    pipeline.controls = Controls(pipeline.model, None, KINDS)
    picture().save(bench.files.folders["input"] / "in.png")
    return bench, pipeline, lora, control


def graph(sampler="euler", scheduler="normal", batch=1, **more):
    found = of_text(
        prompt=TEXTS["prompt"],
        negative=TEXTS["negative_prompt"],
        seed=5,
        steps=3,
        sampler_name=sampler,
        scheduler=scheduler,
        batch=batch,
    )
    return {**found, **more}


def same(bench, made, wanted):
    found = bench.pictures(bench.run(made).shown["9"])
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one == np.asarray(other.image)).all()


@pytest.mark.parametrize(
    ("sampler", "scheduler"),
    [
        ("euler", "normal"), ("euler_ancestral", "karras"), ("dpmpp_2m", "karras"), ("dpmpp_2m_sde", "exponential"),
        ("dpmpp_sde_gpu", "simple"), ("uni_pc", "sgm_uniform"), ("ddim", "ddim_uniform"), ("lcm", "beta"),
        ("dpm_2_ancestral", "kl_optimal"),
    ],
)  # fmt: skip
def test_from_words(both, sampler, scheduler):
    bench, pipeline, *_ = both
    wanted = pipeline(**TEXTS, **SAMPLING, sampler=sampler, scheduler=scheduler, batch_size=2)
    same(bench, graph(sampler, scheduler, batch=2), wanted)


def test_from_a_picture(both):
    bench, pipeline, *_ = both
    made = changed(graph("dpmpp_2m"), "3", denoise=0.6, latent_image=["11", 0]) | {
        "10": node("LoadImage", image="in.png"), "11": node("VAEEncode", pixels=["10", 0], vae=["4", 2]),
    }  # fmt: skip
    wanted = pipeline(
        **TEXTS, **SAMPLING, sampler="dpmpp_2m", scheduler="normal", image=picture(), denoising_strength=0.6
    )
    same(bench, made, wanted)


def test_loras_and_earlier_layers(both):
    bench, pipeline, lora, _ = both
    plain = bench.pictures(bench.run(graph()).shown["9"])
    made = changed(changed(changed(graph(), "3", model=["10", 0]), "6", clip=["11", 0]), "7", clip=["11", 0]) | {
        "10": node(
            "LoraLoader", lora_name="style.safetensors", strength_model=0.7, strength_clip=0.7, model=["4", 0], clip=["4", 1],
        ),
        "11": node("CLIPSetLastLayer", stop_at_clip_layer=-2, clip=["10", 1]),
    }  # fmt: skip
    wanted = pipeline(**TEXTS, **SAMPLING, sampler="euler", scheduler="normal", loras={str(lora): 0.7}, clip_skip=2)
    same(bench, made, wanted)
    assert (np.asarray(wanted[0].image) != plain[0]).any()
    same(bench, graph(), pipeline(**TEXTS, **SAMPLING, sampler="euler", scheduler="normal"))


def test_a_controlnet(both):
    bench, pipeline, _, control = both
    steered = {"control_net": ["11", 0], "image": ["10", 0], "strength": 0.7, "start_percent": 0.1, "end_percent": 0.8}
    made = changed(graph(), "3", positive=["12", 0], negative=["12", 1]) | {
        "10": node("LoadImage", image="in.png"), "11": node("ControlNetLoader", control_net_name="edges.safetensors"),
        "12": node("ControlNetApplyAdvanced", positive=["6", 0], negative=["7", 0], **steered),
    }  # fmt: skip
    unit = ControlUnit(control, picture(), weight=0.7, guidance_start=0.1, guidance_end=0.8)
    same(bench, made, pipeline(**TEXTS, **SAMPLING, sampler="euler", scheduler="normal", controls=(unit,)))


@pytest.mark.parametrize(
    ("name", "inputs", "settings"),
    [
        ("RescaleCFG", {"multiplier": 0.7}, {"cfg_rescale": 0.7}), ("CFGZeroStar", {}, {"cfg_zero_star": True}),
        ("Mahiro", {}, {"mahiro": True}), ("TCFG", {}, {"tangential_damping": True}),
        ("Epsilon Scaling", {"scaling_factor": 1.01}, {"epsilon_scaling": 1.01}),
    ],
)  # fmt: skip
def test_patches(both, name, inputs, settings):
    bench, pipeline, *_ = both
    made = changed(graph(), "3", model=["10", 0]) | {"10": node(name, model=["4", 0], **inputs)}
    same(bench, made, pipeline(**TEXTS, **SAMPLING, sampler="euler", scheduler="normal", **settings))


def latent(bench, made, name="3"):
    bench.run({**made, "9": changed(made, "9")["9"]} if name == "3" else made)
    return bench.value(made, name).samples


CUSTOM = {
    "20": node("BasicScheduler", model=["4", 0], scheduler="normal", steps=3, denoise=1.0),
    "21": node("KSamplerSelect", sampler_name="euler"), "22": node("RandomNoise", noise_seed=5),
    "23": node("CFGGuider", model=["4", 0], positive=["6", 0], negative=["7", 0], cfg=4.0),
    "24": node(
        "SamplerCustomAdvanced", noise=["22", 0], guider=["23", 0], sampler=["21", 0], sigmas=["20", 0], latent_image=["5", 0],
    ),
}  # fmt: skip


def test_the_ways_of_sampling_are_one(both):
    bench, *_ = both
    plain = latent(bench, graph())
    custom = changed(graph(), "8", samples=["24", 0]) | CUSTOM
    assert (latent(bench, custom, "24") == plain).all()
    both_outputs = changed(graph(), "8", samples=["24", 1]) | CUSTOM
    bench.run(both_outputs)
    assert np.allclose(bench.value(both_outputs, "24", 1).samples, plain, atol=1e-4)
    shared = {key: value for key, value in graph()["3"]["inputs"].items() if key not in ("seed", "denoise")} | {
        "noise_seed": 5
    }
    first = node(
        "KSamplerAdvanced",
        **shared,
        add_noise="enable",
        start_at_step=0,
        end_at_step=2,
        return_with_leftover_noise="enable",
    )
    second = node(
        "KSamplerAdvanced", **{**shared, "latent_image": ["30", 0]}, add_noise="disable", start_at_step=2, end_at_step=10000,
        return_with_leftover_noise="disable",
    )  # fmt: skip
    halves = changed(graph(), "8", samples=["31", 0]) | {"30": first, "31": second}
    assert np.allclose(latent(bench, halves, "31"), plain, rtol=1e-4, atol=1e-3)


def told(bench, name, **extra):
    """The latent after one step, where the positive text is what a node gives."""
    made = changed(graph(), "3", positive=[name, 0], steps=1, cfg=1.0) | extra
    return latent(bench, made)


def test_texts_that_count_in_places(both):
    bench, *_ = both
    one, other = told(bench, "6"), told(bench, "7")
    half = {
        "40": node("SolidMask", value=1.0, width=64, height=64), "41": node("SolidMask", value=0.0, width=32, height=64),
        "42": node("MaskComposite", destination=["40", 0], source=["41", 0], x=32, y=0, operation="multiply"),
        "43": node("InvertMask", mask=["42", 0]),
        "44": node("ConditioningSetMask", conditioning=["6", 0], mask=["42", 0], strength=1.0, set_cond_area="default"),
        "45": node("ConditioningSetMask", conditioning=["7", 0], mask=["43", 0], strength=1.0, set_cond_area="default"),
        "46": node("ConditioningCombine", conditioning_1=["44", 0], conditioning_2=["45", 0]),
    }  # fmt: skip
    mixed = told(bench, "46", **half)
    assert np.allclose(mixed[..., :4], one[..., :4], atol=1e-4)
    assert np.allclose(mixed[..., 4:], other[..., 4:], atol=1e-4)
    assert not np.allclose(mixed[..., 4:], one[..., 4:], atol=1e-4)
    mean = {"46": node("ConditioningCombine", conditioning_1=["6", 0], conditioning_2=["7", 0])}
    assert np.allclose(told(bench, "46", **mean), (one + other) / 2, atol=1e-4)
    whole = {"46": node("ConditioningSetArea", conditioning=["6", 0], width=64, height=64, x=0, y=0, strength=1.0)}
    assert np.allclose(told(bench, "46", **whole), one, atol=1e-4)
    never = {
        "44": node("ConditioningSetTimestepRange", conditioning=["7", 0], start=0.9, end=1.0),
        "46": node("ConditioningCombine", conditioning_1=["6", 0], conditioning_2=["44", 0]),
    }
    assert np.allclose(told(bench, "46", **never), one, atol=1e-4)
    part = {
        "44": node("ConditioningSetArea", conditioning=["7", 0], width=64, height=64, x=0, y=0, strength=2.0),
        "46": node("ConditioningCombine", conditioning_1=["6", 0], conditioning_2=["44", 0]),
    }
    assert np.allclose(told(bench, "46", **part), (one + 2 * other) / 3, atol=1e-4)


def test_what_is_not_masked_stays(both):
    bench, *_ = both
    masked = {
        "10": node("LoadImage", image="in.png"), "11": node("VAEEncode", pixels=["10", 0], vae=["4", 2]),
        "40": node("SolidMask", value=1.0, width=64, height=64), "41": node("SolidMask", value=0.0, width=32, height=64),
        "42": node("MaskComposite", destination=["40", 0], source=["41", 0], x=0, y=0, operation="multiply"),
        "43": node("SetLatentNoiseMask", samples=["11", 0], mask=["42", 0]),
    }  # fmt: skip
    made = changed(graph(), "3", latent_image=["43", 0]) | masked
    found = latent(bench, made)
    source = bench.value(made, "11").samples
    assert np.allclose(found[..., :3], source[..., :3], rtol=1e-4, atol=1e-3)
    assert np.abs(found[..., 5:] - source[..., 5:]).max() > 0.1


def test_grey_masks(both):
    """What is half masked is mixed once in each step, and not once more at the end."""
    bench, pipeline, *_ = both
    mask = Image.fromarray(np.tile(np.linspace(0, 255, 64).astype(np.uint8), (64, 1)))
    mask.save(bench.files.folders["input"] / "grey.png")
    made = changed(graph(), "3", latent_image=["12", 0]) | {
        "10": node("LoadImage", image="in.png"), "11": node("VAEEncode", pixels=["10", 0], vae=["4", 2]),
        "12": node("SetLatentNoiseMask", samples=["11", 0], mask=["13", 0]),
        "13": node("LoadImageMask", image="grey.png", channel="red"),
    }  # fmt: skip
    masked = {
        "image": picture(),
        "mask": mask,
        "mask_blur": 0,
        "inpainting_fill": "original",
        "denoising_strength": 1.0,
    }
    (wanted,) = pipeline(**TEXTS, **SAMPLING, sampler="euler", scheduler="normal", **masked)
    form = pipeline.model.architecture.latent
    assert (latent(bench, made) == form.to_encoded(wanted.latent[None])).all()


def test_a_graph_ends_within_a_step(both):
    from graphc_server.comfyui.executor import Interrupted

    bench, *_ = both
    with pytest.raises(Interrupted):
        bench.run(changed(graph(), "3", steps=20, seed=99), steps=2)
    same(bench, graph(), both[1](**TEXTS, **SAMPLING, sampler="euler", scheduler="normal"))


def test_models_that_a_graph_does_not_use_are_closed(both):
    bench, *_ = both
    bench.run(graph())
    assert bench.library.models.loads.nbytes
    bench.run(
        {
            "1": node("EmptyImage", width=16, height=16, batch_size=1, color=0),
            "9": node("PreviewImage", images=["1", 0]),
        }
    )
    assert not bench.library.models.loads.nbytes
