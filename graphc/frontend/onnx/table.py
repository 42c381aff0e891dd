"""The table of importers: which function turns which ONNX operator into core operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from graphc.frontend.onnx.emit import SizeEmit
    from graphc.frontend.onnx.frame import Item
    from graphc.frontend.onnx.node import OnnxNode

Results: TypeAlias = "Item | tuple[Item | None, ...] | None"
"""What an importer returns: one value, or one for each output of the node (None for one that it does not make).
None alone leaves this form of the operator to the body that ONNX's schema gives."""

Importing: TypeAlias = "Callable[[OnnxNode, SizeEmit], Results]"

F = TypeVar("F", bound="Importing")

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""

IMPORTERS: dict[tuple[str, str], Importing] = {}
"""Importers by domain ("" is ai.onnx) and operator. One function knows every version's spelling of its operator."""


def onnx_op(*operators: str, domain: str = "") -> Callable[[F], F]:
    """Register the importer of one or several operators."""

    def register(function: F) -> F:
        for operator in operators:
            IMPORTERS[domain, operator] = function
        return function

    return register
