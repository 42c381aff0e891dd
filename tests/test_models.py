"""The models of the zoo, exported here by both exporters, against PyTorch.

The full-size ones take minutes and gigabytes: `python benchmarks/accuracy.py` measures those.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from exported_models import exported  # noqa: E402
from zoo import EXAMPLES, EXPORTERS  # noqa: E402

import graphc  # noqa: E402
from graphc.runtime.compare import relative_error  # noqa: E402

SMALL = sorted(name for name, example in EXAMPLES.items() if example.size == "small" or name == "tiny_cnn")
SLOW = {("sdxl_unet", "dynamo"), ("sd21_unet", "dynamo")}
BY_BOTH = {
    "tiny_cnn",
    "bert",
    "sd15_clip_small",
    "sd15_vae_decoder_small",
    "resnet",
    "t5_encoder",
    "unet_transposed",
    "gpt2",
}
"""What is also exported by the older exporter each time; all others are on request."""


def is_thorough(name: str, exporter: str) -> bool:
    """True for what is exported on request alone."""
    return (name, exporter) in SLOW or (exporter != "dynamo" and name not in BY_BOTH)


PAIRS = [
    pytest.param(name, exporter, marks=[pytest.mark.thorough] if is_thorough(name, exporter) else [])
    for name in SMALL
    for exporter in EXPORTERS
    if exporter not in EXAMPLES[name].refusals
]
BOUND = 1e-4
ROUNDING = 1e-6
TIMES_ONNXRUNTIME = 3.0

pytestmark = pytest.mark.torch


def by_onnxruntime(path, inputs):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.parametrize(("name", "exporter"), PAIRS)
def test_a_model_gives_the_numbers_of_pytorch(name, exporter, tmp_path, tmp_path_factory):
    path, inputs, expected = exported(tmp_path_factory, name, exporter)
    assert all(np.isfinite(array).all() for array in expected.values())
    got = graphc.compile(path, tmp_path / "model.gguf", threads=1).run(inputs)
    error, theirs = relative_error(got, expected), relative_error(by_onnxruntime(path, inputs), expected)
    assert error <= BOUND
    assert error <= max(TIMES_ONNXRUNTIME * theirs, ROUNDING), f"onnxruntime: {theirs:.1e}"


def test_a_module_is_compiled_from_pytorch():
    module, inputs = EXAMPLES["tiny_cnn"].build()
    model = graphc.from_torch(module, tuple(inputs.values()), threads=1)
    (name,), (output,) = [each.name for each in model.inputs], [each.name for each in model.outputs]
    with torch.no_grad():
        (example,) = inputs.values()
        expected = module(example).numpy()
        np.testing.assert_allclose(model.run({name: example.numpy()})[output], expected, rtol=1e-5, atol=1e-6)


def test_a_module_keeps_its_training_mode():
    module = torch.nn.Linear(3, 2).train()
    graphc.from_torch(module, (torch.zeros(1, 3),), threads=1)
    assert module.training
