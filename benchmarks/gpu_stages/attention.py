"""Attention of Stable Diffusion beside PyTorch's, in float16: the time of kernels by the device's events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import numpy as np
from gpu_stages.stage import Stage, captured, torch_on_gpu, torch_seconds
from onnx import TensorProto, helper

import graphc
from graphc.kernels.gpu.instructions import INSTRUCTIONS
from graphc.kernels.gpu.skeletons.attention import MOST_WIDTH, TILINGS, Tiling
from graphc.kernels.gpu.skeletons.attention_together import TogetherTiling, attention_together
from graphc.runtime.profile import profile
from graphc.targets.ggml.generate.kernels import attention as generating
from graphc.targets.ggml.run.device.devices import find_device
from graphc.targets.ggml.run.launches import form_for


@dataclass(frozen=True)
class Shape:
    """Heads of `size` numbers: so many queries of each of `batch` images see so many keys."""

    name: str
    batch: int
    heads: int
    queries: int
    keys: int
    size: int

    @property
    def operations(self) -> float:
        """Floating-point operations of both products."""
        return 4.0 * self.batch * self.heads * self.queries * self.keys * self.size

    def model(self) -> object:
        """As ONNX: q, k and v [batch, heads, queries or keys, size]."""
        node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
        rows = {"q": self.queries, "k": self.keys, "v": self.keys, "y": self.queries}
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, (self.batch, self.heads, count, self.size))
            for name, count in rows.items()
        ]
        graph = helper.make_graph([node], "attention", values[:3], values[3:])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)

    def arrays(self) -> dict[str, np.ndarray]:
        """Random q, k and v."""
        random = np.random.default_rng(0)
        return {
            name: random.standard_normal((self.batch, self.heads, count, self.size), np.float32)
            for name, count in (("q", self.queries), ("k", self.keys), ("v", self.keys))
        }


SHAPES = (
    Shape("SD 1.5 64x64, 8 heads of 40", 2, 8, 4096, 4096, 40), Shape("SD 1.5 32x32, 8 heads of 80", 2, 8, 1024, 1024, 80),
    Shape("SD 2.1 64x64, 5 heads of 64", 2, 5, 4096, 4096, 64), Shape("SDXL 64x64, 10 heads of 64", 2, 10, 4096, 4096, 64),
    Shape("SDXL 32x32, 20 heads of 64", 2, 20, 1024, 1024, 64), Shape("Flux, 24 heads of 128", 1, 24, 4608, 4608, 128),
    Shape("VAE 64x64, a head of 512", 1, 1, 4096, 4096, 512), Shape("VAE 128x128, a head of 512", 1, 1, 16384, 16384, 512),
    Shape("SD 1.5 64x64, 77 keys", 2, 8, 4096, 77, 40), Shape("SDXL 64x64, 77 keys", 2, 10, 4096, 77, 64),
)  # fmt: skip
TINY = (Shape("tiny", 1, 2, 70, 70, 40), Shape("tiny, 77 keys", 1, 2, 70, 77, 64))


OTHERS = {
    128: (
        Tiling(4, 2, 32, 2, False), Tiling(4, 2, 64, 2, False), Tiling(8, 2, 64, 1, False), Tiling(12, 1, 64, 1),
        Tiling(6, 1, 32, 2),
    ),
    64: (Tiling(8, 1, 64, 2), Tiling(8, 2, 64, 1), Tiling(4, 1, 64, 3)),
    40: (Tiling(8, 1, 64, 2), Tiling(4, 2, 32, 3, False)),
}  # fmt: skip
"""Tilings that are measured beside that of the kernel, by the size of heads."""
TOGETHER = {
    128: (TogetherTiling(3, 64, 1), TogetherTiling(1, 80, 2), TogetherTiling(1, 96, 2), TogetherTiling(2, 64, 1)),
    80: (TogetherTiling(3, 64, 1), TogetherTiling(1, 96, 2), TogetherTiling(1, 80, 2)),
    64: (TogetherTiling(2, 64, 2), TogetherTiling(1, 128, 3), TogetherTiling(1, 192, 2), TogetherTiling(1, 96, 3)),
    40: (TogetherTiling(1, 128, 2), TogetherTiling(1, 128, 3), TogetherTiling(1, 64, 4), TogetherTiling(1, 96, 3)),
}
"""The same for warps that multiply together, on Hopper."""


def attention(stage: Stage) -> None:
    """A line for each shape, one for PyTorch's time, and some for other tilings."""
    for shape in TINY if stage.tiny else SHAPES:
        given = shape.arrays()
        measured(stage, shape, given)
        if (torch := torch_on_gpu()) is not None:
            tensors = [torch.tensor(each, device="cuda", dtype=torch.float16) for each in given.values()]
            attend = torch.nn.functional.scaled_dot_product_attention
            seconds = min(torch_seconds(way, *tensors) for way in (attend, captured(attend, tensors)))
            stage.note(shape.name, seconds, runtime="PyTorch", operations=shape.operations)
    device = find_device(stage.device)
    together = form_for(device).has(INSTRUCTIONS["wgmma_half"])
    others = TOGETHER if together else OTHERS
    for shape in (
        TINY[:1] if stage.tiny else (each for each in (SHAPES[5], SHAPES[3], *SHAPES[:2]) if each.size in others)
    ):
        for tiling in others[shape.size]:
            with used(tiling):
                measured(stage, shape, shape.arrays(), tiling=str(tiling))


def measured(stage: Stage, shape: Shape, given: dict[str, np.ndarray], **facts: str) -> None:
    """A line with the time of the kernels."""
    model = graphc.compile(shape.model(), device=stage.device)
    steps = profile(model, given, rounds=stage.rounds)
    own = [each for each in steps if not each.step.startswith("pointwise")]  # float32 outside is the model's
    (y,) = model.run(given).values()
    expected = expected_rows(given, 16)
    error = float(np.abs(y[:, :, : expected.shape[2]] - expected).max() / np.abs(expected).max())
    stage.note(
        shape.name, sum(each.seconds for each in own), steps=" + ".join(each.step for each in steps), error=error,
        operations=shape.operations, **facts,
    )  # fmt: skip
    model.close()


@contextmanager
def used(tiling: Tiling | TogetherTiling) -> Iterator[None]:
    """Attention has another tiling meanwhile."""
    if isinstance(tiling, TogetherTiling):
        with mock.patch.object(generating, "attention_together", lambda what: attention_together(what, tiling)):
            yield
        return
    with mock.patch.dict(TILINGS, {MOST_WIDTH: tiling}, clear=True), mock.patch.object(generating, "MOST_TOGETHER", 0):
        yield


def expected_rows(given: dict[str, np.ndarray], count: int) -> np.ndarray:
    """What the first queries of each head find, in float64."""
    q, k, v = (each.astype(np.float64) for each in given.values())
    scores = q[:, :, :count] @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found: np.ndarray = (weights / weights.sum(-1, keepdims=True)) @ v
    return found
