"""LoRA and its relatives on models of diffusers and transformers, by files of several formats: the numbers are PEFT's."""

from __future__ import annotations

import copy
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refitting import same

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
diffusers = pytest.importorskip("diffusers")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import original_layouts as original  # noqa: E402
from lora_files import KINDS, adapted, kohya, merged, old_diffusers, peft_tensors  # noqa: E402
from peft import get_peft_model_state_dict  # noqa: E402
from zoo import EXAMPLES  # noqa: E402

import graphc  # noqa: E402
from graphc.errors import CheckpointError  # noqa: E402

pytestmark = pytest.mark.torch


@dataclass
class Compiled:
    """A model of the zoo, compiled, with inputs and the outputs that they give."""

    module: Any
    model: graphc.Model
    feed: dict[str, np.ndarray]
    before: dict[str, np.ndarray]

    def agrees(self, weights: dict[str, np.ndarray]) -> None:
        """The model computes what it does with these weights, which it then has, and PyTorch too."""
        found = self.model.run(self.feed)
        self.model.unload_lora()
        same(self.model.run(self.feed), self.before)
        module = copy.deepcopy(self.module)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        with torch.no_grad():
            made = module(*(torch.from_numpy(array) for array in self.feed.values()))
        self.model.load_weights(weights)
        fresh = self.model.run(self.feed)
        self.model.load_weights(self.module.state_dict())
        same(self.model.run(self.feed), self.before)
        for name, expected in zip(found, made if isinstance(made, tuple) else (made,), strict=True):
            size = np.abs(expected.numpy()).max()
            assert np.abs(found[name] - self.before[name]).max() > 0.01 * size, "the change is to be seen"
            np.testing.assert_allclose(found[name], fresh[name], rtol=0, atol=1e-5 * size)
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4 * size)


def compiled(name: str) -> Compiled:
    module, inputs = EXAMPLES[name].build()
    model = graphc.from_torch(module, tuple(inputs.values()), threads=1)
    feed = {info.name: tensor.numpy() for info, tensor in zip(model.inputs, inputs.values(), strict=True)}
    return Compiled(module, model, feed, model.run(feed))


@pytest.fixture(scope="module")
def unet() -> Compiled:
    return compiled("sd15_unet_small")


@pytest.fixture(scope="module")
def clip() -> Compiled:
    return compiled("sd15_clip_small")


@pytest.fixture(scope="module")
def flux() -> Compiled:
    return compiled("flux_transformer")


ATTENTION = "to_q|to_k|to_v|to_out.0"
ALL = f"{ATTENTION}|proj_in|proj_out|proj|ff.net.2|conv1|conv2|conv_shortcut|conv|time_emb_proj|linear_1"


def close(model: graphc.Model, weights: dict[str, np.ndarray]) -> None:
    """The changed parameters are as exact as float32 can be."""
    for value in {value for lora in model.loras.values() for value in lora.match.changes}:
        found, expected = model._begun().loras._changed(value), weights[value.parameter]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max(), err_msg=value.parameter)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_peft(unet: Compiled, kind: str, tmp_path: Path) -> None:
    made = adapted(copy.deepcopy(unet.module), kind, ALL)
    made.save_pretrained(tmp_path)
    for source in [tmp_path] if kind in ("rslora", "oft", "oft_exact") else [kohya(made, "lora_unet_"), tmp_path]:
        unet.model.unload_lora()
        found = unet.model.load_lora(source, name=kind)
        assert len(found.parameters) == sum(name.endswith("base_layer.weight") for name, _ in made.named_parameters())
        assert found.unmatched == []
    weights = merged(made)
    close(unet.model, weights)
    unet.agrees(weights)


def test_old_attention_processors(unet: Compiled) -> None:
    made = adapted(copy.deepcopy(unet.module), "lora", r"attn\d.(to_q|to_k|to_v|to_out.0)", rank=3)
    for prefix in ("unet.", ""):
        unet.model.unload_lora()
        assert unet.model.load_lora(old_diffusers(made, prefix), name="old").unmatched == []
    weights = merged(made)
    close(unet.model, weights)
    unet.agrees(weights)


