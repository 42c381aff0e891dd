"""Seeded modules and inputs, made without any download."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from zoo.example import Built


def noise(*shape: int, seed: int = 1) -> Tensor:
    """Normal float32 numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tokens(count: int, vocabulary: int, seed: int = 1) -> Tensor:
    """One sequence of token ids, int64 of shape [1, count]."""
    return torch.randint(vocabulary, (1, count), generator=torch.Generator().manual_seed(seed))


def architecture(path: str, gain: float = 1.0, **config: Any) -> Any:
    """The module class at `path` of diffusers or transformers, built from a configuration, with seeded weights."""
    module_name, _, class_name = path.rpartition(".")
    model_class = getattr(import_module(module_name), class_name)
    if path.startswith("transformers."):
        return randomize(model_class(model_class.config_class(**config)), gain)
    return randomize(model_class(**config), gain)


def built(module: nn.Module, inputs: dict[str, Tensor], *fields: str) -> Built:
    """A module whose own forward takes these inputs by name and whose result has these fields."""

    def forward(call: Callable[..., object], *tensors: Tensor) -> tuple[Tensor, ...]:
        result = call(**dict(zip(inputs, tensors, strict=True)))
        return tuple(getattr(result, field) for field in fields)

    return with_forward(module, forward), inputs


def with_forward(module: nn.Module, forward: Callable[..., Tensor | tuple[Tensor, ...]]) -> nn.Module:
    """Give a module another forward; `forward` gets the module's own one, then the inputs.

    A wrapping module would do the same, but put its own name before every parameter's: a published
    checkpoint's names are worth keeping.
    """
    module.__dict__["forward"] = partial(forward, module.forward)
    return module


@torch.no_grad()
def randomize(module: nn.Module, gain: float = 1.0, seed: int = 0) -> nn.Module:
    """Give every weight a value that matters, in place, and set the module to eval mode.

    Libraries start many weights at 0 or 1 (biases, norms, zero convolutions, gates): a compiler that forgot
    such a weight would still be right. Here matrices and kernels are normal, scaled by gain / sqrt(fan-in),
    other tensors of two axes and more (embeddings, tables) by 1/2, scales are 1 + 0.1 n and biases 0.05 n.
    Buffers stay, except a batch norm's statistics: mean 0.1 n, variance in [0.5, 1.5].
    """
    generator = torch.Generator().manual_seed(seed)
    for owner in module.modules():
        for name, parameter in owner.named_parameters(recurse=False):
            parameter.normal_(generator=generator)
            if parameter.ndim < 2:
                _ = parameter.mul_(0.05) if "bias" in name else parameter.mul_(0.1).add_(1)
            else:
                parameter.mul_(0.5 if (inputs := fan_in(owner)) is None else gain / inputs**0.5)
        if isinstance(owner, _BatchNorm) and owner.running_mean is not None and owner.running_var is not None:
            owner.running_mean.normal_(0, 0.1, generator=generator)
            owner.running_var.uniform_(0.5, 1.5, generator=generator)
    return module.eval().requires_grad_(False)


def fan_in(owner: nn.Module) -> int | None:
    """How many products one output element of a layer sums; None where the layer is no such sum."""
    match owner:
        case nn.ConvTranspose1d() | nn.ConvTranspose2d():
            steps = [max(1, size // stride) for size, stride in zip(owner.kernel_size, owner.stride, strict=True)]
            return owner.in_channels // owner.groups * torch.Size(steps).numel()
        case nn.Linear() | nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return owner.weight[0].numel()
    if type(owner).__name__ == "Conv1D":  # GPT-2's linear layer, stored as [inputs, outputs]
        return owner.get_parameter("weight").shape[0]
    return None
