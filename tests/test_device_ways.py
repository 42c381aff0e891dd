"""What composites become on devices: of which of ggml's calls, by the device's name and precision, by sizes, and by what it
supports. The numbers are nearly the same in each way, so that nothing but the calls shows it."""

from __future__ import annotations

from typing import Any

import pytest
from pretended import functions_with

from graphc.ggml_library import ggml
from graphc.targets.ggml.run.choose import building
from graphc.targets.ggml.run.choose.building import Building
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.device.devices import open_backends
from graphc.targets.ggml.run.device.tensors import new_context

OWN = load_own()

pytestmark = pytest.mark.skipif(OWN is None, reason="needs a C compiler")

IMAGE = (1, 1, 1, 1, 1, 1)
"""Strides, pads and dilations of a convolution of 3 x 3."""


class Device:
    """A graph's composites on a device of this name that supports all but some operators."""

    def __init__(self, monkeypatch, name: str, exact: bool = True, refused: str = "", choices: bytes = b"") -> None:
        functions = functions_with(lambda node: ggml.ggml_op_desc(node).decode() != refused)
        monkeypatch.setattr(building, "ggml_functions", lambda: functions)
        monkeypatch.setattr(building, "backend_name", lambda device: name)
        assert OWN is not None
        self.context = new_context(200)
        self.building = Building(OWN, self.context, 1, open_backends("cpu", 1), choices, uses_own=False, fast=not exact)

    def tensor(self, *ne: int) -> Any:
        """Some float32 tensor, sizes in ggml's order."""
        return ggml.ggml_new_tensor_4d(self.context, ggml.GGML_TYPE_F32, *ne)

    def calls(self, function: str, *args: Any) -> list[str]:
        """The operators of what a composite becomes, the result last."""
        found: list[str] = []

        def walk(node: Any) -> None:
            for source in node.contents.src:
                if source:
                    walk(source)
            if node.contents.op != ggml.GGML_OP_NONE:
                found.append(ggml.ggml_op_desc(node).decode())

        walk(self.building.call(function, args))
        return found

    def taken(self) -> str:
        """The way of the composite that was built last."""
        return next((way for _, way in self.building.taken()), "")


def attention(device: Device, queries: int, mask: bool = False) -> list[str]:
    """What attention of so many queries becomes."""
    q, k, v = (device.tensor(64, rows, 8, 1) for rows in (queries, 1024, 1024))
    return device.calls("graphc_attention", q, k, v, device.tensor(1024, queries, 1, 1) if mask else None, 0.5)


@pytest.mark.parametrize(
    ("name", "exact", "queries", "mask", "refused", "fused"),
    [
        ("Vulkan", True, 1024, False, "", True),
        ("Vulkan", True, 16, False, "", False),  # the scores are small
        ("Vulkan", True, 1024, True, "", False),  # masks would have to be float16
        ("Vulkan", True, 1024, False, "FLASH_ATTN_EXT", False),
        ("CUDA", True, 1024, False, "", False),  # it reads keys and values as float16
        ("CUDA", False, 1024, False, "", True),
    ],
)
def test_attention(monkeypatch, name, exact, queries, mask, refused, fused):
    device = Device(monkeypatch, name, exact, refused)
    assert ("FLASH_ATTN_EXT" in attention(device, queries, mask)) == fused
    assert device.taken() == ("flash" if fused else "scores")


def test_attention_reads_elements_that_lie_together(monkeypatch):
    device = Device(monkeypatch, "Vulkan")
    k, v = device.tensor(64, 1024, 8, 1), device.tensor(64, 1024, 8, 1)
    q = ggml.ggml_permute(device.context, device.tensor(1024, 64, 8, 1), 1, 0, 2, 3)
    assert device.calls("graphc_attention", q, k, v, None, 0.5) == ["PERMUTE", "CONT", "FLASH_ATTN_EXT"]


@pytest.mark.parametrize(("way", "queries", "expected"), [("scores", 1024, "scores"), ("flash", 16, "flash")])
def test_attention_in_the_way_that_was_chosen(monkeypatch, way, queries, expected):
    device = Device(monkeypatch, "Vulkan", choices=f"attention * = {way}".encode())
    attention(device, queries)
    assert device.taken() == expected


def convolution(device: Device, side: int, direct: bool = False, channels: int = 64) -> list[str]:
    """What a convolution of an image becomes."""
    kernel, image = device.tensor(3, 3, channels, 8), device.tensor(side, side, channels, 1)
    return device.calls("graphc_conv_2d", kernel, image, None, *IMAGE, direct, False)


@pytest.mark.parametrize(
    ("name", "side", "direct", "refused", "expected"),
    [
        ("Vulkan", 256, False, "", "direct"),
        ("Vulkan", 32, False, "", "columns"),
        ("Vulkan", 256, False, "CONV_2D", "columns"),
        ("Vulkan", 32, True, "", "direct"),
        ("CUDA", 256, False, "", "columns"),
        ("CUDA", 256, True, "", "direct"),
    ],
)
def test_convolutions(monkeypatch, name, side, direct, refused, expected):
    device = Device(monkeypatch, name, refused=refused)
    assert ("CONV_2D" in convolution(device, side, direct)) == (expected == "direct")
    assert device.taken() == expected


def test_a_convolution_is_not_direct_where_a_column_does_not_fit(monkeypatch):
    device = Device(monkeypatch, "Vulkan")
    assert "CONV_2D" not in convolution(device, 16, direct=True, channels=1 << 19)


@pytest.mark.parametrize(("way", "direct", "expected"), [("direct", False, "direct"), ("columns", True, "columns")])
def test_convolutions_in_the_way_that_was_chosen(monkeypatch, way, direct, expected):
    device = Device(monkeypatch, "CUDA", choices=f"conv_2d * = {way}".encode())
    convolution(device, 32, direct)
    assert device.taken() == expected


@pytest.mark.parametrize(
    ("name", "copied"),
    [("Vulkan", 2), ("CUDA", 0)],
)
def test_vulkan_multiplies_what_lies_together(monkeypatch, name, copied):
    device = Device(monkeypatch, name)
    wide, x = device.tensor(64, 8, 1, 1), device.tensor(64, 8, 1, 1)
    gaps = ggml.ggml_view_2d(device.context, wide, 32, 8, 256, 0)
    odd = ggml.ggml_view_2d(device.context, x, 32, 2, 128, 4)
    assert device.calls("graphc_linear", gaps, odd, False).count("CONT") == copied
    assert device.calls("graphc_linear", wide, x, False) == ["MUL_MAT"]


@pytest.mark.parametrize(("function", "operator"), [("graphc_gelu", "GELU_ERF"), ("graphc_silu", "SILU")])
def test_gates_in_one_step(monkeypatch, function, operator):
    device = Device(monkeypatch, "CUDA")
    x, other = device.tensor(8, 4, 1, 1), device.tensor(8, 4, 1, 1)
    (fused,) = device.calls(function, x, other)
    assert fused == {"graphc_gelu": "GEGLU_ERF", "graphc_silu": "SWIGLU"}[function]
    assert device.calls(function, x, None) == [operator]
    assert device.calls(function, x, device.tensor(8, 1, 1, 1)) == [operator, "MUL"]
    gaps = ggml.ggml_view_2d(device.context, device.tensor(16, 4, 1, 1), 8, 4, 64, 0)
    assert device.calls(function, gaps, other) == ["VIEW", operator, "MUL"]
    assert Device(monkeypatch, "CUDA", refused=fused).calls(function, x, other) == [operator, "MUL"]