def test_old_text_encoders(clip: Compiled) -> None:
    made = adapted(copy.deepcopy(clip.module), "lora", "q_proj|k_proj|v_proj|out_proj", rank=3)
    plain = peft_tensors(made)
    spellings = (
        lambda name: name.replace("lora_A", "lora_linear_layer.down").replace("lora_B", "lora_linear_layer.up"),
        lambda name: re.sub(r"\.(q|k|v|out)_proj\.lora_([AB])", lambda found: (
            f".to_{found[1]}_lora.{'down' if found[2] == 'A' else 'up'}"), name),
    )  # fmt: skip
    for spelling in spellings:
        clip.model.unload_lora()
        tensors = {f"text_encoder.text_model.{spelling(name)}": tensor for name, tensor in plain.items()}
        assert clip.model.load_lora(tensors, name="old").unmatched == []
    weights = merged(made)
    close(clip.model, weights)
    clip.agrees(weights)


def test_files_of_a_pipeline(unet: Compiled, clip: Compiled, tmp_path: Path) -> None:
    """diffusers' own files: what is for the other component is not said to be unmatched, and alpha is in the header."""
    parts = {
        "unet": adapted(copy.deepcopy(unet.module), "lora", ATTENTION),
        "text_encoder": adapted(copy.deepcopy(clip.module), "lora", "q_proj|v_proj|fc1", seed=1),
    }
    layers = {f"{name}_lora_layers": get_peft_model_state_dict(made) for name, made in parts.items()}
    layers = {
        key: {name.removeprefix("base_model.model."): tensor for name, tensor in state.items()}
        for key, state in layers.items()
    }
    settings = {f"{name}_lora_adapter_metadata": {"r": 4, "lora_alpha": 3, "alpha_pattern": {}} for name in parts}
    diffusers.StableDiffusionPipeline.save_lora_weights(tmp_path, **layers, **settings)
    expected = {name: merged(made) for name, made in parts.items()}
    for each, component, name in ((unet, "denoiser", "unet"), (clip, "text_encoder", "text_encoder")):
        found = each.model.load_lora(tmp_path / "pytorch_lora_weights.safetensors")
        assert (found.name, found.component, found.unmatched) == ("pytorch_lora_weights", component, [])
        close(each.model, expected[name])
        each.agrees(expected[name])


def test_kohyas_files_for_several_components(unet: Compiled, clip: Compiled) -> None:
    text = adapted(copy.deepcopy(clip.module), "lora", "q_proj|fc1", seed=1)
    tensors = {
        **kohya(adapted(copy.deepcopy(unet.module), "lora", ATTENTION), "lora_unet_"),
        **kohya(text, "lora_te_text_model_"),
    }
    weights = merged(text)
    assert unet.model.load_lora(tensors).component == "denoiser"
    unet.model.unload_lora()
    found = clip.model.load_lora(tensors, {"unet": 0.3, "text_encoder": 1})
    assert (found.component, found.strength, found.unmatched) == ("text_encoder", 1.0, [])
    close(clip.model, weights)
    clip.agrees(weights)


def test_the_encoder_that_fits_is_taken(clip: Compiled) -> None:
    """Of two text encoders with the same names, sizes tell which is meant."""
    made = adapted(copy.deepcopy(clip.module), "lora", "q_proj|fc1", seed=1)
    right = kohya(made, "lora_te2_text_model_")
    other = {
        name.replace("te2", "te1"): np.concatenate([array, array], -1) if name.endswith("down.weight") else array
        for name, array in right.items()
    }
    found = clip.model.load_lora({**other, **right}, name="two")
    assert found.component == "text_encoder_2"
    clip.agrees(merged(made))
    with pytest.raises(CheckpointError, match=r"q_proj.*: it is of \[64, 128\], must be \[64, 64\]"):
        clip.model.load_lora(other)


def test_a_transformer_of_diffusers(flux: Compiled, tmp_path: Path) -> None:
    made = adapted(copy.deepcopy(flux.module), "lora", f"{ATTENTION}|add_q_proj|proj_mlp|proj_out|linear|ff.net.2")
    layers = {
        name: torch.from_numpy(tensor * (0.75 if "lora_A" in name else 1))
        for name, tensor in peft_tensors(made).items()
    }
    diffusers.FluxPipeline.save_lora_weights(tmp_path, transformer_lora_layers=layers)
    found = flux.model.load_lora(tmp_path)
    assert found.unmatched == []
    weights = merged(made)
    close(flux.model, weights)
    flux.agrees(weights)


