"""Kernels without a C compiler: ggml calls back, and the operator's `eval` computes the result on views of the tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.ggml_library import ggml
from graphc.ir.interp import bound
from graphc.kernels.use import KernelUse
from graphc.shapes import Dim, bind, integer, product


def new_userdata(symbols: Sequence[str], binding: Mapping[str, int], arguments: Sequence[Dim | float] = ()) -> Any:
    """A `graphc_kernel_data`: no fault, the values of the symbols, 0 for one that is not known yet, nor needed, and arguments."""
    values = [binding.get(symbol, 0) for symbol in symbols]
    values += [_bits(each) if isinstance(each, float) else integer(each, binding) for each in arguments]
    return (ctypes.c_int64 * (1 + len(values)))(0, *values)


def _bits(number: float) -> int:
    return int(np.float64(number).view(np.int64))


class EvaluatedKernel:
    """A kernel that is a Python function. ggml calls it once for each of its threads; the first does all the work."""

    def __init__(self, use: KernelUse, symbols: Sequence[str]) -> None:
        self.use, self.symbols = use, tuple(symbols)
        self.messages: dict[int, str] = {}
        self.function = ggml.ggml_custom_op_t(self._run)

    def userdata(self, binding: Mapping[str, int]) -> Any:
        """See `LoadedKernel`."""
        return new_userdata(self.symbols, binding)

    def fault(self, userdata: Any) -> str | None:
        """See `LoadedKernel`."""
        return self.messages[ctypes.addressof(userdata)] if userdata[0] else None

    def _run(self, result: Any, ith: int, nth: int, userdata: int) -> None:
        if ith != 0:
            return
        data = (ctypes.c_int64 * (1 + len(self.symbols))).from_address(userdata)
        try:
            self._evaluate(result.contents, dict(zip(self.symbols, data[1:], strict=True)))
        except Exception as error:  # an exception cannot pass through ggml: it is reported after the run
            ctypes.memset(result.contents.data, 0, ggml.ggml_nbytes(result))  # what compiled kernels give there
            self.messages[userdata] = str(error) or type(error).__name__
            data[0] = 1

    def _evaluate(self, result: Any, binding: Mapping[str, int]) -> None:
        use = self.use
        inputs = [
            _view(result.src[i].contents.data, dtype, shape, binding) for i, (dtype, shape) in enumerate(use.inputs)
        ]
        (value,) = bound(use.op, binding).eval(*inputs)
        _view(result.data, use.dtype, use.shape, binding)[...] = value


def _view(address: int | None, dtype: np.dtype, shape: Sequence[Dim], binding: Mapping[str, int]) -> np.ndarray:
    """The elements at an address as an array."""
    sizes = [int(bind(size, binding)) for size in shape]  # type: ignore[arg-type]
    count = int(product(sizes))  # type: ignore[arg-type]
    if count == 0 or address is None:
        return np.empty(sizes, dtype)
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.ctypeslib.as_array(raw).view(dtype).reshape(sizes)
