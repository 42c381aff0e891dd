"""Types of values: an element type (a numpy dtype, those of `foreign.py` included) and a shape of `Dim`s."""

from __future__ import annotations

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.foreign import foreign
from graphc.records import dataclass
from graphc.shapes import Dim, product

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
F16 = np.dtype(np.float16)
BF16 = foreign("bfloat16")
I8 = np.dtype(np.int8)
I16 = np.dtype(np.int16)
I32 = np.dtype(np.int32)
I64 = np.dtype(np.int64)
U8 = np.dtype(np.uint8)
BOOL = np.dtype(np.bool_)
STRING = np.dtype(object)

BYTES = (U8, I8)
FLOATS = frozenset({F16, BF16, F32, F64})
INTEGERS = frozenset(np.dtype(t) for t in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
NARROW = frozenset(
    foreign(name)
    for name in (
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
        "int4", "uint4", "int2", "uint2",
    )
)  # fmt: skip
"""Types of a byte or less in which nothing is computed: they are stored and converted. An element takes a byte."""

MOST_BYTES = 2**44
"""What no tensor exceeds: far more than a machine has, and so little that 64 bits suffice to count those of many tensors."""

MOST_AXES = 64
"""NumPy's arrays have no more."""


@dataclass(frozen=True)
class TensorType:
    """Element type and shape, in the model's order of axes."""

    dtype: np.dtype
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return product(self.shape)

    @property
    def nbytes(self) -> Dim:
        """Bytes that the elements take."""
        return self.size * self.dtype.itemsize

    def check_size(self) -> None:
        """Raise ShapeError if it has too many axes, or its known sizes, other than 0, are too many elements."""
        if self.rank > MOST_AXES:
            raise ShapeError(f"a tensor of {self.rank} axes, more than {MOST_AXES}")
        if product(size for size in self.shape if isinstance(size, int) and size) * self.dtype.itemsize > MOST_BYTES:
            raise ShapeError(f"a tensor of {self} is larger than {MOST_BYTES >> 40} TiB")

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"
