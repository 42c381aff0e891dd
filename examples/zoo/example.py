"""What an example is, and the decorator by which a family declares one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

Exporter = Literal["dynamo", "torchscript"]
Size = Literal["small", "full"]
Built = tuple[nn.Module, dict[str, Tensor]]
Config = Mapping[str, Any]
Axes = Mapping[str, Mapping[int, str]]

EXPORTERS: tuple[Exporter, ...] = get_args(Exporter)


@dataclass(frozen=True)
class Example:
    """A model of the zoo: how to build it, and what its exported file looks like.

    `build` gives a module in eval mode, seeded, whose forward takes the tensors beside it in their order,
    and returns a tensor or a tuple of tensors, one for each name of `outputs`.
    `refusals` says, for an exporter that cannot export the module, why.
    `dynamic` names the free axes of an input: {"sample": {0: "batch"}}. An axis that it leaves out is static.
    `static` says, for an exporter that cannot keep these axes free, why.
    """

    name: str
    build: Callable[[], Built]
    outputs: tuple[str, ...]
    size: Size = "small"
    refusals: Mapping[Exporter, str] = field(default_factory=dict)
    dynamic: Axes = field(default_factory=dict)
    static: Mapping[Exporter, str] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The first line of the builder's docstring."""
        return (self.build.__doc__ or "").partition("\n")[0]

    @property
    def exporters(self) -> tuple[Exporter, ...]:
        """The exporters that can export it."""
        return tuple(exporter for exporter in EXPORTERS if exporter not in self.refusals)

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, Tensor]:
        """Inputs with these sizes along the free axes; an axis whose name `sizes` has not keeps its size.

        A name may be the sum of two others. Larger inputs repeat the example's; repeated numbers are scaled, and
        repeated token ids shifted, so that no two rows of a batch are the same.
        """
        _, inputs = self.build()
        found = {}
        for name, tensor in inputs.items():
            for axis, dim in self.dynamic.get(name, {}).items():
                parts = dim.split(" + ")
                if all(part in sizes for part in parts):
                    tensor = repeated(tensor, axis, sum(sizes[part] for part in parts))
            found[name] = tensor
        return found


def repeated(tensor: Tensor, axis: int, size: int) -> Tensor:
    """The tensor cut or repeated to a size of an axis."""
    place = torch.arange(size)
    turn = (place // tensor.shape[axis]).reshape(-1, *[1] * (tensor.ndim - 1 - axis))
    result = tensor.index_select(axis, place % tensor.shape[axis])
    if tensor.is_floating_point():
        return result * (1 - turn / 16)
    ids = tensor.dtype == torch.int64 and bool((tensor > 1).any())
    return (result + 17 * turn) % (tensor.max() + 1) if ids else result


def example(
    *outputs: str,
    size: Size = "small",
    refusals: Mapping[Exporter, str] | None = None,
    dynamic: Axes | None = None,
    static: Mapping[Exporter, str] | None = None,
) -> Callable[[Callable[[], Built]], Example]:
    """Turn a builder into the Example of the same name, with these outputs."""

    def declare(build: Callable[[], Built]) -> Example:
        return Example(build.__name__, build, outputs, size, refusals or {}, dynamic or {}, static or {})

    return declare
