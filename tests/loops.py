"""Runs generated kernels through ggml, as the executor does, on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphc.ggml_library import ggml
from graphc.ir import TensorType
from graphc.kernels.scalar import Kernel, Scalar
from graphc.kernels.use import KernelUse
from graphc.ops.base import OPS, Op
from graphc.shapes import Dim, bind
from graphc.targets.ggml.program.tensor import STORAGE, storage_ne
from graphc.targets.ggml.run.kernels import LoadedKernel, load_kernels


class Fault(Exception):
    """What a kernel reported."""


def use_of(op: Op, arrays: Sequence[np.ndarray]) -> KernelUse:
    """The kernel of an operator for these inputs' types."""
    (result,) = op.infer(*(TensorType(array.dtype, array.shape) for array in arrays))
    return KernelUse(op, tuple((array.dtype, array.shape) for array in arrays), result.dtype, result.shape)


def compute(op: Op, *arrays: np.ndarray, threads: int = 1) -> np.ndarray:
    """What an operator's kernel gives for these inputs."""
    use = use_of(op, arrays)
    (kernel,) = load_kernels([use])
    return run(kernel, use, arrays, {}, threads)


def run(
    kernel: LoadedKernel, use: KernelUse, arrays: Sequence[np.ndarray], binding: Mapping[str, int], threads: int = 1
) -> np.ndarray:
    """Run a kernel in a graph of its own. Raises Fault."""
    shape = tuple(int(bind(size, binding)) for size in use.shape)
    size = sum(array.nbytes for array in arrays) + int(np.prod(shape)) * use.dtype.itemsize
    context = ggml.ggml_init(ggml.ggml_init_params(mem_size=size + (1 << 20), mem_buffer=None, no_alloc=False))
    try:
        inputs = [tensor_of(context, array) for array in arrays]
        pointers = (ctypes.POINTER(ggml.ggml_tensor) * max(len(inputs), 1))(*inputs)
        userdata = kernel.userdata(binding)
        address = ctypes.cast(userdata, ctypes.c_void_p)
        type = getattr(ggml, f"GGML_TYPE_{STORAGE[use.dtype]}")
        result = ggml.ggml_custom_4d(
            context, type, *storage_ne(shape), pointers, len(inputs), kernel.function, -1, address
        )
        ctypes.memset(result.contents.data, 0xA5, ggml.ggml_nbytes(result))
        graph = ggml.ggml_new_graph(context)
        ggml.ggml_build_forward_expand(graph, result)
        ggml.ggml_graph_compute_with_ctx(context, graph, threads)
        fault = kernel.fault(userdata)
        if fault:
            raise Fault(fault)
        values = np.empty(shape, use.dtype)
        if values.nbytes:
            ctypes.memmove(values.ctypes.data, result.contents.data, values.nbytes)
        return values
    finally:
        ggml.ggml_free(context)


def tensor_of(context: object, array: np.ndarray) -> object:
    """A tensor with an array's elements."""
    type = getattr(ggml, f"GGML_TYPE_{STORAGE[array.dtype]}")
    tensor = ggml.ggml_new_tensor_4d(context, type, *storage_ne(array.shape))
    if array.nbytes:
        ctypes.memmove(tensor.contents.data, np.ascontiguousarray(array).ctypes.data, array.nbytes)
    return tensor


Body = Callable[[Kernel, Sequence[Scalar]], Scalar]


@dataclass(frozen=True)
class Loop(Op):
    """An operator that is nothing but its loop body."""

    body: Body

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        return self.body(k, index)

    def __str__(self) -> str:
        return "Loop"


del OPS["Loop"]  # it is no operator of graphs


def loop(body: Body, dtype: np.dtype, shape: Sequence[Dim], *inputs: np.ndarray | tuple) -> KernelUse:
    """The kernel of a loop body; inputs are arrays, or pairs of dtype and shape."""
    types = tuple((x.dtype, x.shape) if isinstance(x, np.ndarray) else x for x in inputs)
    return KernelUse(Loop(body), types, dtype, tuple(shape))


def apply(body: Body, dtype: np.dtype, shape: Sequence[int], *inputs: np.ndarray, threads: int = 2) -> np.ndarray:
    """What a loop body gives."""
    return apply_all([body], dtype, shape, *inputs, threads=threads)[0]


def apply_all(
    bodies: Sequence[Body], dtype: np.dtype, shape: Sequence[int], *inputs: np.ndarray, threads: int = 2
) -> list[np.ndarray]:
    """What loop bodies give, compiled at once."""
    uses = [loop(body, dtype, shape, *inputs) for body in bodies]
    return [run(kernel, use, inputs, {}, threads) for kernel, use in zip(load_kernels(uses), uses, strict=True)]
