"""The importers, in one module for each group of operators. Importing this package imports all of them, which fills the table."""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)
