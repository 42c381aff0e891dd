"""From a PyTorch module, through PyTorch's ONNX exporter. The only file of the package that imports torch."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.compiler import compile
from graphc.errors import GraphcError, ModelError
from graphc.runtime.model import Model

if TYPE_CHECKING:
    import torch

OPSET = 23
"""The opset that is asked of the exporter: the first in which attention and all normalizations are operators."""


def from_torch(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | dict[str, Any],
    output: str | os.PathLike[str] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    **settings: Any,
) -> Model:
    """Compile a module for inputs like the example's: a tuple of positional arguments, or a dict of keyword arguments.

    `output` is where the engine file goes; `settings` are those of `graphc.compile`. The module is exported in evaluation
    mode and left as it was. Raises GraphcError if torch is not installed, ModelError if the module cannot be exported.
    """
    try:
        import torch
    except ImportError as error:
        raise GraphcError("from_torch needs PyTorch; install graphc[export]") from error
    keywords = example_inputs if isinstance(example_inputs, dict) else None
    arguments = () if keywords is not None else tuple(_as_sequence(example_inputs))
    training = module.training
    temporary = tempfile.TemporaryDirectory(prefix="graphc-", ignore_cleanup_errors=True)  # Windows keeps mapped files
    with temporary as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        try:
            torch.onnx.export(
                module.eval(),
                arguments,
                path,
                kwargs=keywords,
                input_names=list(input_names) if input_names else None,
                output_names=list(output_names) if output_names else None,
                opset_version=OPSET,
                dynamo=True,
                optimize=False,  # the exporter's optimizer folds parameters into nameless constants
                external_data=True,
                verbose=False,
            )
        except Exception as error:
            raise ModelError(f"PyTorch could not export the module: {error}") from error
        finally:
            module.train(training)
        return compile(path, output, **settings)


def _as_sequence(example: Any) -> Sequence[Any]:
    return example if isinstance(example, tuple | list) else (example,)
