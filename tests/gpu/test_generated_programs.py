"""Programs on a device of generated kernels: every operator, in every form, gives what NumPy does, and whole models what PyTorch
does. The device is a stand-in for libcuda, whose kernels run in the emulator."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from emulated_device import fake
from exported_models import engine_of
from test_ggml_ops import CASES, FAMILIES, check_all, close

import graphc
from graphc.ir import Graph, TensorType
from graphc.kernels.gpu import forms
from graphc.kernels.gpu.code import code_for
from graphc.kernels.gpu.tile import Copy, walk
from graphc.ops.attention import Attention
from graphc.runtime.compare import relative_error
from graphc.runtime.profile import profile
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.program.launch import LAUNCH
from graphc.targets.ggml.program.program import Call, Packing
from graphc.targets.ggml.program.rules import VIEWS
from graphc.targets.ggml.program.tensor import Tensor
from graphc.targets.ggml.run.executor import Executor

torch = pytest.importorskip("torch")

DEVICE = "emulated0"
BOUND = 3e-6


@pytest.fixture(autouse=True)
def _device() -> None:
    fake()


@pytest.mark.parametrize("family", FAMILIES, ids=[family.__name__ for family in FAMILIES])
def test_random_shapes(family) -> None:
    def forms():
        for number, (op, inputs) in enumerate(family()):
            if number % 3 == 0:
                yield op, inputs, {}
            elif number % 3 == 1 and any(x.ndim > 1 for x in inputs):
                yield op, inputs, {"transposed": True}

    check_all(forms(), close, DEVICE)


def test_onnx_cases() -> None:
    check_all(((case.op, case.inputs, {}) for case in CASES[::5]), close, DEVICE)


def executor_of(model: graphc.Model) -> Executor:
    """What runs a model."""
    return next(each for each in vars(model).values() if isinstance(each, Executor))


def computed_by_ggml(model: graphc.Model) -> Counter[str]:
    """The calls that no kernel was generated for."""
    calls = executor_of(model).program.calls
    return Counter(call.function for call in calls if call.function not in {LAUNCH, *VIEWS})


def launching(net: torch.nn.Module, x: torch.Tensor, bound: float) -> list[Call]:
    """The calls that launch kernels for a network of one tensor; their result must be PyTorch's within a bound."""
    with closing(graphc.from_torch(net, (x,), device=DEVICE)) as model:
        (result,) = model.run({"x": x.numpy()}).values()
        calls = [call for call in executor_of(model).program.calls if call.launches is not None]
    expected = net(x).detach().numpy()
    assert np.abs(result - expected).max() < bound * np.abs(expected).max()
    return calls


MODELS = {
    "tiny_cnn": 0, "clip_vision": 0, "t5_encoder": 0, "unet_transposed": 0, "mobilenet_v2": 0, "swin": 0,
    "sd15_clip_small": 1, "llama_cached": 1, "taesd_decoder": 0,
}  # fmt: skip
"""Of the zoo, and how many calls ggml computes: those that look whether token ids are in range."""


