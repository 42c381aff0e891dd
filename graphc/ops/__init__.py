"""The operators. Importing this package imports all its modules, which registers every operator in `base.OPS`."""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)
