"""Models whose weights are in blocks, on a device of generated kernels, beside the CPU."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulated_device import fake
from exported_models import exported
from onnx import TensorProto, helper, numpy_helper
from test_generated_programs import executor_of

import graphc
from graphc.frontend.onnx.table import MICROSOFT
from graphc.ggml_types import QUANTIZED
from graphc.runtime.compare import relative_error
from graphc.targets.ggml.program.launch import LAUNCH
from graphc.targets.ggml.program.tensor import Tensor

torch = pytest.importorskip("torch")


class Words(torch.nn.Module):
    """A table, and products."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = torch.nn.Embedding(70, 256), torch.nn.LayerNorm(256)
        self.first, self.second = torch.nn.Linear(256, 96), torch.nn.Linear(96, 256)
        self.heads = torch.nn.Linear(256, 71, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Of numbers of rows [N, T]."""
        x = self.table(ids)
        return self.heads(x + self.second(torch.nn.functional.silu(self.first(self.norm(x)))))


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize(("dtype", "types"), [
    (["*=q8_0"], {"Q8_0"}),
    (["*=q4_k"], {"Q4_K", "Q5_0"}),
    (["*=q6_k", "table*=q5_1", "heads*=q4_0"], {"Q6_K", "Q8_0", "Q5_1", "Q4_0"}),
    (["*=q2_k", "table*=q3_k", "heads*=q5_k", "second*=q4_1"], {"Q2_K", "Q3_K", "Q5_K", "Q4_1"}),
])  # fmt: skip
def test_a_model(dtype: list[str], types: set[str], count: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 70, (1, count))
    graphc.from_torch(Words().eval(), (ids,), dtype=dtype).save(tmp_path / "model.gguf")
    agrees_with_the_cpu(tmp_path / "model.gguf", {"ids": ids.numpy()}, types)


@pytest.mark.parametrize(("name", "type"), [("t5_encoder", "q8_0"), ("llama_cached", "q4_0"), ("swin", "q8_0")])
def test_models_of_the_zoo(name: str, type: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path, inputs, _ = exported(tmp_path_factory, name)
    graphc.compile(path, tmp_path / "model.gguf", threads=1, dtype=type).close()
    agrees_with_the_cpu(tmp_path / "model.gguf", inputs, {type.upper()})


@pytest.mark.parametrize("count", [1, 5])
def test_products_of_few_bits(count: int, tmp_path: Path) -> None:
    """Of 4 bits with zero points, and of 8 without, as language models have them."""
    random = np.random.default_rng(5)
    first = {
        "codes": random.integers(0, 256, (96, 4, 16)).astype(np.uint8),
        "scales": random.uniform(0.05, 0.1, (96, 4)).astype(np.float32),
        "zeros": random.integers(0, 256, (96, 2)).astype(np.uint8),
    }
    second = {
        "codes_2": random.integers(0, 256, (71, 3, 32)).astype(np.uint8),
        "scales_2": random.uniform(0.001, 0.002, (71, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node(
            "MatMulNBits", ["x", *first], ["h"], "first", N=96, K=128, bits=4, block_size=32, domain=MICROSOFT
        ),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node(
            "MatMulNBits", ["r", *second], ["y"], "second", N=71, K=96, bits=8, block_size=32, domain=MICROSOFT
        ),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 128), ("y", 71))
    )
    weights = [numpy_helper.from_array(array, name) for name, array in (first | second).items()]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph(nodes, "few_bits", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), tmp_path / "model.onnx")
    graphc.compile(tmp_path / "model.onnx", tmp_path / "model.gguf", threads=1).close()
    inputs = {"x": random.standard_normal((count, 128)).astype(np.float32)}
    agrees_with_the_cpu(tmp_path / "model.gguf", inputs, {"Q4_0", "Q8_0"})


def agrees_with_the_cpu(path: Path, inputs: dict[str, np.ndarray], types: set[str]) -> None:
    """A model whose weights in blocks are of these types, and read by kernels alone."""
    fake()
    with closing(graphc.load(path, threads=1)) as model:
        expected = model.run(inputs)
    with closing(graphc.load(path, device="emulated0", threads=1)) as model:
        found = model.run(inputs)
        program = executor_of(model).program
    assert {each.tensor.type for each in program.weights} & set(QUANTIZED) == types
    left = [call for call in program.calls if call.function != LAUNCH]
    assert not [call for call in left if any(isinstance(arg, Tensor) and arg.type in QUANTIZED for arg in call.args)]
    assert relative_error(found, expected) < 3e-6