SLOW = ("swin", "mobilenet_v2", "taesd_decoder", "llama_cached")


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.thorough] * (each in SLOW)) for each in MODELS])
def test_models(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    engine, inputs, expected = engine_of(tmp_path_factory, name)
    with closing(graphc.load(engine, device=DEVICE)) as model:
        assert relative_error(model.run(inputs), expected) < BOUND
        assert relative_error(model.run(inputs), expected) < BOUND  # the graph that was recorded
        assert sum(computed_by_ggml(model).values()) == MODELS[name]


def test_volumes(tmp_path: Path) -> None:
    """One convolution after the other, with sums, activations and groups, also of sizes that are not known before."""

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Conv3d(3, 16, 3, padding=1), torch.nn.Conv3d(16, 16, 3, padding=1)
            self.down = torch.nn.Conv3d(16, 8, (3, 2, 2), stride=(1, 2, 2), dilation=(2, 1, 1), padding=(2, 0, 0))
            self.groups = torch.nn.Conv3d(8, 16, (3, 1, 1), padding=(1, 0, 0), groups=4)

        def forward(self, x):
            x = torch.relu(self.first(x))
            return self.groups(self.down(torch.nn.functional.silu(self.second(x) + x)))

    torch.manual_seed(0)
    network, example = Network().eval(), torch.randn(2, 3, 3, 6, 5)
    for name, sizes in (("fixed", {}), ("free", {0: "batch", 2: "frames", 3: "height", 4: "width"})):
        path = tmp_path / f"{name}.gguf"
        graphc.from_torch(network, (example,), path, dynamic_shapes=(sizes,)).close()
        with closing(graphc.load(path, device=DEVICE)) as model:
            (given,) = (each.name for each in model.inputs)
            for shape in [(2, 3, 3, 6, 5), (1, 3, 4, 8, 8)][: 1 + bool(sizes)]:
                x = torch.randn(*shape)
                expected = {model.outputs[0].name: network(x).detach().numpy()}
                assert relative_error(model.run({given: x.numpy()}), expected) < BOUND
            assert not computed_by_ggml(model)


@pytest.mark.slow
def test_a_unet_of_float16(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stable Diffusion's, narrow. PyTorch's own float16 has an error of 2.2e-3; with products alone of float16 it is 1.6e-3."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    engine, inputs, expected = engine_of(tmp_path_factory, "sd15_unet_small")
    with closing(graphc.load(engine, device=DEVICE)) as model:
        assert 1e-5 < relative_error(model.run(inputs), expected) < 3e-3
        assert not computed_by_ggml(model)


@pytest.mark.slow
@pytest.mark.usefixtures("every_instruction")
def test_a_unet_whose_warps_multiply_together(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with Hopper's own instructions, for products, convolutions and attention."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    texts = []
    monkeypatch.setattr(forms, "code_for", lambda *given: texts.append(given[-1]) or code_for(*given))
    engine, inputs, expected = engine_of(tmp_path_factory, "sd15_unet_small")
    with closing(graphc.load(engine, device=DEVICE)) as model:
        assert 1e-5 < relative_error(model.run(inputs), expected) < 3e-3
        assert not computed_by_ggml(model)
    every = "".join(texts)
    assert every.count("wgmma_begin();") > 40
    assert re.search(r"wgmma_m64n\d+k16_half_columns\(total", every)


def modules_loaded() -> int:
    """How often code was given to the device."""
    return sum(count for name, count in fake().counts().items() if name.startswith("cuModuleLoad"))


class Net(torch.nn.Module):
    """A little of everything, for images of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 8, 3, stride=2, padding=1)
        self.group, self.layer = torch.nn.GroupNorm(4, 16), torch.nn.LayerNorm(12)
        self.linear = torch.nn.Linear(8, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of images [N, 3, H, W]."""
        pixels = self.second(torch.nn.functional.silu(self.group(self.first(x)))).flatten(2).transpose(1, 2)
        tokens = torch.nn.functional.gelu(self.layer(self.linear(pixels)))
        return torch.softmax(tokens @ tokens.transpose(1, 2) / 3, -1) @ tokens


def test_sizes_stay_free(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, example = Net().eval(), torch.zeros(2, 3, 10, 12)
    dims = {0: torch.export.Dim("n"), 2: torch.export.Dim("h", min=2), 3: torch.export.Dim("w", min=2)}
    graphc.from_torch(net, (example,), dynamic_shapes={"x": dims}).save(tmp_path / "model.gguf")
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE)) as model:
        loaded = modules_loaded()
        for size in ((2, 3, 10, 12), (1, 3, 7, 5), (3, 3, 2, 33)):
            x = torch.randn(size, generator=torch.Generator().manual_seed(1))
            (result,) = model.run({"x": x.numpy()}).values()
            np.testing.assert_allclose(result, net(x).detach().numpy(), rtol=0, atol=2e-6)
        assert modules_loaded() == loaded
        assert not computed_by_ggml(model)


def test_weights_are_packed_whenever_they_change(tmp_path: Path) -> None:
    torch.manual_seed(0)
    nets = [Net().eval() for _ in range(2)]
    x = torch.randn(1, 3, 6, 7)
    graphc.from_torch(nets[0], (x,)).save(tmp_path / "model.gguf")
    torch.save(nets[1].state_dict(), tmp_path / "other.pt")
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE)) as model:
        assert any(weight.packing for weight in executor_of(model).program.weights)
        for net, change in ((nets[0], None), (nets[1], tmp_path / "other.pt")):
            if change:
                model.load_weights(change)
            (result,) = model.run({"x": x.numpy()}).values()
            np.testing.assert_allclose(result, net(x).detach().numpy(), rtol=0, atol=2e-6)


