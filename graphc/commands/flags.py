"""Commands: help in which a flag is shown as what it is, an option that takes nothing; and what comes before all else."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from typer.core import TyperCommand, TyperGroup


def _plain(parameters: list[Any]) -> list[Any]:
    """The parameters; flags do not say that they are of a type."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command whose help shows flags without a type."""

    def invoke(self, ctx: Any) -> Any:
        """Run it, with ggml there first: that says if a processor is too old, where NumPy ends the process."""
        if self.name != "doctor":  # which says by itself what is wrong with ggml
            import_module("graphc.ggml_library")
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` too."""
        return _plain(super().get_params(ctx))


class Group(TyperGroup):
    """Commands together, whose help does so too."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` too."""
        return _plain(super().get_params(ctx))
