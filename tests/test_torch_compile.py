"""`torch.compile(model, backend="graphc")`: what is compiled, what is left to PyTorch, and parameters that change."""

from __future__ import annotations

import gc
import math
import warnings

import numpy as np
import pytest

from graphc.errors import GraphcError, InputError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from graphc.frontend.torch import backend  # noqa: E402
from graphc.frontend.torch.fused import FUSED  # noqa: E402


@pytest.fixture(autouse=True)
def _afresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def made(monkeypatch):
    """The graphs that were compiled."""
    graphs = []

    class Noted(backend.CompiledGraph):
        def __init__(self, *args):
            super().__init__(*args)
            graphs.append(self)

    monkeypatch.setattr(backend, "CompiledGraph", Noted)
    return graphs


def compiled(function, **settings):
    return torch.compile(function, backend=backend.compile_graph, **settings)


def agrees(run, function, *arguments):
    """Both give the same to rounding, without a warning and without gradients."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found, expected = run(*arguments), function(*arguments)
    pairs = zip(*map(torch.utils._pytree.tree_leaves, (found, expected)), strict=True)
    for one, other in pairs:
        assert type(one) is type(other)
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


class Net(torch.nn.Module):
    """Convolution, batch normalization, a table of whole numbers; a free image."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)
        self.register_buffer("order", torch.tensor([4, 2, 0]))
        torch.nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))[:, self.order]


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.deep, self.wide = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 48)
        self.inner, self.outer = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        heads = [each.unflatten(2, (2, 8)).transpose(1, 2) for each in self.wide(self.norm(x)).chunk(3, 2)]
        x = x + torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.outer(torch.nn.functional.gelu(self.inner(self.deep(x))))


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.layers = torch.nn.Sequential(Layer(), Layer())

    def forward(self, ids):
        return {"hidden": self.layers(self.table(ids)), "length": ids.shape[1]}


def test_pytorch_finds_the_backend_by_its_name():
    from importlib.metadata import entry_points

    found = [each for each in entry_points(group="torch_dynamo_backends") if each.name == "graphc"]
    if not found:
        pytest.skip("graphc was installed before it had the entry point: pip install -e .")
    assert found[0].load() is backend.compile_graph


def test_one_compilation_serves_all_sizes(made):
    model = Encoder().eval()
    run = compiled(model, dynamic=True)
    for length in (7, 12, 30):
        agrees(run, model, torch.randint(0, 50, (2, length)))
    assert len(made) == 1
    assert [list(axes) for axes in made[0].parts.given.free] == [[0, 1]]


def test_a_second_size_makes_sizes_free(made):
    model = Net().eval()
    run = compiled(model)
    for size in (8, 12, 20):
        agrees(run, model, torch.randn(2, 3, size, size))
    assert len(made) == 2


def test_weights_lie_where_the_parameters_do_and_changes_are_seen(made):
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    run = compiled(model)
    agrees(run, model, x)
    with torch.no_grad():
        weights = {array.ctypes.data for array in made[0]._first.executor.arrays}
        assert model.head.weight.data_ptr() in weights
        model.head.weight.add_(1)
        model.norm.weight.mul_(3)  # it is computed into the weight of the convolution
        agrees(run, model, x)
        model.order.copy_(torch.tensor([1, 1, 3]))  # it is part of the program
        agrees(run, model, x)
        model.load_state_dict(Net().state_dict())
        agrees(run, model, x)
        model.load_state_dict(Net().state_dict(), assign=True)
        agrees(run, model, x)
    assert len(made) == 1


def test_training_between_two_runs_is_seen(made):
    model, x = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), torch.randn(4, 6)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    run = compiled(model)
    agrees(run, model, x)
    with pytest.warns(UserWarning, match="gradients are wanted"):
        loss = run(x).square().sum()
    loss.backward()
    optimizer.step()
    agrees(run, model, x)
    assert loss > model(x).square().sum()
    assert len(made) == 1


def test_modules_of_the_same_shapes_share_a_program(made):
    layers = [Layer().eval() for _ in range(2)]
    x = torch.randn(2, 5, 16)
    for each in (*layers, *layers):
        agrees(compiled(each), each, x)
    (shared,) = made
    one, other = (loaded.model for loaded in shared._loaded.values())
    assert one.program is other.program
    del layers, each, one, other
    gc.collect()
    assert not shared._loaded


def test_python_in_the_middle_breaks_the_graph(made, capsys):
    layer = torch.nn.Linear(4, 8)

    def function(x):
        y = layer(x)
        if y.sum() > 0:
            print("up")
            return y * 2
        return y - 1

    run = compiled(function)
    agrees(run, function, torch.randn(3, 4) + 5)
    agrees(run, function, torch.randn(3, 4) - 5)
    assert len(made) > 1
    assert "up" in capsys.readouterr().out


def test_outputs_that_are_views_or_numbers_are_what_they_are_in_pytorch(made):
    layer = torch.nn.Linear(4, 8)

    def function(x):
        y = layer(x)
        left, right = y.chunk(2, 1)
        return left, right, x.view(-1), x.shape[0] * 2, left + 1

    run = compiled(function, dynamic=True)
    x = torch.randn(3, 4)
    agrees(run, function, x)
    agrees(run, function, torch.randn(5, 4))
    with torch.no_grad():
        left, right, flat, _, _ = run(x)
    assert flat.data_ptr() == x.data_ptr()
    assert right.untyped_storage().data_ptr() == left.untyped_storage().data_ptr()
    assert len(made) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float64, marks=pytest.mark.thorough)])