def test_weights_of_float16_are_packed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie in a checkpoint in an order that convolutions do not read, and no run brings them into another."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(1, 3, 6, 7)
    graphc.from_torch(net, (x,)).save(tmp_path / "model.gguf")
    halves = {
        name: array.half() if "bias" not in name and "group" not in name else array
        for name, array in net.state_dict().items()
    }
    torch.save(halves, tmp_path / "halves.pt")
    given = {"weights": tmp_path / "halves.pt", "dtype": "checkpoint"}
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE, **given)) as model:
        program = executor_of(model).program
        kernels = [weight for weight in program.weights if len(weight.shape) == 4]
        assert [weight.tensor.type for weight in kernels] == ["F16", "F16"]
        assert all(weight.packing for weight in kernels)
        (result,) = model.run({"x": x.numpy()}).values()
        np.testing.assert_allclose(result, net(x).detach().numpy(), rtol=0, atol=2e-3)


def test_streamed_weights_are_packed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, pack = [], Packing.__call__
    monkeypatch.setattr(Packing, "__call__", lambda self, array: packed.append(self) or pack(self, array))
    torch.manual_seed(0)
    nets = [torch.nn.Sequential(*(torch.nn.Conv2d(96, 96, 3, padding=1) for _ in range(6))).eval() for _ in range(2)]
    x = torch.randn(1, 96, 5, 5)
    graphc.from_torch(nets[0], (x,)).save(tmp_path / "model.gguf")
    torch.save(nets[1].state_dict(), tmp_path / "other.pt")
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE, memory="1.5MiB")) as model:
        for net, times in ((nets[0], 1), (nets[1], 2)):
            for _ in range(2):
                (result,) = model.run({"input": x.numpy()}).values()
                np.testing.assert_allclose(result, net(x).detach().numpy(), rtol=0, atol=2e-6)
            assert len(packed) == times * len(net)
            model.load_weights(tmp_path / "other.pt")


@pytest.mark.parametrize("larger", [1, 4])
def test_large_images_are_normalized_by_two_kernels(larger: int) -> None:
    """Of images whose size is free, and may be large: strips of them are put together by the last block. Numbers are far from 0,
    where sums of their squares would cancel."""
    net = torch.nn.Sequential(torch.nn.Upsample(scale_factor=larger), torch.nn.GroupNorm(4, 64), torch.nn.SiLU()).eval()
    dims = ({0: "count", 2: torch.export.Dim("height", min=1), 3: torch.export.Dim("width", min=1)},)
    x = torch.randn(2, 64, 8, 9)
    with closing(graphc.from_torch(net, (x,), dynamic_shapes=dims, device=DEVICE)) as model:
        assert any(name.startswith("group_factors") for name in executor_of(model).launched.generated.kernels)
        for size in ((2, 64, 8, 9), (1, 64, 5, 1), (3, 64, 1, 7)):
            x = torch.randn(size) + 100
            (result,) = model.run({"input": x.numpy()}).values()
            np.testing.assert_allclose(result, net(x).detach().numpy(), rtol=0, atol=1e-4)


