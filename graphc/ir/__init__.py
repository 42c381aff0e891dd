"""The graph IR that every stage between the frontend and a target works on."""

from graphc.ir.graph import Graph, Node, Source, Value, module_path, ordered
from graphc.ir.types import TensorType

__all__ = ["Graph", "Node", "Source", "TensorType", "Value", "module_path", "ordered"]
