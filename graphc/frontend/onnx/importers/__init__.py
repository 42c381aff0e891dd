"""The importers, in one module for each group of operators. Importing this package imports all of them, which fills the table."""

from importlib import import_module
from pkgutil import walk_packages

for module in walk_packages(__path__, f"{__name__}."):
    import_module(module.name)