def test_products_of_float16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(2, 3, 9, 11)
    graphc.from_torch(net, (x,)).save(tmp_path / "model.gguf")
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE)) as model:
        (result,) = model.run({"x": x.numpy()}).values()
        executor = executor_of(model)
        assert executor.launched is not None
        assert "mma_m16n8k16_half" in executor.launched.generated.text
        assert "sum = fmaf" not in executor.launched.generated.text
    expected = net(x).detach().numpy()
    error = np.abs(result - expected).max() / np.abs(expected).max()
    assert 1e-6 < error < 2e-3


@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_float16(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    random, graph = np.random.default_rng(0), Graph()
    shapes = [(2, 6, 70, 40), (2, 3, 90, 40), (2, 3, 90, 48), *([(1, 6, 70, 90)] if masked else [])]
    arrays = {f"x{i}": random.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    values = [graph.input(each, TensorType(array.dtype, array.shape)) for each, array in arrays.items()]
    op = Attention(0.2)
    graph.output(graph.add(op, values).output, "y")
    executor = Executor(lower(graph), [], DEVICE, threads=1)
    (result,) = executor.run(arrays, {})
    assert executor.launched is not None
    assert "attention" in executor.launched.kernels
    assert all(call.launches for call in executor.program.calls)
    (expected,) = op.eval(*arrays.values())
    assert np.abs(result - expected).max() < 2e-3 * np.abs(expected).max()
    executor.close()


def test_a_profile_names_the_kernels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 6, 7)
    graphc.from_torch(Net().eval(), (x,)).save(tmp_path / "model.gguf")
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE)) as model:
        steps = {each.step.split("_")[0] for each in profile(model, {"x": x.numpy()})}
    assert {"convolution", "linear", "group", "layer", "attention"} <= steps


class States(torch.nn.Module):
    """The states behind all layers, one behind the other, each with something added: more than a node of ggml's reads."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [rows, columns]."""
        states = [x]
        for layer in range(12):
            states.append(torch.softmax(states[-1] + layer, -1))
        return torch.stack(states) + 1


def test_more_parts_than_a_kernel_reads_are_joined_on_the_device() -> None:
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    with closing(graphc.from_torch(States(), (x,), device=DEVICE)) as model:
        (result,) = model.run({"x": x.numpy()}).values()
        assert all(call.launches or call.function in VIEWS for call in executor_of(model).program.calls)
    assert np.abs(result - States()(x).numpy()).max() < 1e-5