def test_other_types(made, dtype):
    agrees(compiled(lambda x: x * 2 + 1), lambda x: x * 2 + 1, torch.randn(3, 4).to(dtype))
    assert len(made) == 1


def test_layers_that_pytorch_fuses(made):
    def layer(**settings):
        found = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **settings)
        torch.nn.init.normal_(found.norm1.bias)
        torch.nn.init.normal_(found.self_attn.in_proj_bias)
        return found

    model = torch.nn.Sequential(layer(), layer(norm_first=True, activation="gelu")).eval()
    agrees(compiled(model, dynamic=True, options={"strict": True}), model, torch.randn(2, 7, 16))
    assert any(node.target in FUSED for node in made[0].graph.graph.nodes)


def test_numbers_of_python_are_free_too(made):
    def function(x, scale, count):
        return x * scale + torch.zeros(count).sum()

    run = compiled(function)
    for scale, count in ((1.5, 3), (2.5, 4), (3.5, 5), (4.5, 6)):
        agrees(run, function, torch.ones(3), scale, count)
    assert len(made) < 4


LEFT = {
    "no form in ONNX": (lambda x: torch.linalg.svd(x)[1], torch.randn(3, 4)),
    "changes its input x in place": (lambda x: x.add_(1) * 2, torch.randn(3, 4)),
    "draws random numbers": (lambda x: torch.nn.functional.dropout(x), torch.randn(3, 4)),
    "lies on meta": (lambda x: x + 1, torch.randn(3, 4, device="meta")),
    "complex": (lambda x: x.conj() * x, torch.randn(3, dtype=torch.complex64)),
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_cannot_be_compiled_is_left_to_pytorch_with_a_reason(made, reason):
    function, x = LEFT[reason]
    same = x.clone()
    with torch.no_grad():
        run = compiled(function)
        torch.manual_seed(1)
        with pytest.warns(UserWarning, match="leaves a graph of") as said:
            found = run(x)
        assert len(said) == 1
        assert reason in str(said[0].message)
        torch.manual_seed(1)
        expected = function(same)
        if x.device.type != "meta":
            torch.testing.assert_close((found, x), (expected, same))
        torch._dynamo.reset()
        with pytest.raises(GraphcError, match=reason):
            compiled(function, options={"strict": True})(x)
    assert not made


def test_a_run_that_fails_is_pytorchs(made, monkeypatch):
    def function(x, ids):
        return x[ids]

    run, x = compiled(function), torch.randn(3, 4)
    agrees(run, function, x, torch.tensor([0, 2, -1]))

    def fails(feed):
        raise InputError("not these")

    monkeypatch.setattr(made[0]._first, "run", fails)
    with torch.no_grad(), pytest.warns(UserWarning, match="not these"):
        torch.testing.assert_close(run(x, torch.tensor([1, 1, 1])), x[[1, 1, 1]])
    agrees(run, function, x, torch.tensor([1, 0, 1]))  # it is said once


def test_options(made):
    x = torch.randn(4, 32)
    layer = torch.nn.Linear(32, 8)
    with torch.no_grad():
        for wrong in ({"options": {"speed": 1}}, {"mode": "max-autotune"}):
            torch._dynamo.reset()
            with pytest.raises(InputError, match="strict, threads, device, memory, dtype"):
                compiled(layer, **wrong)(x)
        torch._dynamo.reset()
        found = compiled(layer, options={"threads": 1, "dtype": "q8_0", "strict": True})(x)
        assert 0 < abs(found - layer(x)).max() < 0.05
    assert made[0]._first.executor.threads == 1


def test_results_take_no_copy():
    from graphc.frontend.torch.arrays import as_array, as_tensor

    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool):
        tensor = torch.randn(3, 4).to(dtype)
        array = as_array(tensor)
        assert array.ctypes.data == tensor.data_ptr()
        back = as_tensor(array)
        assert back.dtype == dtype
        assert back.data_ptr() == tensor.data_ptr()
    assert as_array(torch.ones(2, dtype=torch.bfloat16)).astype(np.float32).tolist() == [1, 1]
    with pytest.raises(InputError, match="meta"):
        as_array(torch.ones(2, device="meta"))


def test_functions_of_free_numbers():
    """Dynamo takes the 2 / pi of GELU's roots, as any number that a function is given, for one that may change."""

    def function(x, number):
        return x * math.sqrt(number / math.pi) + math.sin(number) - math.sqrt(x.shape[0])

    run = compiled(function, dynamic=True, options={"strict": True})
    for count, number in ((3, 2.5), (4, 3.25), (7, 1.0)):
        agrees(run, function, torch.randn(count, 3), number)


def test_volumes_without_a_bias():
    """PyTorch's exporter writes zeros for it that are no bias of ONNX's."""
    module = torch.nn.Sequential(torch.nn.Conv3d(2, 4, 3, bias=False), torch.nn.BatchNorm3d(4)).eval()
    run = compiled(module, dynamic=True, options={"strict": True})
    agrees(run, module, torch.randn(2, 2, 5, 6, 7))
    agrees(run, module, torch.randn(3, 2, 4, 9, 5))


def test_numbers_that_are_part_of_the_program_change_back():
    class Chosen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("order", torch.tensor([4, 2, 0]))

        def forward(self, x):
            return x[:, self.order]

    model, x = Chosen(), torch.randn(2, 5)
    run = compiled(model)
    for order in ([4, 2, 0], [1, 1, 3], [4, 2, 0], [0, 1, 2]):
        model.order.copy_(torch.tensor(order))
        agrees(run, model, x)
