"""Calls that have kernels of their own, a file for each kind. Importing this package imports all of them, which registers them
in `KERNELS`."""

from importlib import import_module
from pkgutil import iter_modules

from graphc.targets.ggml.generate.kernels.registry import KERNELS

__all__ = ["KERNELS"]

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)
