"""Functions of one tensor that have settings: Clip and the activations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.types import BOOL, FLOATS, TensorType
from graphc.ops.base import Op, operators
from graphc.ops.functions import NUMBERS, erf
from graphc.ops.pointwise import on_dims, pointwise, widened
from graphc.shapes import Dim, dim_max, dim_min

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


_DEFINED: dict[str, type[Any]] = {}


def all_activations() -> Mapping[str, type[Any]]:
    """Every class of this kind by its name, from which importers, tests and pages have theirs."""
    operators()
    return _DEFINED


class Activation:
    """What operators on one tensor with settings share. Each says what NumPy computes, one element, and the calls for float32.

    Settings have defaults, which are ONNX's where it has the operator. The result has the input's dtype unless `gives` says
    otherwise.
    """

    takes: ClassVar[frozenset[np.dtype]] = FLOATS
    gives: ClassVar[np.dtype | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _DEFINED[cls.__name__] = cls

    @classmethod
    def usual(cls) -> dict[str, Any]:
        """The settings by name, as they are where nothing else is said."""
        return {each.name: each.default for each in fields(cls)}  # type: ignore[arg-type]

    def numpy(self, x: np.ndarray) -> Any:
        """The function of a float32, float64 or integer array."""
        raise NotImplementedError

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """The function of one element."""
        raise NotImplementedError

    def calls(self, b: Builder, x: Tensor) -> Tensor | None:
        """The function of a float32 tensor, or None where ggml has none."""
        return None

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if x.dtype not in self.takes:
            raise ShapeError(f"{type(self).__name__} does not take {x.dtype.name}")
        return (TensorType(self.gives or x.dtype, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        return (widened(self.numpy, self.gives or x.dtype, x),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """The calls, for floating-point tensors."""
        return pointwise(b, inputs, lambda x: self.calls(b, x))

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One element."""
        return self.scalar(k, k.load(0, index))


@dataclass(frozen=True)
class Clip(Activation, Op):
    """`min(max(x, low), high)`; a bound of None does not bind."""

    low: float | int | None = None
    high: float | int | None = None

    takes: ClassVar[frozenset[np.dtype]] = NUMBERS

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        x = x if self.low is None else np.maximum(x, x.dtype.type(self.low))
        return x if self.high is None else np.minimum(x, x.dtype.type(self.high))

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        if inputs[0].dtype == object:
            return (on_dims(self._of_dim, self.name, inputs[0]),)
        return super().eval(*inputs)

    def _of_dim(self, dim: Dim) -> Dim:
        dim = dim if self.low is None else dim_max(dim, int(self.low))
        return dim if self.high is None else dim_min(dim, int(self.high))

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        x = x if self.low is None else x.maximum(self.low)
        return x if self.high is None else x.minimum(self.high)


@dataclass(frozen=True)
class LeakyRelu(Activation, Op):
    """`x`, or `alpha * x` where x is negative."""

    alpha: float = 0.01

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        return np.where(x < 0, x * x.dtype.type(self.alpha), x)

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        return k.select(x < 0, x * self.alpha, x)


def _expm1_below(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.expm1(np.minimum(x, 0)))


@dataclass(frozen=True)
class Elu(Activation, Op):
    """`x`, or `alpha * (exp(x) - 1)` where x is negative."""

    alpha: float = 1.0

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        return np.where(x < 0, x.dtype.type(self.alpha) * _expm1_below(x), x)

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        return k.select(x < 0, k.call("expm1", x) * self.alpha, x)

    def calls(self, b: Builder, x: Tensor) -> Tensor | None:
        """See `Activation.calls`."""
        return b.unary("ggml_elu", x) if self.alpha == 1.0 else None


