"""Composite calls, a file for each kind. Importing this package imports all of them, which registers them in `COMPOSITES`."""

from importlib import import_module
from pkgutil import iter_modules

from graphc.targets.ggml.program.composites.composite import COMPOSITES, PREFIX, ActivationOrNone, Composite, Step

__all__ = ["COMPOSITES", "PREFIX", "ActivationOrNone", "Composite", "Step"]

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)
