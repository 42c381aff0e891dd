"""Engines whose convolutions see the other end of a picture beyond its edges, beside PyTorch's circular ones."""

import numpy as np
import pytest

import graphc
from graphc.errors import InputError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def network():
    """Kernels of several sizes, strides and dilations, also of one channel each, and one without pads."""
    torch.manual_seed(0)
    layers = [
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(8, 8, 3, stride=2, padding=1),
        torch.nn.Conv2d(8, 8, 5, padding=2, groups=8), torch.nn.Conv2d(8, 8, 3, padding=1, groups=2),
        torch.nn.Conv2d(8, 6, (1, 3), padding=(0, 1)),
        torch.nn.Upsample(scale_factor=2), torch.nn.Conv2d(6, 4, 3, padding=2, dilation=2), torch.nn.Conv2d(4, 3, 1),
    ]  # fmt: skip
    return torch.nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("circular") / "network.gguf"
    sizes = {0: "batch", 2: "height", 3: "width"}
    graphc.from_torch(
        network(), (torch.randn(2, 3, 20, 12),), path, dynamic_shapes=(sizes,), output_names=["y"]
    ).close()
    return path


def expected(x, axes):
    """The network with edges of zeros along the other axes."""
    for layer in network():
        if isinstance(layer, torch.nn.Conv2d):
            for axis, mode in (("x", "circular"), ("y", "circular")):
                pad = layer.padding[0 if axis == "y" else 1]
                sides = (0, 0, pad, pad) if axis == "y" else (pad, pad, 0, 0)
                x = torch.nn.functional.pad(x, sides, mode=mode if axis in axes else "constant")
            layer.padding = (0, 0)
        x = layer(x)
    return x.detach().numpy()


@pytest.mark.parametrize("axes", ["x", "y", "xy", ("y", "x", "y")])
@pytest.mark.parametrize("sizes", [(1, 16, 24), (3, 9, 5), (1, 4, 4)])
def test_edges_are_the_other_end(engine, axes, sizes):
    model = graphc.load(engine, circular=axes, threads=2)
    batch, *sides = sizes
    x = torch.randn(batch, 3, *sides, generator=torch.Generator().manual_seed(1))
    (name,) = (each.name for each in model.inputs)
    (found,) = model.run({name: x.numpy()}).values()
    wanted = expected(x, axes)
    assert np.abs(found - wanted).max() < 1e-5 * max(1, np.abs(wanted).max())
    rolled = model.run({name: np.roll(x.numpy(), (4 * ("y" in axes), 2 * ("x" in axes)), (2, 3))})
    if not any(side % 2 for side in sides):
        moved = np.roll(found, (4 * ("y" in axes), 2 * ("x" in axes)), (2, 3))
        assert np.abs(next(iter(rolled.values())) - moved).max() < 1e-5


def test_other_weights_and_saved_engines_are_circular_too(engine, tmp_path):
    module = network()
    weights = {name: 2 * array for name, array in module.state_dict().items()}
    model = graphc.load(engine, weights=weights, circular="xy", threads=1)
    model.save(tmp_path / "saved.gguf")
    feed = {model.inputs[0].name: np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    (found,), (again,) = model.run(feed).values(), graphc.load(tmp_path / "saved.gguf", threads=1).run(feed).values()
    assert (found == again).all()
    (plain,) = graphc.load(engine, weights=weights, threads=1).run(feed).values()
    assert np.abs(found - plain).max() > 0.01
    model.load_weights({name: array / 2 for name, array in weights.items()})
    (back,) = model.run(feed).values()
    assert (back == next(iter(graphc.load(engine, circular="xy", threads=1).run(feed).values()))).all()


def test_what_cannot_be_circular_is_refused(engine, tmp_path):
    with pytest.raises(InputError, match="'z' is not an axis of pictures"):
        graphc.load(engine, circular="xz")
    graphc.from_torch(torch.nn.Linear(4, 4), (torch.randn(2, 4),), tmp_path / "flat.gguf").close()
    with pytest.raises(InputError, match="flat has no convolution that looks beyond the edges"):
        graphc.load(tmp_path / "flat.gguf", circular="x")