@dataclass(frozen=True)
class Selu(Activation, Op):
    """`gamma * x`, or `gamma * alpha * (exp(x) - 1)` where x is negative."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        return x.dtype.type(self.gamma) * np.where(x <= 0, x.dtype.type(self.alpha) * _expm1_below(x), x)

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        return k.select(x <= 0, k.call("expm1", x) * self.alpha, x) * self.gamma


@dataclass(frozen=True)
class Celu(Activation, Op):
    """`max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`."""

    alpha: float = 1.0

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        alpha = x.dtype.type(self.alpha)
        return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        return x.maximum(0) + (k.call("expm1", x / self.alpha) * self.alpha).minimum(0)

    def calls(self, b: Builder, x: Tensor) -> Tensor | None:
        """See `Activation.calls`."""
        return b.unary("ggml_elu", x) if self.alpha == 1.0 else None


@dataclass(frozen=True)
class Swish(Activation, Op):
    """`x * sigmoid(alpha * x)`."""

    alpha: float = 1.0

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        return x / (1 + np.exp(-x * x.dtype.type(self.alpha)))

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        return x / (k.call("exp", -(x * self.alpha)) + 1)

    def calls(self, b: Builder, x: Tensor) -> Tensor | None:
        """See `Activation.calls`."""
        return b.unary("ggml_silu", x) if self.alpha == 1.0 else b.gate(x, self.alpha)


@dataclass(frozen=True)
class HardSigmoid(Activation, Op):
    """`alpha * x + beta`, kept between 0 and 1."""

    alpha: float = 0.2
    beta: float = 0.5

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        return np.clip(x * x.dtype.type(self.alpha) + x.dtype.type(self.beta), 0, 1)

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        return (x * self.alpha + self.beta).maximum(0).minimum(1)


@dataclass(frozen=True)
class ThresholdedRelu(Activation, Op):
    """`x` where it is larger than `alpha`, else 0."""

    alpha: float = 1.0

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        return np.where(x > x.dtype.type(self.alpha), x, x.dtype.type(0))

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        return k.select(x > self.alpha, x, 0)


@dataclass(frozen=True)
class Shrink(Activation, Op):
    """`x + bias` below `-lambd`, `x - bias` above `lambd`, else 0."""

    bias: float = 0.0
    lambd: float = 0.5

    takes: ClassVar[frozenset[np.dtype]] = NUMBERS

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        bias = self.bias
        return np.where(x < -self.lambd, x + bias, np.where(x > self.lambd, x - bias, 0))

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        wide = x if x.dtype in FLOATS else k.cast(x, np.dtype(np.float64))
        zero = k.const(0, wide.dtype)
        shrunk = k.select(wide < -self.lambd, wide + self.bias, k.select(wide > self.lambd, wide - self.bias, zero))
        return k.cast(shrunk, x.dtype)


@dataclass(frozen=True)
class IsInf(Activation, Op):
    """True if an element is infinity of a sign that is looked for."""

    positive: bool = True
    negative: bool = True

    gives: ClassVar[np.dtype | None] = BOOL

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        return np.isinf(x) & ((x > 0) & self.positive | (x < 0) & self.negative)

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        above = x.eq(math.inf) if self.positive else k.const(False, BOOL)
        return above.or_(x.eq(-math.inf) if self.negative else k.const(False, BOOL))


@dataclass(frozen=True)
class Gelu(Activation, Op):
    """`x * Phi(x)`, Phi being the normal distribution: exactly ("none"), or approximated by a tanh ("tanh")."""

    approximate: str = "none"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        if self.approximate not in ("none", "tanh"):
            raise ShapeError(f"Gelu has no approximation {self.approximate!r}")
        return super().infer(*inputs)

    def numpy(self, x: np.ndarray) -> Any:
        """See `Activation.numpy`."""
        return _gelu_tanh(x) if self.approximate == "tanh" else _gelu(x)

    def scalar(self, k: Kernel, x: Scalar) -> Scalar:
        """See `Activation.scalar`."""
        if self.approximate == "tanh":
            return x * 0.5 * (k.call("tanh", (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)
        return x * 0.5 * (k.call("erf", x * math.sqrt(0.5)) + 1)

    def calls(self, b: Builder, x: Tensor) -> Tensor | None:
        """`ggml_gelu_erf`, or the tanh form; `ggml_gelu` reads a float16 table and is never used."""
        return _gelu_calls(b, x) if self.approximate == "tanh" else b.unary("ggml_gelu_erf", x)


def _gelu_calls(b: Builder, x: Tensor) -> Tensor | None:
    """0.5 x (1 + tanh(u)) is x sigmoid(2 u), where 2 u is x (c + 0.044715 c x²)."""
    c = 2 * math.sqrt(2 / math.pi)
    return b.gate(x, c, 0.044715 * c)


def _gelu(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return np.asarray(wide * 0.5 * (1 + erf(wide * math.sqrt(0.5))))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return np.asarray(wide * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))))
