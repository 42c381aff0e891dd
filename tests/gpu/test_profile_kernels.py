"""A profile of generated kernels: times of the device's events, rates of what the kernels do, and how near they come to the
roofline of the device's data sheet. The clock is set by the tests."""

from __future__ import annotations

import json

import pytest
from emulated_device import fake
from test_tuning_schedules import DEVICE, engine, pace

from graphc.kernels.gpu.devices import GPUS

__all__ = ["engine", "pace"]


def test_kernels_beside_the_roofline(graphc_command, engine, pace) -> None:
    fake()
    pace(lambda blocks, threads, shared: 2e-3)
    words = ("profile", engine, "--device", DEVICE, "--dim", "rows=40", "--rounds", 1)
    found = json.loads(graphc_command(*words, "--json").out)
    assert found["data_sheet"]["architecture"] == GPUS["h100"].architecture
    kernels = [each for each in found["steps"] if each["roofline"]]
    assert len(kernels) >= 3
    for each in kernels:
        launches = each["step"].count(",") + 1
        assert each["seconds"] == pytest.approx(2e-3 * launches, rel=1e-3)
        sheet = found["data_sheet"]
        memory = each["nbytes"] / sheet["bandwidth"]
        assert memory <= each["roofline"] <= memory + each["operations"] / sheet["single"]
    products = [each for each in kernels if each["step"].startswith("linear")]
    assert sum(each["operations"] for each in products) >= 2 * 40 * 48 * (48 + 48 + 72)
    assert all(each["nbytes"] >= 4 * 40 * 48 for each in products)
    shown = graphc_command(*words).out
    assert "by the data sheet of " in shown
    assert "TFLOP/s" in shown
    assert "of roofline" in shown


def test_a_kernel_at_the_roofline_reaches_all_of_it(graphc_command, engine, pace) -> None:
    fake()
    pace(lambda blocks, threads, shared: 1e-3)
    words = ("profile", engine, "--device", DEVICE, "--dim", "rows=40", "--rounds", 1, "--json")
    slow = json.loads(graphc_command(*words).out)["kinds"]
    pace(lambda blocks, threads, shared: 1e-4)
    fast = json.loads(graphc_command(*words).out)["kinds"]
    shares = [{each["name"]: each["roofline"] / each["seconds"] for each in kinds} for kinds in (slow, fast)]
    for name, share in shares[0].items():
        assert shares[1][name] == pytest.approx(10 * share, rel=0.05)
