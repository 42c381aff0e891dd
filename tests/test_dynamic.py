"""Models of the zoo with free axes, exported here by both exporters and compiled once, against PyTorch at several sizes.

dynamo takes minutes for the U-Nets and transformers of images: those are marked thorough.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from export import export  # noqa: E402
from zoo import EXAMPLES  # noqa: E402

import graphc  # noqa: E402
from graphc.errors import InputError  # noqa: E402

BOUND = 3e-5
UNET = [(1, 16, 16, 77), (2, 16, 24, 5), (4, 8, 8, 1)]
LATENTS = [(1, 8, 8), (2, 8, 12), (1, 5, 9)]
TEXTS = [(1, 77), (2, 5), (4, 1)]
CACHES = [(1, 3, 5), (2, 1, 16), (1, 7, 1), (2, 4, 0)]
NAMES = {4: ("batch", "height", "width", "tokens"), 3: ("batch", "height", "width"), 2: ("batch", "tokens")}
SIZES = {
    "sd15_unet_small": UNET,
    "sd21_unet": UNET,
    "sdxl_unet": UNET,
    "sd3_transformer": [(1, 16, 16, 20), (2, 8, 24, 5)],
    "sd15_vae_encoder_small": [(1, 64, 64), (2, 64, 96), (1, 40, 72)],
    "sd15_vae_decoder_small": LATENTS,
    "taesd_decoder": LATENTS,
    "unet_transposed": [(1, 32, 32), (2, 64, 40)],
    "resnet": [(1, 64, 64), (2, 96, 52)],
    "sd15_clip_small": TEXTS,
    "t5_encoder": TEXTS,
    "bert": TEXTS,
    "gpt2": TEXTS,
    "llama": TEXTS,
}
BY_NAME = {
    **{model: [dict(zip(NAMES[len(size)], size, strict=True)) for size in sizes] for model, sizes in SIZES.items()},
    **{key: [{"batch": b, "tokens": n, "past": p} for b, n, p in CACHES] for key in ("gpt2_cached", "llama_cached")},
    "flux_transformer": [{"batch": b, "patches": p, "tokens": n} for b, p, n in ((1, 48, 20), (2, 63, 5), (1, 16, 1))],
    "wav2vec2": [{"batch": b, "samples": n} for b, n in ((1, 4000), (2, 5001), (1, 777))],
    "whisper_encoder_short": [{"batch": b, "frames": n} for b, n in ((1, 200), (2, 77), (1, 2))],
}  # fmt: skip
QUICK_BY_DYNAMO = {"sd15_vae_decoder_small", "unet_transposed", "sd15_clip_small", "llama_cached"}

pytestmark = pytest.mark.torch


def cases():
    for name in BY_NAME:
        for exporter in ("torchscript", "dynamo"):
            if exporter not in {**EXAMPLES[name].refusals, **EXAMPLES[name].static}:
                slow = exporter == "dynamo" and name not in QUICK_BY_DYNAMO
                yield pytest.param(name, exporter, marks=[pytest.mark.thorough] if slow else [])


def compiled(name, exporter, folder):
    path = export(EXAMPLES[name], exporter, folder, dynamic=True)
    dims = {"past": "0.."} if name.endswith("_cached") else None
    return graphc.compile(path, folder / "model.gguf", threads=1, dims=dims)


def by_torch(module, inputs, names):
    with torch.no_grad():
        outputs = module(*inputs.values())
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
    return {name: output.numpy() for name, output in zip(names, outputs, strict=True)}


@pytest.mark.parametrize(("name", "exporter"), list(cases()))
def test_one_engine_gives_the_numbers_of_pytorch_at_every_size(name, exporter, tmp_path):
    example = EXAMPLES[name]
    model = compiled(name, exporter, tmp_path)
    module, _ = example.build()
    for sizes in BY_NAME[name]:
        inputs = example.inputs(sizes)
        got = model.run({key: tensor.numpy() for key, tensor in inputs.items()})
        for output, expected in by_torch(module, inputs, example.outputs).items():
            assert got[output].shape == expected.shape
            error = np.abs(got[output] - expected).max(initial=0) / np.abs(expected).max(initial=1e-30)
            assert error <= BOUND, f"{output} at {sizes}"


def test_a_unet_exported_at_an_odd_size_takes_every_size(tmp_path):
    """The module looks at its example: at sizes that do not halve evenly it resizes to the sizes of its skips, which is right
    for all; at others it doubles, which is right for multiples of 8."""
    example = EXAMPLES["sd15_unet_small"]
    module, _ = example.build()
    inputs = example.inputs({"batch": 1, "height": 17, "width": 13, "tokens": 77})
    axes = {key: dict(names) for key, names in example.dynamic.items()}
    axes["out_sample"] = axes["sample"]
    torch.onnx.export(
        module, tuple(inputs.values()), tmp_path / "odd.onnx", dynamo=False, opset_version=17,
        input_names=list(inputs), output_names=["out_sample"], dynamic_axes=axes,
    )  # fmt: skip
    model = graphc.compile(tmp_path / "odd.onnx", threads=2)
    for batch, height, width in ((1, 17, 13), (2, 16, 24), (1, 65, 49), (1, 8, 8)):
        inputs = example.inputs({"batch": batch, "height": height, "width": width, "tokens": 9})
        got = model.run({key: tensor.numpy() for key, tensor in inputs.items()})
        (expected,) = by_torch(module, inputs, ["out_sample"]).values()
        assert np.abs(got["out_sample"] - expected).max() <= BOUND * np.abs(expected).max()


def test_a_loop_of_64_tokens_is_the_loop_of_pytorch(tmp_path):
    example = EXAMPLES["llama_cached"]
    model = compiled("llama_cached", "torchscript", tmp_path)
    module, _ = example.build()
    prompt = example.inputs({"batch": 1, "tokens": 5, "past": 0})

    def theirs(inputs):
        tensors = {key: torch.from_numpy(array) for key, array in inputs.items()}
        return by_torch(module, tensors, example.outputs)

    def generate(step):
        inputs, tokens = {key: tensor.numpy() for key, tensor in prompt.items()}, []
        for _ in range(64):
            outputs = step(inputs)
            tokens.append(int(outputs["logits"][0, -1].argmax()))
            inputs = {f"past_{key}": array for key, array in outputs.items() if key != "logits"}
            seen = next(iter(inputs.values())).shape[2]
            inputs = {
                "input_ids": np.array([tokens[-1:]]),
                "attention_mask": np.ones((1, seen + 1), np.int64),
                **inputs,
            }
        return tokens

    expected = generate(theirs)
    assert len(set(expected)) > 8
    assert generate(model.run) == expected


def test_a_wrong_size_is_refused_in_the_models_words(tmp_path):
    example = EXAMPLES["sd15_unet_small"]
    path = export(example, "torchscript", tmp_path, dynamic=True)
    model = graphc.compile(path, threads=1, dims={"tokens": 77, "batch": "1..2"})
    inputs = {key: tensor.numpy() for key, tensor in example.inputs({"height": 20}).items()}
    with pytest.raises(InputError, match=r"sample: axis 2 has size 20, must be a multiple of 8 \(height\)"):
        model.run(inputs)
    inputs = {key: tensor.numpy() for key, tensor in example.inputs({"batch": 3}).items()}
    with pytest.raises(InputError, match=r"sample: axis 0 has size 3, must be at most 2 \(batch\)"):
        model.run(inputs)
