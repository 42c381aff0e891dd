"""The cases that do not pass, and why: the one list of what graphc cannot do of ONNX's backend tests.

`tests/test_suite.py` fails if a case that is listed passes, or if one that is not listed fails.
"""

from __future__ import annotations

REFUSED: dict[str, tuple[str, ...]] = {
    "gradients of graphs are not supported": ("test_gradient_of_add", "test_gradient_of_add_and_mul"),
}
"""Refused with a clear error, by reason."""

DIFFERENT: dict[str, tuple[str, ...]] = {
    "expected are the rounding errors of NumPy's float32 transform, where the exact result is 0": (
        "test_dft_inverse",
        "test_dft_inverse_opset19",
    ),
    "aligned corners of an axis whose size is rounded: onnx's reference goes on with the size that is not; the standard's "
    "formula, PyTorch (both of its exporters write this node, with scales, for F.interpolate) and onnxruntime with the one that "
    "the axis has": (
        "test_resize_downsample_scales_cubic_align_corners",
        "test_resize_downsample_scales_linear_align_corners",
    ),
}
"""Results beyond the tolerance, by reason: only where what is expected is not the better answer."""


DRAWN: dict[str, tuple[str, ...]] = {
    "the expected numbers are one draw of NumPy's generator, which no seed in the model determines; the standard says that they "
    "are for information only": (
        "test_bernoulli",
        "test_bernoulli_double",
        "test_bernoulli_double_expanded",
        "test_bernoulli_expanded",
        "test_bernoulli_seed",
        "test_bernoulli_seed_expanded",
    ),
}
"""Random results, by reason: of the right dtype and shape, and each as likely as what is expected."""


def expected_status(name: str) -> str:
    """What a case is known to do."""
    for status, lists in (("refused", REFUSED), ("wrong", DIFFERENT), ("drawn", DRAWN)):
        if any(name in names for names in lists.values()):
            return status
    return "pass"
