"""`from_torch`: free sizes, exported programs, names, and what is said when PyTorch's exporter fails."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import graphc
from graphc.errors import InputError, ModelError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Pool(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.dropout = torch.nn.Dropout()

    def forward(self, x, scale=None):
        deep = self.dropout(self.conv(x)).mean((2, 3))
        return {"scores": deep * 2, "deep": [deep, x], "none": None}


class Fixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.ones(5, 1))

    def forward(self, x):
        return x + self.table


class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x)[1]  # no form in ONNX


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


class Branch(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # depends on data
            return x * 2
        return x


class Biased(torch.nn.Module):
    """Attention to which a parameter is added."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(2, 5, 5))

    def forward(self, x):
        q, k, v = x.reshape(3, 1, 5, 2, 4).transpose(2, 3).unbind()
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, self.bias[None])
        return attended.transpose(1, 2).reshape(1, 5, 8)


class Pair(torch.nn.Module):
    def forward(self, x):
        return x + 1, (x * 2, x)


def test_sizes_that_are_named_stay_free_and_the_example_is_remembered(tmp_path):
    module, example = Pool(), torch.randn(2, 3, 9, 11)
    module.conv.eval()
    free = {"x": {0: "batch", 2: "height", 3: "width"}}
    model = graphc.from_torch(module, (example,), tmp_path / "pool.gguf", dynamic_shapes=free, threads=1)
    assert module.training
    assert not module.conv.training
    assert str(model.inputs[0]) == "x: float32[batch, 3, height, width]"
    assert [each.name for each in model.outputs] == ["scores", "deep_0", "deep_1"]
    assert graphc.load(tmp_path / "pool.gguf").program.example == {"batch": 2, "height": 9, "width": 11}
    x = torch.randn(3, 3, 5, 4)
    expected = module.eval()(x)
    found = model.run(x=x.numpy())
    np.testing.assert_allclose(found["scores"], expected["scores"].detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["deep_1"], x)


def test_parameters_that_gradients_could_have():
    module, x = Biased(), torch.randn(3, 5, 8)
    found = graphc.from_torch(module, (x,), threads=1).run(x=x.numpy())["output"]
    np.testing.assert_allclose(found, module(x).detach(), rtol=1e-5, atol=1e-6)
    assert module.bias.requires_grad


def test_an_exported_program_and_keyword_arguments():
    example = torch.randn(2, 3)
    free = ({0: torch.export.Dim("n")},)
    program = torch.export.export(Pair(), (example,), dynamic_shapes=free)
    for model in (
        graphc.from_torch(program, dynamic_shapes=({0: "n"},), threads=1),
        graphc.from_torch(Pair(), {"x": example}, dynamic_shapes=free, threads=1),
        graphc.from_torch(Pair(), example, dynamic_shapes={"x": {0: "n"}}, threads=1),
    ):
        assert str(model.inputs[0]) == "x: float32[n, 3]"
        assert [each.name for each in model.outputs] == ["output_0", "output_1_0", "output_1_1"]
        np.testing.assert_array_equal(model.run(x=np.ones((4, 3), np.float32))["output_1_0"], np.full((4, 3), 2))


def test_names_that_are_given(tmp_path):
    model = graphc.from_torch(Pair(), torch.ones(2), input_names=["add"], output_names=["a", "b", "c"], threads=1)
    assert [each.name for each in (*model.inputs, *model.outputs)] == ["add", "a", "b", "c"]
    assert graphc.from_torch(torch.nn.ReLU(), torch.ones(2), threads=1).outputs[0].name == "output"
    for wrong, message in (
        ({"output_names": ["a"]}, "3 different names, for add, mul, "),
        ({"output_names": ["a", "a", "b"]}, "3 different names"),
        ({"output_names": ["a", "b", "x"]}, "something else of the name x"),
        ({"input_names": []}, "not none"),
    ):
        with pytest.raises(InputError, match=message):
            graphc.from_torch(Pair(), torch.ones(2), **wrong)


def test_a_name_that_a_parameter_has():
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.output = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x + self.output, self.output

    model = graphc.from_torch(Named(), torch.ones(2), threads=1)
    found = model.run(x=np.ones(2, np.float32))
    assert [array.tolist() for array in found.values()] == [[2, 2], [1, 1]]


@pytest.mark.parametrize(
    ("module", "example", "free", "what", "where", "helps"),
    [
        (Outer(), torch.ones(3, 3), None, "aten._linalg_svd has no form in ONNX", "inner, test_from_torch.py", "other operators"),
        (Branch(), torch.ones(3), None, "depends on what a tensor holds", "if x.sum() > 0", "torch.where"),
        (Fixed(), torch.ones(5, 4), ({0: "n"},), "axis 0 of x is to be free", "", "leave this axis out"),
        (Fixed(), torch.ones(5, 4), ({0: torch.export.Dim("n")},), "axis 0 of x is to be free", "", "leave this axis out"),
        (Fixed(), torch.ones(7, 4), None, "length 5 at -2", "return x + self.table", "run with example_inputs"),
        (Fixed(), torch.ones(5, 4), {"y": {0: "n"}}, r"['y'], but the example gives forward", "", "the same names"),
        (Fixed(), (torch.ones(5), torch.ones(5)), None, "too many positional arguments", "", "run with example_inputs"),
    ],
)  # fmt: skip
def test_what_the_exporter_cannot_is_said_in_three_lines(capfd, module, example, free, what, where, helps):
    with pytest.raises(ModelError) as caught:
        graphc.from_torch(module, example, dynamic_shapes=free)
    first, *rest = str(caught.value).split("\n")
    assert first.startswith("PyTorch cannot export the module: ")
    assert what in first
    assert len(rest) == (2 if where else 1)
    assert where in rest[0]
    assert re.match(rf"  what helps: .*{helps}", rest[-1])
    assert len(str(caught.value)) < 500
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("module", "example", "message"),
    [
        (Pair(), None, "needs example_inputs"),
        (torch.export.export(Pair(), (torch.ones(2),)), torch.ones(2), "has its example already"),
        (len, torch.ones(2), "not a builtin"),
    ],
)
def test_arguments_that_do_not_go_together(module, example, message):
    with pytest.raises(InputError, match=message):
        graphc.from_torch(module, example)


def test_the_signature_has_all_that_compile_takes():
    theirs, ours = (inspect.signature(each).parameters for each in (graphc.compile, graphc.from_torch))
    assert theirs.keys() - {"source"} <= ours.keys()
    assert all(ours[name].default == each.default for name, each in theirs.items() if name != "source")
    assert inspect.Parameter.VAR_KEYWORD not in {each.kind for each in ours.values()}
