"""Inputs that stay the same from run to run, on a device of generated kernels: keys and values of a prompt are launched once."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from emulated_device import fake
from exported_models import engine_of

import graphc
from graphc.targets.ggml.program.launch import LAUNCH

pytest.importorskip("torch")


@pytest.mark.parametrize("fast", [False])
def test_a_unet(fast: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    fake()
    engine, inputs, _ = engine_of(tmp_path_factory, "sd15_unet_small")
    with (
        closing(graphc.load(engine, device="emulated0")) as plain,
        closing(graphc.load(engine, device="emulated0", steady=["encoder_hidden_states"])) as model,
    ):
        steady, rest = model.executor.sections(model.executor.program)
        launched = [each for each in model.executor.program.calls if each.function == LAUNCH]
        print(len(launched), len(steady.calls), len(rest.calls), len(rest.kept))
        for number in range(4):
            if number == 2:
                inputs["encoder_hidden_states"] = inputs["encoder_hidden_states"] * np.float32(0.5)
            inputs["sample"] = inputs["sample"] + np.float32(number)
            expected = plain.run(inputs)
            for name, found in model.run(inputs).items():
                np.testing.assert_array_equal(found, expected[name])
