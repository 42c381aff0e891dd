"""Engines that take original checkpoints compute what diffusers computes with them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import original_layouts as original
import pytest
from original_layouts import Shapes, prefixed
from refitting import same

torch = pytest.importorskip("torch")
single_file = pytest.importorskip("diffusers.loaders.single_file_utils")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from export import export  # noqa: E402
from safetensors import torch as torch_files  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from zoo import EXAMPLES  # noqa: E402

import graphc  # noqa: E402
from graphc.compiler import refit  # noqa: E402
from graphc.errors import CheckpointError  # noqa: E402

pytestmark = pytest.mark.torch

UNET, FIRST, CLIP = "model.diffusion_model.", "first_stage_model.", "cond_stage_model.transformer."
SMALL = {"width": 16, "context": 48}
SD1 = {
    **prefixed(UNET, original.unet(**{**original.SD1, **SMALL})),
    **prefixed(FIRST, original.vae(16)),
    **prefixed(CLIP, original.clip(64, 2, 1000, 77)),
    "model_ema.decay": (),
    "betas": (1000,),
}
XL = {**original.SDXL, **SMALL, "depths": (0, 2, 3), "middle": 3, "pooled": 88}


def filled(shapes: Shapes, seed: int) -> dict[str, np.ndarray]:
    """Numbers of a size that keeps what they are multiplied with as large as it is."""
    found = original.filled(shapes, seed)
    return {
        name: np.asarray(array / np.float32(prod(array.shape[1:]) ** 0.5 if array.ndim > 1 else 8))
        for name, array in found.items()
    }


def narrow(converter: Any) -> Any:
    """A converter of diffusers for a width of 96, where it has the published one."""
    constants = tuple(96 if each == 3072 else each for each in converter.__code__.co_consts)
    return FunctionType(converter.__code__.replace(co_consts=constants), converter.__globals__)


def unet_of(given: Any) -> Any:
    return single_file.convert_ldm_unet_checkpoint(given, {"layers_per_block": 2, "addition_embed_type": "text_time"})


def sd1_unet(given: Any) -> Any:
    return single_file.convert_ldm_unet_checkpoint(given, {"layers_per_block": 2})


def decoder(given: Any) -> Any:
    four = range(4)
    return single_file.convert_ldm_vae_checkpoint(given, {"down_block_types": four, "up_block_types": four})


def clip(given: Any) -> Any:
    found = single_file.convert_ldm_clip_checkpoint(given)
    return {name.removeprefix("text_model."): tensor for name, tensor in found.items()}


CASES: dict[str, tuple[Shapes, Any]] = {
    "sd15_unet_small": (SD1, sd1_unet),
    "sd15_vae_decoder_small": (SD1, decoder),
    "sd15_clip_small": (SD1, clip),
    "sdxl_unet": (prefixed(UNET, original.unet(**XL)), unet_of),
    "sd3_transformer": (
        original.sd3(3, 16, 16, 48, 40, 24, normed=True, dual=1, heads=4),
        single_file.convert_sd3_transformer_checkpoint_to_diffusers,
    ),
    "flux_transformer": (
        prefixed(UNET, original.flux(96, 24, 2, 3, 16, 48, 40)),
        narrow(single_file.convert_flux_transformer_checkpoint_to_diffusers),
    ),
    "chroma_transformer": (
        original.chroma(96, 24, 2, 3, 16, 48, 80, 2, 16),
        narrow(single_file.convert_chroma_transformer_checkpoint_to_diffusers),
    ),
}
"""Models of the zoo, the tensors of a checkpoint of that size, and what diffusers makes of them."""


def module_of(name: str, tensors: Mapping[str, np.ndarray]) -> tuple[Any, dict[str, Any]]:
    """A model of the zoo with the weights that diffusers finds in a checkpoint."""
    module, inputs = EXAMPLES[name].build()
    found = CASES[name][1]({each: torch.from_numpy(array.astype(np.float32)) for each, array in tensors.items()})
    names = module.state_dict().keys()
    module.load_state_dict({each: tensor for each, tensor in found.items() if each in names})
    return module, inputs


def outputs(module: Any, inputs: Mapping[str, Any]) -> list[np.ndarray]:
    with torch.no_grad():
        found = module(*inputs.values())
    return [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]


SLOW = {name: [pytest.mark.thorough] for name in ("sdxl_unet", "chroma_transformer", "sd3_transformer")}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, [])) for name in CASES])
def test_a_model_takes_an_original_checkpoint(name: str, tmp_path: Path) -> None:
    shapes = CASES[name][0]
    first = filled(shapes, 1)
    exported = module_of(name, first)
    path = export(replace(EXAMPLES[name], build=lambda: exported), "dynamo", tmp_path / "first")
    save_file(first, tmp_path / "first.safetensors")
    model = graphc.compile(path, tmp_path / "m.gguf", names=tmp_path / "first.safetensors", threads=1)
    feed = {key: tensor.numpy() for key, tensor in exported[1].items() if key in {each.name for each in model.inputs}}
    before = model.run(feed)
    for dtype in (np.float32, np.float16):
        other = {each: array.astype(dtype) for each, array in filled(shapes, 2).items()}
        save_file(other, tmp_path / "other.safetensors")
        model.load_weights(tmp_path / "other.safetensors")
        made = model.run(feed)
        module, inputs = module_of(name, other)
        for array, expected in zip(made.values(), outputs(module, inputs), strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        assert all(np.any(array != before[each]) for each, array in made.items())
        model.load_weights(module.state_dict())
        same(model.run(feed), made)
    refit(tmp_path / "m.gguf", tmp_path / "other.safetensors", tmp_path / "other.gguf")
    same(graphc.load(tmp_path / "other.gguf", threads=1).run(feed), made)


@pytest.fixture(scope="module")
def text_encoder(tmp_path_factory: pytest.TempPathFactory) -> graphc.Model:
    """A compiled text encoder, as pipelines of Stable Diffusion 1 have it."""
    folder = tmp_path_factory.mktemp("text")
    first = filled(SD1, 1)
    exported = module_of("sd15_clip_small", first)
    path = export(replace(EXAMPLES["sd15_clip_small"], build=lambda: exported), "dynamo", folder)
    return graphc.compile(path, names=first, threads=1)


IDS = {"input_ids": np.arange(77, dtype=np.int64)[None]}


def in_folders(folder: Path, given: Mapping[str, np.ndarray], ending: str = "") -> None:
    """The components in a folder each, as diffusers writes them."""
    places = {"unet": (sd1_unet, "diffusion_pytorch_model"), "vae": (decoder, "diffusion_pytorch_model"), "text_encoder": (
        lambda tensors: single_file.convert_ldm_clip_checkpoint(tensors), "model")}  # fmt: skip
    for component, (convert, name) in places.items():
        (folder / component).mkdir(parents=True, exist_ok=True)
        made = convert({each: torch.from_numpy(array) for each, array in given.items()})
        arrays = {each: tensor.numpy() for each, tensor in made.items()}
        save_file(arrays, folder / component / f"{name}{ending}.safetensors")


def test_a_folder_of_diffusers(text_encoder: graphc.Model, tmp_path: Path) -> None:
    other = filled(SD1, 3)
    text_encoder.load_weights(other)
    expected = text_encoder.run(IDS)
    in_folders(tmp_path, filled(SD1, 4), ".fp16")
    text_encoder.load_weights(tmp_path)
    assert any(np.any(array != expected[name]) for name, array in text_encoder.run(IDS).items())
    in_folders(tmp_path, other)
    for place in (tmp_path, tmp_path / "text_encoder"):
        text_encoder.load_weights(filled(SD1, 5))
        text_encoder.load_weights(place)
        same(text_encoder.run(IDS), expected)


def without(prefix: str) -> dict[str, np.ndarray]:
    return {name: array for name, array in filled(SD1, 6).items() if not name.startswith(prefix)}


MISFITS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "another architecture": (lambda: filled(original.flux(96, 24, 1, 1, 16, 48, 40), 6), {}, (
        r"it is a Flux checkpoint \(transformer\), and nothing in it is the model: "
        r"of the model's 36 parameters \(.*, …\) it has 0 at most"
    )),
    "no such component": (
        lambda: filled(SD1, 6), {"component": "transformer"}, "no component 'transformer': it is a .* 1 checkpoint with unet, "
    ),
    "a component that is not the model": (
        lambda: filled(SD1, 6), {"component": "vae"}, r"checkpoint \(Stable Diffusion 1: vae\) does not fit .*\n  it has none"
    ),
    "an unknown layout": (lambda: {"a.weight": np.ones(3)}, {"component": "unet"}, "'unet': it is in no layout that is known"),
    "a parameter too few": (
        lambda: without(f"{CLIP}text_model.final_layer_norm.b"), {},
        r"\(Stable Diffusion 1: text_encoder\) does not fit the model:\n  final_layer_norm.bias: missing \(float32\[64\]\)$"
    ),
    "a parameter too many": (
        lambda: {**filled(SD1, 6), f"{CLIP}text_model.extra": np.ones(3, np.float32)}, {},
        rf":\n  {CLIP}text_model.extra: the model has no such parameter\n"
    ),
    "two that fit alike": (
        lambda: {
            **filled(prefixed(UNET, original.sd3(1, 4, 2, 6, 5, 3)), 6),
            **filled(prefixed("text_encoders.clip_l.transformer.", original.clip(64, 2, 1000, 77)), 6),
            **filled(prefixed("text_encoders.clip_g.transformer.", original.clip(64, 2, 1000, 77)), 6),
        }, {}, "text_encoder and text_encoder_2 of the checkpoint fit the model alike",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_said_and_changes_nothing(case: str, text_encoder: graphc.Model) -> None:
    make, settings, message = MISFITS[case]
    text_encoder.load_weights(filled(SD1, 3))
    expected = text_encoder.run(IDS)
    with pytest.raises(CheckpointError, match=message):
        text_encoder.load_weights(make(), **settings)
    same(text_encoder.run(IDS), expected)


def test_tensors_that_cannot_be_cut_in_parts_are_named(text_encoder: graphc.Model) -> None:
    shapes = prefixed("cond_stage_model.model.", original.openclip(64, 2, 1000, 77))
    name = "cond_stage_model.model.transformer.resblocks.1.attn.in_proj_bias"
    given = filled({**prefixed(UNET, original.unet(**{**original.SD2, **SMALL})), **shapes, name: (191,)}, 6)
    with pytest.raises(CheckpointError, match=rf"q_proj.bias: {name}: \[191\] does not have rows of 3 equal parts"):
        text_encoder.load_weights(given)
    given = filled({**prefixed(UNET, original.unet(**{**original.SD2, **SMALL})), **shapes}, 6)
    text_encoder.load_weights(given)
    queries = {
        each.name: array for each, array in zip(text_encoder.program.weights, text_encoder.executor.arrays, strict=True)
    }
    expected = given[name.replace("bias", "weight")][:64]
    assert any(np.array_equal(array, expected) for array in queries.values())


def test_inspect_shows_what_a_checkpoint_is(graphc_command: Any, tmp_path: Path) -> None:
    given = {
        name: array.astype(np.float16 if name.startswith(UNET) else np.float32)
        for name, array in filled(SD1, 1).items()
    }
    save_file(given, "sd.safetensors")
    shown = graphc_command("inspect", "sd.safetensors").out
    assert shown.startswith("sd.safetensors: Stable Diffusion 1\n")
    assert re.search(r"\nunet +686 +2,182,964 +4\.2 MiB +float16\nvae +248 .* float32\ntext_encoder +36 ", shown)
    assert re.search(r"\n\(no component\) +2 +1,001 ", shown)
    in_folders(tmp_path / "folder", filled(SD1, 1))
    found = json.loads(graphc_command("inspect", "folder", "--json").out)
    assert [each["component"] for each in found["components"]] == ["unet", "vae", "text_encoder"]
    kinds = {
        "unet": "Stable Diffusion 2 or Stable Diffusion 1, as diffusers names it",
        "vae": "autoencoder of diffusers",
    }
    for folder, kind in {**kinds, "text_encoder": "CLIP"}.items():
        shown = graphc_command("inspect", f"folder/{folder}").out
        assert shown.startswith(f"folder/{folder}: {kind}\n")
        assert len(shown.splitlines()) == 5
    save_file({"x": np.ones(3, np.float32)}, "x.safetensors")
    assert graphc_command("inspect", "x.safetensors").out.startswith("x.safetensors: of no known architecture\n")


def test_weights_and_component_of_the_command_line(graphc_command: Any, text_encoder: graphc.Model) -> None:
    text_encoder.save("text.gguf")
    save_file(filled(SD1, 7), "sd.safetensors")
    done = graphc_command("refit", "text.gguf", "sd.safetensors", "-o", "other.gguf")
    assert "taken from the checkpoint (Stable Diffusion 1: text_encoder)" in done.err
    np.save("ids.npy", IDS["input_ids"])
    run = ("--input", "input_ids=ids.npy", "--threads", "1")
    expected = graphc_command("run", "other.gguf", *run).out
    assert graphc_command("run", "text.gguf", *run).out != expected
    assert graphc_command("run", "text.gguf", *run, "--weights", "sd.safetensors").out == expected
    done = graphc_command("run", "text.gguf", *run, "--weights", "sd.safetensors", "--component", "vae")
    assert done.status == 1
    assert "the checkpoint (Stable Diffusion 1: vae) does not fit the model" in done.err


def test_eight_bits_are_widened(text_encoder: graphc.Model, tmp_path: Path) -> None:
    numbers = {name: torch.from_numpy(array).to(torch.float8_e4m3fn) for name, array in filled(SD1, 8).items()}
    torch_files.save_file(numbers, tmp_path / "m.safetensors")
    text_encoder.load_weights(tmp_path / "m.safetensors")
    found = text_encoder.run(IDS)
    text_encoder.load_weights({name: tensor.float().numpy() for name, tensor in numbers.items()})
    same(text_encoder.run(IDS), found)
    torch_files.save_file(
        {name: tensor.to(torch.complex64) for name, tensor in numbers.items()}, tmp_path / "m.safetensors"
    )
    with pytest.raises(
        CheckpointError, match=r"1: text_encoder\) does not fit the model:\n.*its type C64 is not supported"
    ):
        text_encoder.load_weights(tmp_path / "m.safetensors")


@pytest.mark.parametrize("kind", ["scale_weight", "weight_scale"])
@pytest.mark.parametrize("shape", [(), (1,), (None,), (None, 1)])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_scaled_eight_bits(
    text_encoder: graphc.Model, tmp_path: Path, kind: str, shape: tuple[int | None, ...], dtype: torch.dtype
) -> None:
    written, expected = {}, {}
    for name, array in filled(SD1, 8).items():
        tensor = torch.from_numpy(array)
        written[name], expected[name] = tensor, array
        if name.endswith(("proj.weight", "fc1.weight", "fc2.weight")):
            scale = torch.rand([size or len(tensor) for size in shape]) * 0.01 + 0.01
            over = scale.reshape(-1, 1)
            narrow = (tensor / over).to(dtype)
            module = name.removesuffix("weight")
            written |= {name: narrow, f"{module}{kind}": scale, f"{module}scale_input": torch.ones(())}
            expected[name] = (narrow.float() * over).numpy()
    written["scaled_fp8"] = torch.zeros(0, dtype=dtype)
    torch_files.save_file(written, tmp_path / "m.safetensors")
    text_encoder.load_weights(tmp_path / "m.safetensors")
    found = text_encoder.run(IDS)
    text_encoder.load_weights(expected)
    same(text_encoder.run(IDS), found)


def test_scales_that_fit_no_tensor(text_encoder: graphc.Model, tmp_path: Path) -> None:
    given = filled(SD1, 8)
    text_encoder.load_weights(given)
    before = text_encoder.run(IDS)
    module = f"{CLIP}text_model.encoder.layers.0.mlp.fc1"
    for narrow, scale in (
        (torch.float8_e4m3fn, torch.ones(3)),
        (torch.float8_e4m3fn, torch.ones(4, 8)),
        (torch.int8, torch.ones(())),
        (torch.float8_e4m3fn, torch.ones((), dtype=torch.float8_e4m3fn)),
    ):
        tensors = {name: torch.from_numpy(array) for name, array in given.items()}
        tensors |= {f"{module}.weight": tensors[f"{module}.weight"].to(narrow), f"{module}.weight_scale": scale}
        torch_files.save_file(tensors, tmp_path / "m.safetensors")
        for strict in (True, False):
            with pytest.raises(
                CheckpointError, match=r"fc1\.weight: it is scaled in a way that is not supported: .* by "
            ):
                text_encoder.load_weights(tmp_path / "m.safetensors", strict=strict)
        same(text_encoder.run(IDS), before)


def test_shards_in_the_folder_of_a_component(text_encoder: graphc.Model, tmp_path: Path) -> None:
    given = filled(SD1, 9)
    text_encoder.load_weights(given)
    expected = text_encoder.run(IDS)
    arrays = {name.removeprefix(CLIP): array for name, array in given.items() if name.startswith(CLIP)}
    (tmp_path / "text_encoder").mkdir()
    names = sorted(arrays)
    files = {name: f"model.fp16-0000{1 + place % 2}-of-00002.safetensors" for place, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: arrays[name] for name in names if files[name] == file}, tmp_path / "text_encoder" / file)
    (tmp_path / "text_encoder/model.safetensors.index.fp16.json").write_text(json.dumps({"weight_map": files}))
    text_encoder.load_weights(filled(SD1, 5))
    text_encoder.load_weights(tmp_path)
    same(text_encoder.run(IDS), expected)


def test_a_component_may_be_named_for_its_own_file(text_encoder: graphc.Model) -> None:
    arrays = {name.removeprefix(CLIP): array for name, array in filled(SD1, 9).items() if name.startswith(CLIP)}
    text_encoder.load_weights(arrays, component="text_encoder")
    expected = text_encoder.run(IDS)
    text_encoder.load_weights(sd1_unet_and(arrays))
    same(text_encoder.run(IDS), expected)
    unet = {
        name: tensor.numpy()
        for name, tensor in sd1_unet({key: torch.from_numpy(each) for key, each in filled(SD1, 9).items()}).items()
    }
    with pytest.raises(
        CheckpointError, match=r"\(names of diffusers: unet\) does not fit the model:\n  it has none of"
    ):
        text_encoder.load_weights(unet, component="unet")
    with pytest.raises(CheckpointError, match="no component 'vae': it is in no layout that is known"):
        text_encoder.load_weights(unet, component="vae")


def sd1_unet_and(encoder: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A file of Stable Diffusion 1 in which the text encoder lacks its outer module, as in a few."""
    bare = {f"{CLIP}{name.removeprefix('text_model.')}": array for name, array in encoder.items()}
    return {**{name: array for name, array in filled(SD1, 1).items() if not name.startswith(CLIP)}, **bare}


def test_a_file_of_training(text_encoder: graphc.Model, tmp_path: Path) -> None:
    given = filled(SD1, 11)
    text_encoder.load_weights(given)
    expected = text_encoder.run(IDS)
    state = {name: torch.from_numpy(array) for name, array in given.items()}
    state["cond_stage_model.transformer.text_model.embeddings.position_ids"] = torch.arange(77)[None]
    torch.save(
        {"state_dict": state, "global_step": 470000, "callbacks": {Path: {"best": torch.ones(())}}}, tmp_path / "m.ckpt"
    )
    text_encoder.load_weights(filled(SD1, 5))
    text_encoder.load_weights(tmp_path / "m.ckpt")
    same(text_encoder.run(IDS), expected)
