"""Convolutions of volumes: by our own code, by ggml, and what a composite of either says it computes."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc.ir.types import F32, TensorType
from graphc.ops.conv import Conv
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.lowering.compose import composed
from graphc.targets.ggml.program.program import Output, Program
from graphc.targets.ggml.run.executor import Executor

RANDOM = np.random.default_rng(3)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F32)


class Volumes:
    """A convolution, perhaps plus something else and a ReLU, and what is computed of it."""

    def __init__(self, op: Conv, image: tuple[int, ...], kernel: tuple[int, ...], added: bool = False) -> None:
        self.op, self.arrays = op, (drawn(*image), drawn(*kernel) / np.float32(3), drawn(kernel[0]))
        types = [TensorType(F32, each.shape) for each in self.arrays]
        (self.result,) = op.infer(*types)
        self.program = Program("volumes")
        b = Builder(self.program)
        x = self.program.add_input("x", F32, image, "F32")
        weights = [self.program.add_weight(f"w{i}", F32, each.shape) for i, each in enumerate(self.arrays[1:])]
        b.types, b.result = types, self.result
        y = op.to_ggml(b, x, *weights)
        self.inputs, self.added = {"x": self.arrays[0]}, added
        self.own: set[str] = set()
        """The functions of our own that computed the last run."""
        if added:
            other = self.program.add_input("other", F32, self.result.shape, "F32")
            self.inputs["other"] = drawn(*self.result.shape)
            y = b.unary("ggml_relu", b.binary("ggml_add", y, other))
        self.program.outputs.append(Output("y", F32, self.result.shape, y))

    def run(self, threads: int = 2, own: bool = True, **inputs: np.ndarray) -> np.ndarray:
        executor = Executor(self.program, list(self.arrays[1:]), threads=threads)
        executor.uses_own = own
        executor.choices = b""
        (found,) = executor.run({**self.inputs, **inputs}, {})
        (graph,) = executor.graphs
        self.own = set(graph.own.values())
        return found

    @property
    def expected(self) -> np.ndarray:
        (found,) = self.op.eval(*self.arrays)
        return np.maximum(found + self.inputs["other"], 0) if self.added else found


def conv(strides=(1, 1, 1), dilations=(1, 1, 1), pads=(1, 1, 1), groups: int = 1, behind=None) -> Conv:
    return Conv(strides, dilations, pads, behind or pads, groups)


CASES = {
    "winograd": (conv(), (2, 16, 5, 9, 11), (20, 16, 3, 3, 3)),
    "winograd of large tiles": (conv(), (1, 32, 4, 26, 30), (32, 32, 3, 3, 3)),
    "winograd of a plane at a time": (conv(pads=(0, 1, 1)), (1, 40, 6, 14, 14), (40, 40, 1, 3, 3)),
    "winograd with other planes": (conv((2, 1, 1), (3, 1, 1), (4, 1, 0)), (2, 16, 9, 10, 12), (24, 16, 2, 3, 3)),
    "winograd of planes that meet nothing": (conv(pads=(4, 2, 2)), (1, 16, 2, 6, 6), (16, 16, 3, 3, 3)),
    "few channels": (conv((1, 2, 2), pads=(1, 3, 3)), (2, 3, 6, 20, 22), (16, 3, 3, 7, 7)),
    "strides": (conv((2, 2, 2)), (1, 20, 7, 9, 13), (24, 20, 3, 3, 3)),
    "dilations": (conv((1, 1, 2), (2, 3, 1), (2, 3, 0)), (2, 5, 8, 9, 10), (7, 5, 3, 2, 3)),
    "winograd along time": (conv(pads=(1, 0, 0)), (2, 30, 8, 7, 7), (40, 30, 3, 1, 1)),
    "winograd along time of large volumes": (conv(pads=(0, 0, 0)), (1, 40, 18, 30, 31), (50, 40, 3, 1, 1)),
    "winograd along time with many pads": (conv(pads=(3, 0, 0)), (1, 50, 4, 9, 9), (60, 50, 3, 1, 1)),
    "winograd along lines": (conv(pads=(0, 0, 2)), (1, 20, 3, 10, 31), (33, 20, 1, 1, 3)),
    "winograd of planes of time": (conv(pads=(1, 1, 0)), (2, 20, 5, 10, 9), (33, 20, 3, 3, 1)),
    "along time with strides": (conv((2, 1, 1), pads=(1, 0, 0)), (2, 30, 8, 7, 7), (40, 30, 3, 1, 1)),
    "along time with pads of lines": (conv(pads=(1, 1, 0)), (2, 30, 8, 7, 7), (40, 30, 3, 1, 1)),
    "points": (conv(pads=(0, 0, 0)), (2, 40, 3, 7, 5), (24, 40, 1, 1, 1)),
    "points with strides": (conv((2, 2, 2), pads=(0, 0, 0)), (1, 40, 4, 8, 8), (24, 40, 1, 1, 1)),
    "points with pads": (conv(pads=(1, 0, 0)), (1, 8, 3, 4, 4), (8, 8, 1, 1, 1)),
    "winograd with pads that differ": (conv(pads=(2, 1, 1), behind=(0, 1, 1)), (1, 16, 5, 12, 12), (16, 16, 3, 3, 3)),
    "one element": (conv(), (1, 1, 1, 1, 1), (1, 1, 3, 3, 3)),
    "groups": (conv(groups=4), (2, 32, 4, 9, 9), (48, 8, 3, 3, 3)),
    "two groups": (conv(groups=2), (1, 64, 3, 12, 12), (64, 32, 3, 3, 3)),
    "each channel alone": (conv((1, 2, 2), groups=24), (2, 24, 5, 10, 10), (24, 1, 3, 3, 3)),
    "several of each channel": (conv(pads=(0, 1, 1), groups=6), (1, 6, 5, 6, 7), (18, 1, 5, 3, 3)),
}


@pytest.mark.parametrize("added", [False, True], ids=["alone", "with a sum"])
@pytest.mark.parametrize("case", CASES)
def test_convolutions(case: str, added: bool) -> None:
    volumes = Volumes(*CASES[case], added)
    functions = [call.function for call in composed(volumes.program).calls]
    assert [each for each in functions if "reshape" not in each and "pad" not in each] == ["graphc_conv_3d"]
    expected = volumes.expected
    limit = 4e-6 * max(1, np.abs(expected).max())
    for found in (volumes.run(), volumes.run(own=False)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=limit)
    for threads in (1, 3, 8):
        np.testing.assert_array_equal(volumes.run(), volumes.run(threads))
    assert {"winograd", "conv_2d"} & volumes.own == {"winograd" if case.startswith("winograd") else "conv_2d"}


@pytest.mark.parametrize("channels", [4, 16])
def test_an_infinity_reaches_what_meets_it_alone(channels: int) -> None:
    volumes = Volumes(conv(), (1, channels, 5, 10, 10), (channels, channels, 3, 3, 3))
    x = volumes.inputs["x"].copy()
    x[0, 1, 2, 4, 5] = np.inf
    found = np.isfinite(volumes.run(x=x))
    assert not found[0, :, 1:4, 3:6, 4:7].any()
    found[0, :, 1:4, 3:6, 4:7] = True
    assert found.all()


def test_a_volume_has_the_same_numbers_in_any_batch() -> None:
    volumes = Volumes(conv(), (5, 16, 3, 7, 7), (16, 16, 3, 3, 3))
    together = volumes.run()
    alone = Volumes(conv(), (1, 16, 3, 7, 7), (16, 16, 3, 3, 3))
    alone.arrays = volumes.arrays
    for i in range(5):
        np.testing.assert_array_equal(alone.run(x=volumes.inputs["x"][i : i + 1])[0], together[i])


@pytest.mark.torch
def test_an_engine_takes_volumes_of_any_size(tmp_path) -> None:
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Conv3d(3, 16, 3, padding=1), torch.nn.Conv3d(16, 16, 3, padding=1)
            self.groups = torch.nn.Conv3d(16, 32, (3, 1, 1), padding=(1, 0, 0), groups=8)

        def forward(self, x):
            x = torch.relu(self.first(x))
            return self.groups(torch.nn.functional.silu(self.second(x) + x))

    network = Network().eval()
    sizes = {0: "batch", 2: "frames", 3: "height", 4: "width"}
    example = torch.randn(2, 3, 4, 10, 12)
    model = graphc.from_torch(network, (example,), tmp_path / "v.gguf", dynamic_shapes=(sizes,), threads=2)
    (name,) = (each.name for each in model.inputs)
    for shape in ((2, 3, 4, 10, 12), (1, 3, 7, 9, 9), (3, 3, 2, 33, 20)):
        x = torch.randn(*shape)
        (found,) = model.run({name: x.numpy()}).values()
        np.testing.assert_allclose(found, network(x).detach().numpy(), rtol=1e-4, atol=2e-6)
