"""What devices get: the last target that they run."""

from __future__ import annotations

import pytest

from graphc.errors import BuildError
from graphc.kernels.gpu.code import target_for


@pytest.mark.parametrize(
    ("architecture", "target"),
    [
        ("sm_75", "sm_75"),
        ("sm_86", "sm_86"),
        ("sm_87", "sm_86"),
        ("sm_90", "sm_90"),
        ("sm_103", "sm_100"),
        ("sm_121", "sm_120"),
    ],
)
def test_the_target_of_an_architecture(architecture: str, target: str) -> None:
    assert target_for(architecture) == target


def test_what_one_architecture_alone_has() -> None:
    assert target_for("sm_90", "wgmma_commit();") == "sm_90a"
    with pytest.raises(BuildError, match="sm_100: sm_90 alone"):
        target_for("sm_100", "wgmma_commit();")


@pytest.mark.parametrize("architecture", ["sm_70", "", "gfx1100"])
def test_what_has_none(architecture: str) -> None:
    with pytest.raises(BuildError, match="sm_75 and later"):
        target_for(architecture)
