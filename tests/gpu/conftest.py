"""What opening devices leaves in a process, undone behind each test."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from graphc.backends import precision
from graphc.kernels.gpu.instructions import UNTRIED
from graphc.targets.ggml.generate import kept


@pytest.fixture(autouse=True)
def _precision_stays_free() -> Iterator[None]:
    """Devices that tests open do not settle how exactly those of other tests compute."""
    before = set(precision._opened)
    yield
    precision._opened.clear()
    precision._opened.update(before)


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are generated for each test, which may have changed how; those of `test_kept_programs.py` are kept."""
    monkeypatch.setattr(kept, "WORTH_KEEPING", math.inf)


@pytest.fixture
def every_instruction() -> Iterator[None]:
    """Instructions that no device has run yet are taken like the others."""
    before = set(UNTRIED)
    UNTRIED.clear()
    yield
    UNTRIED.update(before)
