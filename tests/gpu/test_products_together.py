"""Products that read the same operand are one launch: with tails of their own, weights that change alone, and free sizes."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from emulated_device import fake

import graphc
from graphc.targets.ggml.program.launch import LAUNCH
from graphc.targets.ggml.run.executor import Executor

DEVICE = "emulated0"

WIDTHS = (8, 40, 72, 16, 128, 24)


@pytest.fixture(autouse=True)
def _device() -> None:
    fake()


class Branches(torch.nn.Module):
    """Linear layers of several widths, with a bias or without, of the same rows; each is read by a product of its own."""

    def __init__(self, inner: int = 64, depth: int = 0) -> None:
        super().__init__()
        self.before = torch.nn.ModuleList(torch.nn.Linear(inner, inner) for _ in range(depth))
        self.first = torch.nn.Linear(12, inner)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(inner, each, bias=each != 40) for each in WIDTHS)
        self.last = torch.nn.ModuleList(torch.nn.Linear(each, 8) for each in WIDTHS)
        self.odd = torch.nn.Linear(inner, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, 12]."""
        x = torch.tanh(self.first(x))
        for each in self.before:
            x = torch.tanh(each(x))
        read = [each(x) for each in self.layers]
        read[2] = torch.relu(read[2])
        found = [last(each) for last, each in zip(self.last, read, strict=True)]
        return torch.cat([*found, self.odd(x)], 1)


def launches(model: graphc.Model) -> Counter[str]:
    """How many of each kernel a run launches."""
    executor = next(each for each in vars(model).values() if isinstance(each, Executor))
    calls = [each for each in executor.program.calls if each.function == LAUNCH]
    return Counter(each.rendered.kernel.name.rstrip("_0123456789") for call in calls for each in call.launches.each)  # type: ignore[union-attr]


def compiled(net: torch.nn.Module, path: Path, rows: int | None, **options: str) -> None:
    """An engine for so many rows, or for any number."""
    dims = None if rows is not None else {"x": {0: torch.export.Dim("n", min=1)}}
    graphc.from_torch(net, (torch.zeros(rows or 2, 12),), dynamic_shapes=dims, **options).save(path)


def agrees(model: graphc.Model, net: torch.nn.Module, rows: int, bound: float) -> None:
    """The model computes what the module does."""
    x = torch.randn(rows, 12, generator=torch.Generator().manual_seed(rows))
    (result,) = model.run({"x": x.numpy()}).values()
    expected = net(x).detach().numpy()
    assert np.abs(result - expected).max() < bound * np.abs(expected).max()


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("rows", [None, 1])
def test_numbers(fast: bool, rows: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high" if fast else "highest")
    torch.manual_seed(0)
    net = Branches().eval()
    compiled(net, tmp_path / "model.gguf", rows)
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE)) as model:
        for each in (1, 2, 67) if rows is None else (rows,):
            agrees(model, net, each, 2e-3 if fast else 2e-6)
        # two launches hold at most eight weights each: six matrices and five biases
        assert launches(model)["linear"] == 1 + 2 + len(WIDTHS) + 1


def test_a_weight_that_changes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Branches().eval()
    compiled(net, tmp_path / "model.gguf", None)
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE)) as model:
        agrees(model, net, 3, 2e-6)
        with torch.no_grad():
            net.layers[3].weight.add_(1)
        torch.save(net.state_dict(), tmp_path / "other.pt")
        model.load_weights(tmp_path / "other.pt")
        agrees(model, net, 3, 2e-6)
        assert launches(model)["linear"] == 1 + 2 + len(WIDTHS) + 1


def test_weights_that_are_streamed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Branches(512, depth=3).eval()
    compiled(net, tmp_path / "model.gguf", None)
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE, memory="2.5MiB")) as model:
        agrees(model, net, 3, 2e-6)


@pytest.mark.parametrize("rows", [None, 1])
def test_weights_in_blocks(rows: int | None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Branches(256).eval()
    compiled(net, tmp_path / "model.gguf", rows, dtype="q8_0")
    with closing(graphc.load(tmp_path / "model.gguf", device=DEVICE)) as model:
        agrees(model, net, rows or 5, 2e-2)
        # the smallest matrix stays float32, and is alone; the others, in order, are two launches
        assert launches(model)["linear"] == 1 + 3 + len(WIDTHS) + 1
