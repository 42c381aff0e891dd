"""What needs PyTorch, and is imported by nothing else. No other part of the package imports torch."""

from graphc.frontend.torch.exporter import from_torch

__all__ = ["from_torch"]
