"""Rules, a module for each subject. Each has its `RULES` by what they are for; nothing lists the modules."""

from importlib import import_module
from pkgutil import iter_modules

from graphc.rewrite.engine import Rule


def rules_for(*purposes: str) -> list[Rule]:
    """The rules of all modules that are for these purposes, in the order of the purposes, and then of the modules."""
    modules = [import_module(each.name) for each in iter_modules(__path__, f"{__name__}.")]
    return [rule for purpose in purposes for module in modules for rule in module.RULES.get(purpose, ())]