class Block(torch.nn.Module):
    """A transformer's block, with a gated feed-forward network."""

    def __init__(self, width: int = 64, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (torch.nn.Linear(width, width) for _ in range(4))
        self.gate, self.up, self.down = (torch.nn.Linear(*sizes) for sizes in ((width, 96), (width, 96), (96, width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, tokens, width]."""
        seen = self.first(x)
        heads = [each(seen).unflatten(2, (self.heads, -1)).transpose(1, 2) for each in (self.q, self.k, self.v)]
        x = x + self.out(torch.nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
        seen = self.second(x)
        return x + self.down(torch.nn.functional.gelu(self.gate(seen)) * self.up(seen))


@pytest.mark.parametrize("fast", [False, True])
def test_what_alone_reads_a_result_is_a_part_of_its_kernel(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high" if fast else "highest")
    torch.manual_seed(0)
    net, x = Block().eval(), torch.randn(2, 9, 64)
    with closing(graphc.from_torch(net, (x,), device=DEVICE)) as model:
        (result,) = model.run({"x": x.numpy()}).values()
        executor = executor_of(model)
        assert executor.launched is not None
        names = Counter(
            launch.rendered.kernel.name.rstrip("_0123456789")
            for call in executor.program.calls
            if call.launches is not None
            for launch in call.launches.each
        )
    expected = net(x).detach().numpy()
    assert np.abs(result - expected).max() < (2e-3 if fast else BOUND) * np.abs(expected).max()
    if fast:  # norms write what products read; q, k and v are one launch, the gate and what it lets through another, with GELU
        assert names == {"layer_norm": 2, "linear": 4, "attention": 1}
    else:
        assert names["layer_norm"] == 2
        assert names["linear"] == 5
        assert names["attention"] == 1


class OfAny(torch.nn.Module):
    """A sum over as many rows as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(24, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, rows, 24]."""
        found = self.linear(x)
        return found.transpose(1, 2) @ torch.tanh(found)


def test_a_sum_of_free_length_is_copied_as_its_length_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    torch.manual_seed(0)
    net, rows = OfAny().eval(), torch.export.Dim("rows", min=1)
    exported = graphc.from_torch(net, (torch.zeros(2, 40, 24),), dynamic_shapes={"x": {1: rows}}, device=DEVICE)
    with closing(exported) as model:
        for count in (40, 37, 8, 1, 64):
            x = torch.randn(2, count, 24)
            (result,) = model.run({"x": x.numpy()}).values()
            expected = net(x).detach().numpy()
            assert np.abs(result - expected).max() < 2e-3 * np.abs(expected).max()
        launches = [call.launches for call in executor_of(model).program.calls if call.launches is not None]
    kernels = [each.rendered.kernel for one in launches for each in one.each]
    widths = [{it.vector for it in walk(kernel.body) if isinstance(it, Copy)} for kernel in kernels]
    assert {1, 8} in widths


class OfPixels(torch.nn.Module):
    """Attention of an image's pixels, as in a decoder: queries, keys and values are made of rows of pixels, turned for each."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(4, 16)
        self.q, self.k, self.v, self.out = (torch.nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, 16, height, width]."""
        pixels = self.norm(x.flatten(2)).transpose(1, 2)
        q, k, v = (each(pixels)[:, None] for each in (self.q, self.k, self.v))
        found = self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v)[:, 0])
        return found.transpose(1, 2).reshape(x.shape) + x


@pytest.mark.parametrize("fast", [False, True])
def test_what_is_turned_for_each_product_is_turned_once(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high" if fast else "highest")
    torch.manual_seed(0)
    net, x = OfPixels().eval(), torch.randn(2, 16, 9, 7)
    calls = launching(net, x, 2e-3 if fast else BOUND)
    names = Counter(call.launches.each[0].rendered.kernel.name.rstrip("_0123456789") for call in calls if call.launches)
    assert names["linear"] == 2
    assert names["attention"] == 1


class Turned(torch.nn.Module):
    """Heads that are normalized and rotated by their places: what the rotation reads twice is in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.out = torch.nn.Linear(24, 32), torch.nn.Linear(32, 8)
        self.norm = torch.nn.RMSNorm(16)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """x: [batch, tokens, 24]; cos and sin: [tokens, 16]."""
        heads = self.norm(self.linear(x).unflatten(2, (2, 16)).transpose(1, 2))
        first, second = heads.chunk(2, 3)
        turned = heads * cos + torch.cat([-second, first], 3) * sin
        return self.out(turned.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("fast", [False, True])
def test_what_is_read_twice_is_in_memory(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high" if fast else "highest")
    torch.manual_seed(0)
    net, inputs = Turned().eval(), (torch.randn(2, 5, 24), torch.rand(5, 16), torch.rand(5, 16))
    with closing(graphc.from_torch(net, inputs, device=DEVICE)) as model:
        names = [each.name for each in model.inputs]
        (result,) = model.run({name: x.numpy() for name, x in zip(names, inputs, strict=True)}).values()
        assert not computed_by_ggml(model)
    expected = net(*inputs).detach().numpy()
    assert np.abs(result - expected).max() < (2e-3 if fast else BOUND) * np.abs(expected).max()


class Windows(torch.nn.Module):
    """Attention within windows, by angles, with a mask for each window and one for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(24, 24) for _ in range(3))
        self.of_heads, self.of_windows = torch.randn(1, 2, 20, 20), torch.randn(1, 6, 1, 20, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [6 windows, 20, 24]."""
        q, k, v = (each(x).unflatten(2, (2, 12)).transpose(1, 2) for each in (self.q, self.k, self.v))
        scores = torch.nn.functional.normalize(q, dim=-1) @ torch.nn.functional.normalize(k, dim=-1).transpose(2, 3)
        scores = (5 * scores + self.of_heads)[None] + self.of_windows
        return (torch.softmax(scores.reshape(6, 2, 20, 20), -1) @ v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("fast", [False, True])
def test_masks_that_stay_apart_are_added_in_the_kernel(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high" if fast else "highest")
    monkeypatch.setattr("graphc.rewrite.rules.attention.MOST_JOINED", 0)
    torch.manual_seed(0)
    net, x = Windows().eval(), torch.randn(6, 20, 24)
    calls = launching(net, x, 2e-3 if fast else BOUND)
    names = Counter(call.launches.each[0].rendered.kernel.name.rstrip("_0123456789") for call in calls if call.launches)
    assert names["attention"] == 1
    assert names["l2_norm"] == 2


class Doubled(torch.nn.Module):
    """An image that is made larger for a convolution of 3 x 3, as decoders and U-Nets do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(8, 24, 1), torch.nn.Conv2d(24, 20, 3, padding=1)
        self.norm, self.third = torch.nn.GroupNorm(4, 20), torch.nn.Conv2d(20, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, 8, height, width]."""
        larger = torch.nn.functional.interpolate(self.first(x), scale_factor=2.0, mode="nearest")
        return self.third(torch.nn.functional.silu(self.norm(self.second(larger))))


@pytest.mark.parametrize("size", [(5, 7), (1, 1), (16, 8)])
@pytest.mark.parametrize("fast", [False, True])
def test_images_that_are_made_larger_are_not(
    fast: bool, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four kernels of 2 x 2 meet the image as it was; what is read of weights is sums of them."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high" if fast else "highest")
    torch.manual_seed(0)
    net, x = Doubled().eval(), torch.randn(2, 8, *size)
    calls = launching(net, x, 2e-3 if fast else BOUND)
    names = Counter(call.launches.each[0].rendered.kernel.name.rstrip("_0123456789") for call in calls if call.launches)
    assert names["doubled"] == 1


class Skip(torch.nn.Module):
    """Images side by side along their channels, normalized, and added by a shortcut: what a U-Net does with what it kept."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 12, 3, padding=1), torch.nn.Conv2d(12, 20, 3, padding=1)
        self.norm, self.third = torch.nn.GroupNorm(4, 32), torch.nn.Conv2d(32, 8, 3, padding=1)
        self.shortcut = torch.nn.Conv2d(32, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, 3, height, width]."""
        kept = self.first(x)
        both = torch.cat([self.second(kept), kept], 1)
        return self.third(torch.nn.functional.silu(self.norm(both))) + self.shortcut(both)


@pytest.mark.parametrize("fast", [False, True])
def test_what_lies_side_by_side_is_not_stored(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers, the norm and the shortcut, take it from where its parts lie, and both convolutions are one kernel."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high" if fast else "highest")
    torch.manual_seed(0)
    net, x = Skip().eval(), torch.randn(2, 3, 9, 7)
    calls = launching(net, x, 2e-3 if fast else BOUND)
    names = [call.launches.each[0].rendered.kernel.name.rstrip("_0123456789") for call in calls if call.launches]
    parts = [sum(isinstance(arg, Tensor) and arg.call >= 0 for arg in call.args) for call in calls]
    assert ("group_norm", 2) in zip(names, parts, strict=True)
    # the picture and the result are brought into order; the shortcut is a part of the third convolution's kernel
    assert names.count("pointwise") == 2
    kept = [call.result.type for call, name in zip(calls, names, strict=True) if name == "convolution"]
    assert kept == (["F16", "F16", "F32"] if fast else ["F32"] * 3)


class Loud(torch.nn.Module):
    """Convolutions with a norm between, which brings what the first gives, however large, to about 1."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 8, 3, padding=1)
        self.norm = torch.nn.GroupNorm(4, 16, eps=1e-6)
        with torch.no_grad():
            for each in self.first.parameters():
                each.mul_(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, 3, height, width]."""
        return self.second(torch.nn.functional.silu(self.norm(self.first(x))))


@pytest.mark.parametrize("size", [1e-2, 1.0, 2e5])
def test_what_a_norm_alone_reads_is_float16_however_large(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    torch.manual_seed(0)
    net, x = Loud(size).eval(), torch.randn(2, 3, 9, 7)
    assert (np.abs(net.first(x).detach().numpy()).max() > 1e5) == (size > 1)
    with closing(graphc.from_torch(net, (x,), device=DEVICE)) as model:
        (result,) = model.run({"x": x.numpy()}).values()
        calls = [call for call in executor_of(model).program.calls if call.launches is not None]
    expected = net(x).detach().numpy()
    assert np.abs(result - expected).max() < 2e-3 * np.abs(expected).max()
    names = [call.launches.each[0].rendered.kernel.name.rstrip("_0123456789") for call in calls if call.launches]
    assert names == ["pointwise", "convolution", "group_norm", "convolution", "pointwise"]
    assert [call.result.type for call in calls] == ["F16", "F16", "F16", "F32", "F32"]


class Added(torch.nn.Module):
    """Layers of a transformer between convolutions, whose sum is multiplied, and one behind them, whose sum is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 8, 1)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for width in (16, 16, 8, 8))
        self.linears = torch.nn.ModuleList(torch.nn.Linear(width, width) for width in (16, 16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, 3, height, width]."""
        found = self.first(x)
        tokens = found.flatten(2).transpose(1, 2)
        for norm, linear in zip(self.norms[:2], self.linears[:2], strict=True):
            tokens = tokens + linear(norm(tokens))
        tokens = self.last(tokens.transpose(1, 2).reshape(found.shape)).flatten(2).transpose(1, 2)
        return self.norms[3](tokens + self.linears[2](self.norms[2](tokens)))


def test_what_is_added_to_what_is_multiplied_is_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    torch.manual_seed(0)
    net, x = Added().eval(), torch.randn(2, 3, 9, 7)
    with closing(graphc.from_torch(net, (x,), device=DEVICE)) as model:
        (result,) = model.run({"x": x.numpy()}).values()
        calls = [call for call in executor_of(model).program.calls if call.launches is not None]
    expected = net(x).detach().numpy()
    assert np.abs(result - expected).max() < 2e-3 * np.abs(expected).max()
    names = [call.launches.each[0].rendered.kernel.name.rstrip("_0123456789") for call in calls if call.launches]
    kept = [call.result.type for call, name in zip(calls, names, strict=True) if name in ("convolution", "linear")]
    assert kept == ["F16", "F16", "F16", "F32", "F32"]


def test_a_sum_in_parts_is_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long sum with few tiles, with what becomes of it, run after run, also where a graph is recorded."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    torch.manual_seed(0)
    net, x = torch.nn.Sequential(torch.nn.Linear(4096, 64), torch.nn.ReLU()).eval(), torch.randn(40, 4096)
    with closing(graphc.from_torch(net, (x,), device=DEVICE)) as model:
        found = [next(iter(model.run({model.inputs[0].name: x.numpy()}).values())).copy() for _ in range(4)]
        launches = [call.launches for call in executor_of(model).program.calls if call.launches is not None]
    assert [len(each.each) for each in launches if each.counters != 0] == [1]
    expected = net(x).detach().numpy()
    assert np.abs(found[0] - expected).max() < 2e-3 * np.abs(expected).max()
    assert all(np.array_equal(found[0], each) for each in found)