UNET = "model.diffusion_model."
XL = {**original.SDXL, "width": 16, "context": 48, "depths": (0, 2, 3), "middle": 3, "pooled": 88}
LAYOUTS = {
    "sd15_unet_small": original.unet(**{**original.SD1, "width": 16, "context": 48}),
    "sdxl_unet": original.unet(**XL),
    "flux_transformer": original.flux(96, 24, 2, 3, 16, 48, 40),
}
"""Models of the zoo, and the tensors of their authors' code of that size."""

SPELLINGS = {
    "kohya": lambda module: "lora_unet_" + module.replace(".", "_"),
    "dotted": lambda module: "diffusion_model." + module,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name == "sdxl_unet")) for name in LAYOUTS]
)
def test_names_of_original_layouts(name: str) -> None:
    """Changes of tensors that are several of ours, or lie in another order: as if the checkpoint had them."""
    shapes = LAYOUTS[name]
    tensors = {each: array * np.float32(0.2) for each, array in original.filled(shapes, 1).items()}
    each = compiled(name)
    each.model.load_weights({UNET + key: array for key, array in tensors.items()})
    each.before = each.model.run(each.feed)
    modules = [
        key.removesuffix(".weight") for key, shape in shapes.items() if key.endswith(".weight") and len(shape) > 1
    ]
    random = np.random.default_rng(2)
    factors, changed = {}, dict(tensors)
    for module in modules:
        rows, *columns = shapes[f"{module}.weight"]
        down, up = (
            random.standard_normal(shape).astype(np.float32) * np.float32(0.1) for shape in ((4, *columns), (rows, 4))
        )
        factors[module] = down, up.reshape(rows, 4, *[1] * (len(columns) - 1)), np.float32(2)
        change = (up * np.float32(0.7 * 2 / 4)) @ down.reshape(4, -1)
        changed[f"{module}.weight"] = tensors[f"{module}.weight"] + change.reshape(rows, *columns)
    for spelling in SPELLINGS.values():
        named = {spelling(module): each for module, each in factors.items()}
        file = {f"{key}.{what}": array for key, arrays in named.items() for what, array in zip(
            ("lora_down.weight", "lora_up.weight", "alpha"), arrays, strict=True)}  # fmt: skip
        found = each.model.load_lora(file, 0.7)
        assert found.unmatched == []
        made = each.model.run(each.feed)
        each.model.unload_lora()
        same(each.model.run(each.feed), each.before)
        each.model.load_weights({UNET + key: array for key, array in changed.items()})
        for key, expected in each.model.run(each.feed).items():
            size = np.abs(expected).max()
            np.testing.assert_allclose(made[key], expected, rtol=0, atol=1e-5 * size)
            assert np.abs(made[key] - each.before[key]).max() > 0.01 * size
        each.model.load_weights({UNET + key: array for key, array in tensors.items()})


@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
def test_with_embeddings(clip: Compiled, dtype: str, tmp_path: Path) -> None:
    """LoRAs and new tokens come and go in any order, also where the LoRAs are beside the weights."""
    (ids,) = clip.feed.values()
    model = graphc.from_torch(clip.module, (torch.from_numpy(ids),), output=tmp_path / "m.gguf", dtype=dtype, threads=1)
    tokens = {"<new>": np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)}
    tensors = kohya(adapted(copy.deepcopy(clip.module), "lora", "q_proj|fc1|fc2"), "lora_te_text_model_")
    feed, with_tokens = {model.inputs[0].name: ids}, {model.inputs[0].name: ids.copy()}
    with_tokens[model.inputs[0].name][0, 5:7] = 1000, 1001
    before = model.run(feed)
    model.load_lora(tensors, 0.5, "k")
    changed = model.run(feed)
    model.load_embeddings(tokens)
    both = model.run(with_tokens)
    model.save(tmp_path / "saved.gguf")
    same(graphc.load(tmp_path / "saved.gguf", threads=1).run(with_tokens), both)
    model.unload_lora()
    alone = model.run(with_tokens)
    assert all(np.any(array != both[name]) for name, array in alone.items())
    model.load_lora(tensors, 0.1, "k")
    model.set_lora({"k": 0.5})
    same(model.run(with_tokens), both)
    model.unload_embeddings()
    same(model.run(feed), changed)
    model.unload_lora()
    same(model.run(feed), before)
    model.load_embeddings(tokens)
    same(model.run(with_tokens), alone)
    model.load_lora(tensors, 0.5, "k")
    same(model.run(with_tokens), both)
