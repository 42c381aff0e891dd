"""PyTorch's tensors and NumPy's arrays, over the same memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

from graphc.errors import InputError

OTHERS: Mapping[torch.dtype, tuple[torch.dtype, np.dtype]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e4m3fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
    torch.float8_e5m2fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2fnuz)),
}
"""Types that NumPy has from another package, and by which type as many bytes are handed over."""

BACK: Mapping[np.dtype, tuple[torch.dtype, torch.dtype]] = {
    array: (carried, own) for own, (carried, array) in OTHERS.items()
}
"""The same from NumPy's types."""


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's elements, where they lie. Raises InputError for a tensor that is not on the CPU, or of no dense numbers."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise InputError(f"a tensor of layout {tensor.layout} on {tensor.device}; it must be dense, on the CPU")
    tensor = tensor.detach().resolve_neg()
    carried = OTHERS.get(tensor.dtype)
    try:
        return tensor.numpy() if carried is None else tensor.view(carried[0]).numpy().view(carried[1])
    except (TypeError, RuntimeError) as error:
        raise InputError(f"a tensor of {tensor.dtype}: {error}") from error


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """An array's elements, where they lie."""
    carried: Any = BACK.get(array.dtype)
    if carried is None:
        return torch.from_numpy(array)
    same = np.dtype(f"i{array.itemsize}" if carried[0].is_signed else f"u{array.itemsize}")
    return torch.from_numpy(array.view(same)).view(carried[1])
