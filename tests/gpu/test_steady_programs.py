"""Inputs that stay the same from run to run, on a device of generated kernels: keys and values of a prompt are launched once."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from emulated_device import fake
from exported_models import engine_of
from onnx import TensorProto, helper, numpy_helper

import graphc

pytest.importorskip("torch")

INPUTS = 30
"""What a part of a graph may take from another device at most, by ggml's scheduler."""


@pytest.mark.thorough
def test_a_unet(tmp_path_factory: pytest.TempPathFactory) -> None:
    fake()
    engine, inputs, _ = engine_of(tmp_path_factory, "sd15_unet_small")
    with (
        closing(graphc.load(engine, device="emulated0")) as plain,
        closing(graphc.load(engine, device="emulated0", steady=["encoder_hidden_states"])) as model,
    ):
        for number in range(3):
            if number == 1:
                inputs["encoder_hidden_states"] = inputs["encoder_hidden_states"] * np.float32(0.5)
            inputs["sample"] = inputs["sample"] + np.float32(number)
            expected = plain.run(inputs)
            for name, found in model.run(inputs).items():
                np.testing.assert_array_equal(found, expected[name])


def attending(count: int) -> object:
    """x times a weight times k_0 plus v_0, and so on: as many pairs depend on the steady input alone."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for number in range(count):
        for name, given in (("k", "words"), ("v", "words"), ("q", last)):
            weight = 1 / 8 + random.standard_normal((8, 8), np.float32) / 100
            weights.append(numpy_helper.from_array(weight, f"{name}_weight_{number}"))
            nodes.append(helper.make_node("MatMul", [given, weights[-1].name], [f"{name}_{number}"]))
        nodes.append(helper.make_node("MatMul", [f"q_{number}", f"k_{number}"], [f"product_{number}"]))
        nodes.append(helper.make_node("Add", [f"product_{number}", f"v_{number}"], [f"x_{number}"]))
        last = f"x_{number}"
    x, words, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in ("x", "words", last))
    graph = helper.make_graph(nodes, "attending", [x, words], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_more_kept_results_than_the_scheduler_passes_between_devices() -> None:
    fake()
    given = {"x": np.ones((8, 8), np.float32), "words": np.full((8, 8), 1 / 8, np.float32)}
    sizes = {name: each.shape for name, each in given.items()}
    with (
        closing(graphc.compile(attending(INPUTS))) as expected,
        closing(graphc.compile(attending(INPUTS), device="emulated0", steady=["words"])) as model,
    ):
        assert len(model.executor.sections(model.executor.program)[1].kept) > INPUTS
        kept = 2 * INPUTS * 8 * 8 * 4
        assert model.bytes_for(sizes) > kept
        for number in range(2):
            (found,), (right,) = (each.run(given).values() for each in (model, expected))
            np.testing.assert_allclose(found, right, rtol=1e-3, err_msg=f"run {number}")
        assert model.bytes_for(sizes) > kept
