"""Files that onnxruntime's optimizer wrote, against onnxruntime on the same files."""

from __future__ import annotations

from pathlib import Path

import pytest
from microsoft_nodes import close, run_onnxruntime
from optimized_models import LEVELS, NETWORKS, drawn, optimized, used

from graphc.frontend.onnx import load
from graphc.ir import interp

WRITTEN = {
    ("residual", "extended"): {"microsoft.FusedConv"},
    ("residual", "all"): {"nchwc.Conv", "nchwc.MaxPool", "nchwc.GlobalAveragePool", "nchwc.ReorderOutput"},
    ("mobile", "all"): {"nchwc.Conv", "nchwc.ReorderInput"},
    ("pyramid", "all"): {"nchwc.Conv", "nchwc.AveragePool", "nchwc.Upsample", "nchwc.GlobalMaxPool"},
    ("lines", "extended"): {"microsoft.FusedConv", "microsoft.FusedGemm", "microsoft.FusedMatMul"},
}
"""Operators that a level writes for a network, on a processor on which onnxruntime has blocks."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("network", NETWORKS)
def test_levels(network: str, level: str, tmp_path: Path) -> None:
    proto, shape = NETWORKS[network](3)
    changed, feeds = optimized(proto, level, tmp_path), drawn({"x": shape})
    missing = WRITTEN.get((network, level), set()) - used(changed)
    assert not missing
    found = interp.run(load(changed), feeds)
    for name, wanted in run_onnxruntime(changed, feeds).items():
        close(found[name], wanted, 1e-5, 0, name)
