"""Which products stay float32 with `--fast`: those that hurt, as few as the wished error allows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_models import model, node, value
from ways import ways_in

import graphc
from graphc.backends import precision
from graphc.errors import InputError
from graphc.runtime.compare import relative_error
from graphc.runtime.rounding import choose_rounding
from graphc.targets.ggml.run.choose.library import load_own

own = load_own()
ROUNDS = pytest.mark.skipif(own is None or not own.multiplies_pairs, reason="the processor has no products of bfloat16")

RANDOM = np.random.default_rng(3)
INPUTS = {"x": RANDOM.standard_normal((40, 64)).astype(np.float32)}
SIZES = {"small": (32, 1e-3), "large": (48, 1), "smaller": (32, 1e-4), "less": (16, 0.1)}
WEIGHTS = {
    name: (RANDOM.standard_normal((64, columns)) / 8 * scale).astype(np.float32)
    for name, (columns, scale) in SIZES.items()
}
EXACT = {"y": np.concatenate([INPUTS["x"].astype(np.float64) @ weight for weight in WEIGHTS.values()], -1)}
HURTS, LESS = "product f32 64x48x1x1 number 1", "product f32 64x16x1x1 number 1"
BOUND = 1e-3
"""Less than the error of the large product, and more than that of the next."""


def products() -> onnx.ModelProto:
    """Four products side by side, of which three are of smaller numbers."""
    nodes = [node("MatMul", f"x {name}", f"{name}_y") for name in WEIGHTS]
    together = node("Concat", " ".join(f"{name}_y" for name in WEIGHTS), "y", axis=1)
    return model([*nodes, together], [value("x", ["t", 64])], ["y"], WEIGHTS)


@pytest.fixture
def fast(monkeypatch, tmp_path):
    """A process chooses for all its products; the choice is taken back."""
    monkeypatch.setattr(precision, "_opened", set[str]())
    monkeypatch.setattr(precision, "_chosen", "high")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHC_WAYS", raising=False)


@ROUNDS
@pytest.mark.usefixtures("fast")
def test_what_hurts_stays_float32():
    loaded = graphc.compile(products(), threads=2)
    assert relative_error(loaded.run(INPUTS), EXACT) > BOUND
    found = choose_rounding(loaded, INPUTS, BOUND, {})
    assert list(found.errors)[:2] == [HURTS, LESS]
    assert found.kept == 1
    assert {name: line.split()[0] for name, line in found.lines.items()} == {
        name: "float32" if name == HURTS else "bfloat16" for name in found.errors
    }
    assert sorted(found.errors)[1:3] == [f"product f32 64x32x1x1 number {number}" for number in (1, 2)]
    assert found.error <= BOUND < found.error_of_all
    assert relative_error(loaded.run(INPUTS), EXACT) == pytest.approx(found.error, rel=0.01)


@ROUNDS
@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(("bound", "kept"), [(1.0, 0), (0.0, 4)])
def test_as_few_as_the_error_allows(bound, kept):
    loaded = graphc.compile(products(), threads=1)
    found = choose_rounding(loaded, INPUTS, bound, {})
    assert (found.kept, len(found.errors)) == (kept, 4)
    assert (found.error == 0) == (kept == 4)


@ROUNDS
@pytest.mark.usefixtures("fast")
def test_the_choice_is_remembered_beside_ways_and_followed(graphc_command, tmp_path):
    onnx.save(products(), path := tmp_path / "model.onnx")
    options = ("--fast", "--threads", 2, "--dim", "t=40")
    done = graphc_command("tune", path, *options, "--error", BOUND, "--json", "--output", "ways.txt")
    assert done.status == 0, done.err
    told = json.loads(done.out)
    chosen = ways_in(Path(told["file"]).read_bytes())
    assert chosen == ways_in(Path("ways.txt").read_bytes())
    assert [name for name, way in chosen.items() if way == "float32"] == list(told["rounding"]["errors"])[:1] == [HURTS]
    said = graphc_command("tune", path, *options, "--error", BOUND).out
    assert f"1 of 4 products stay float32: the error is {told['rounding']['error']:.1e}" in said
    assert relative_error(graphc.compile(path, threads=2).run(INPUTS), EXACT) <= BOUND


def test_where_nothing_is_rounded_there_is_no_error_to_choose_by():
    with pytest.raises(InputError, match="--error is for the CPU with --fast"):
        choose_rounding(graphc.compile(products(), threads=1), INPUTS, BOUND, {})
