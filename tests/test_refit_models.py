"""Models of the zoo, exported with two sets of weights: the engine of the first, refitted, is that of the second."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from export import export  # noqa: E402
from zoo import EXAMPLES, EXPORTERS  # noqa: E402
from zoo.build import randomize  # noqa: E402

import graphc  # noqa: E402
from graphc.compiler import refit  # noqa: E402

NAMES = ("sd15_unet_small", "sd15_vae_decoder_small", "sd15_clip_small", "bert")
pytestmark = pytest.mark.torch


def reseeded(name):
    """The example with other weights, and those."""
    module, inputs = EXAMPLES[name].build()
    randomize(module, seed=5)
    return replace(EXAMPLES[name], build=lambda: (module, inputs))


def cases():
    for name in NAMES:
        for exporter in EXPORTERS:
            slow = (name, exporter) == ("sd15_unet_small", "dynamo")
            yield pytest.param(name, exporter, marks=[pytest.mark.thorough] * slow)


@pytest.mark.parametrize(("name", "exporter"), cases())
def test_an_engine_with_other_weights_is_that_of_the_other_model(name, exporter, tmp_path):
    engines = {}
    for folder, each in (("first", EXAMPLES[name]), ("other", reseeded(name))):
        path = export(each, exporter, tmp_path / folder)
        engines[folder] = tmp_path / folder / "model.gguf"
        state = each.build()[
            0
        ].state_dict()  # dynamo's optimizer takes rows of tables of positions, and loses their names
        graphc.compile(path, engines[folder], names=state, threads=1).close()
    torch.save(state, tmp_path / "checkpoint.pt")
    refit(engines["first"], tmp_path / "checkpoint.pt", tmp_path / "refitted.gguf")
    assert (tmp_path / "refitted.gguf").read_bytes() == engines["other"].read_bytes()
    inputs, expected = dict(np.load(tmp_path / "other/inputs.npz")), dict(np.load(tmp_path / "other/outputs.npz"))
    loaded = graphc.load(engines["first"], threads=1)
    loaded.run(inputs)
    loaded.load_weights(state)
    for output, array in loaded.run(inputs).items():
        np.testing.assert_allclose(array, expected[output], rtol=1e-4, atol=1e-4 * np.abs(expected[output]).max())


def test_a_module_keeps_the_names_of_its_batch_norms(tmp_path):
    """`from_torch` exports without the exporter's own folding."""
    first, inputs = EXAMPLES["resnet"].build()
    model = graphc.from_torch(first, tuple(inputs.values()), threads=1)
    (name,) = [each.name for each in model.inputs]
    (array,) = [tensor.numpy() for tensor in inputs.values()]
    other = reseeded("resnet").build()[0]
    expected = graphc.from_torch(other, tuple(inputs.values()), threads=1).run({name: array})
    model.load_weights(other.state_dict())
    for output, found in model.run({name: array}).items():
        assert found.tobytes() == expected[output].tobytes()
