"""Export models of the zoo to ONNX, with the inputs and the outputs that PyTorch itself gives for them.

    python examples/export.py tiny_cnn sd15_unet --exporter dynamo --output models

writes models/tiny_cnn/dynamo/model.onnx and so on, each with inputs.npz and outputs.npz beside it.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy
import onnx_ir
import torch
from quiet import quiet
from torch import Tensor, nn
from torch.onnx import ONNXProgram
from zoo import EXAMPLES, EXPORTERS, Example, Exporter

OPSETS: dict[Exporter, int] = {"dynamo": 20, "torchscript": 17}
LARGE = 100_000_000
"""Weights of more bytes than this go to model.onnx.data."""


@quiet()
def export(
    example: Example,
    exporter: Exporter,
    folder: Path,
    opset: int | None = None,
    optimize: bool = True,
    dynamic: bool = False,
) -> Path:
    """Write model.onnx, inputs.npz and outputs.npz (float32, by PyTorch) into `folder`; return the model's path.

    Raises ValueError, with the reason, where the exporter cannot export this example. Files appear in the folder
    when all of them are complete. Without `optimize`, dynamo's graph is as translated: longer, but every parameter
    is there under its own name, where the optimizer transposes or fuses some into nameless constants.
    With `dynamic`, the axes that the example names stay free.
    """
    if reason := refusal(example, exporter, dynamic):
        raise ValueError(f"{example.name} cannot be exported with {exporter}: {reason}")
    module, inputs = example.build()
    if dynamic:  # an axis of size 1 would be taken for one that is always 1
        inputs = example.inputs({"batch": 2})
    large = sum(parameter.nbytes for parameter in module.parameters()) > LARGE
    run = partial(
        torch.onnx.export,
        module,
        tuple(inputs.values()),
        input_names=list(inputs),
        output_names=list(example.outputs),
        opset_version=opset or OPSETS[exporter],
        optimize=optimize,
        **(free_axes(module, example, exporter, list(inputs)) if dynamic else {}),
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as name, torch.no_grad():
        draft = Path(name)
        outputs = module(*inputs.values())
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        save(draft / "inputs.npz", inputs)
        save(draft / "outputs.npz", dict(zip(example.outputs, outputs, strict=True)))
        write_model(run, exporter, draft / "model.onnx", "model.onnx.data" if large else None)
        for path in sorted(draft.iterdir(), key=lambda path: path.name == "model.onnx"):
            path.replace(folder / path.name)
    return folder / "model.onnx"


def refusal(example: Example, exporter: Exporter, dynamic: bool) -> str | None:
    """Why an exporter cannot export an example; None if it can."""
    if dynamic and not example.dynamic:
        return "it has no free axes"
    return example.refusals.get(exporter) or (example.static.get(exporter) if dynamic else None)


def free_axes(module: nn.Module, example: Example, exporter: Exporter, names: list[str]) -> dict[str, Any]:
    """The exporter's own way to say which axes are free: dynamo takes them in the structure of forward's parameters."""
    axes = {name: dict(example.dynamic.get(name, {})) for name in names}
    if exporter == "torchscript":
        return {"dynamic_axes": axes}
    shapes = list(axes.values())
    found: list[Any] = []
    for parameter in signature(module.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found.append(tuple(shapes[len(found) :]))
        elif len(found) < len(shapes):
            found.append(shapes[len(found)])
    return {"dynamic_shapes": tuple(found)}


def write_model(run: Callable[..., ONNXProgram | None], exporter: Exporter, path: Path, data: str | None) -> None:
    """Run an exporter; the weights go to the file named `data` beside the model, or into the model."""
    if exporter == "dynamo":
        program = run(dynamo=True, verbose=False)
        assert program is not None
        onnx_ir.save(program.model, path, external_data=data)
        return
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        raw = Path(folder, path.name)
        run(f=str(raw), dynamo=False)
        if data:  # above 2 GB the exporter writes a file for every weight, below it one large model
            onnx_ir.save(onnx_ir.load(raw), path, external_data=data)
        else:
            raw.replace(path)


def save(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write named tensors as an .npz file."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    with path.open("wb") as file:
        numpy.savez(file, allow_pickle=False, **arrays)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Export models of the zoo to ONNX.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="models to export")
    parser.add_argument("--exporter", choices=EXPORTERS, default="dynamo")
    parser.add_argument("--output", type=Path, default=Path("models"), metavar="DIR")
    parser.add_argument("--opset", type=int, help=f"default: {OPSETS}")
    parser.add_argument("--raw", action="store_true", help="leave dynamo's graph unoptimized")
    parser.add_argument("--dynamic", action="store_true", help="leave the axes free that the example names")
    parser.add_argument("--list", action="store_true", help="list the models")
    options = parser.parse_args()
    if options.list:
        for example in EXAMPLES.values():
            print(f"{example.name:24} {example.size:6} {','.join(example.exporters):20} {example.about}")
        return
    if unknown := [name for name in options.names if name not in EXAMPLES]:
        parser.error(f"no such model: {', '.join(unknown)}; --list shows them")
    for name in options.names:
        if reason := refusal(EXAMPLES[name], options.exporter, options.dynamic):
            parser.error(f"{name} cannot be exported with {options.exporter}: {reason}")
    for name in options.names:
        start = perf_counter()
        folder = options.output / name / options.exporter
        path = export(EXAMPLES[name], options.exporter, folder, options.opset, not options.raw, options.dynamic)
        print(f"{path}  {perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
