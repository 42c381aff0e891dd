"""`graphc inspect`: what a model takes, gives, and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphc.commands import options
from graphc.commands.output import bytes_text, count_text, printable, say, say_json, say_table
from graphc.commands.run import open_program
from graphc.errors import InputError
from graphc.shapes import Dim, Expr, bind_known, integer, symbols
from graphc.shapes.ranges import range_of

if TYPE_CHECKING:
    from graphc.shapes.dim import Atom
    from graphc.targets.ggml.program.program import Input, Output, Program

LONGEST = 60
"""Characters of an expression that is shown as it is."""


def inspect(
    model: Annotated[
        Path,
        typer.Argument(
            help="An ONNX file, an engine file, or a checkpoint.", metavar="MODEL|ENGINE|CHECKPOINT", show_default=False
        ),
    ],
    compiling: options.Compiling,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show what lies in memory during a run, and from when to when.")
    ] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="Show how each stored weight is made from the model's parameters.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show inputs, outputs, operators, parameters, floating-point operations and memory.

    Operations and memory of a model with named sizes depend on them: `--dim` gives their values. Of a checkpoint, show its
    architecture, its components, and their types.
    """
    from graphc.commands.inspect_checkpoint import checkpoint_of, say_checkpoint
    from graphc.commands.inspect_memory import memory_of, say_memory
    from graphc.commands.inspect_weights import bytes_by_type, say_weights, sizes_text, weights_of
    from graphc.targets.ggml.engine import is_engine
    from graphc.targets.ggml.lowering.compose import composed
    from graphc.targets.ggml.program.cost import is_measured, operations, parameters, peak_bytes, weight_bytes
    from graphc.weights.checkpoint import is_checkpoint

    if is_checkpoint(model):
        say_json(checkpoint_of(model)) if as_json else say_checkpoint(model)
        return
    program = open_program(model, compiling.settings(model))
    operators: Counter[str] = Counter() if is_engine(model) else _operators(model)
    sizes = _sizes(program, compiling.sizes)
    if memory and (missing := _missing(program, sizes)):
        raise InputError(f"memory depends on {', '.join(missing)}: give them with --dim")
    if memory and not as_json:
        say(f"{printable(model)}: {printable(program.name)}")
        say()
        say_memory(program, sizes, mapped=is_engine(model))
        return
    if weights and not as_json:
        say(f"{printable(model)}: {printable(program.name)}")
        say()
        say_weights(program)
        return
    rows = sorted(operations(program), key=lambda row: -_magnitude(row.operations, sizes))
    total: Dim = sum((row.operations for row in rows), 0)
    known = not _missing(program, sizes) and not is_measured(program)
    peak = peak_bytes(composed(program), sizes) if known else None
    if as_json:
        say_json(
            {
                "name": program.name,
                "inputs": [_described(each) for each in program.inputs],
                "outputs": [_described(each) for each in program.outputs],
                "sizes": {name: asdict(range_of(atom)) for name, atom in _free(program).items()},
                "operators": dict(operators),
                "calls": [
                    {"call": row.operator, "count": row.calls, "operations": _number(row.operations, sizes)}
                    for row in rows
                ],
                "parameters": parameters(program),
                "weight_bytes": weight_bytes(program),
                "weight_types": bytes_by_type(program),
                "operations": _number(total, sizes),
                "peak_intermediate_bytes": peak,
                **({"memory": memory_of(program, sizes)} if memory else {}),
                **({"weights": weights_of(program)} if weights else {}),
            }
        )
        return
    say(f"{printable(model)}: {printable(program.name)}")
    say()
    _say_tensors("input", program.inputs)
    _say_tensors("output", program.outputs)
    for name, atom in _free(program).items():
        say(f"size     {printable(name)}: {range_of(atom).words()}")
    say()
    if operators:
        say("operators: " + ", ".join(f"{printable(name)} {count}" for name, count in operators.most_common()))
        say()
    table = [(row.operator, row.calls, _shown(row.operations, sizes)) for row in rows]
    say_table(("call", "count", "operations"), table, "lrr")
    say()
    say(f"parameters   {parameters(program):,} in {sizes_text(program)}")
    say(f"operations   {_shown(total, sizes)} for one run")
    if peak is not None:
        say(f"memory       {bytes_text(peak)} of intermediate results at least, beside the weights")
    elif is_measured(program):
        say("memory       depends on what the model computes")
    else:
        names = ", ".join(map(printable, _missing(program, sizes)))
        say(f"memory       depends on {names}: give them with --dim")


def _operators(path: Path) -> Counter[str]:
    """How often each operator occurs in a valid ONNX file, functions and branches not looked into."""
    import onnx

    nodes = onnx.load(path, load_external_data=False).graph.node
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes)


def _sizes(program: Program, dims: Mapping[str, int]) -> dict[str, int]:
    """The given values of the program's size symbols."""
    free = _free(program)
    return {name: size for name, size in dims.items() if name in free}


def _missing(program: Program, sizes: Mapping[str, int]) -> list[str]:
    return [name for name in _free(program) if name not in sizes]


def _free(program: Program) -> dict[str, Atom]:
    """The sizes that are chosen when running."""
    return symbols(*(size for each in program.inputs for size in each.shape))


def _number(count: Dim, sizes: Mapping[str, int]) -> int | str:
    bound = bind_known(count, sizes)
    return str(bound) if isinstance(bound, Expr) else bound


def _shown(count: Dim, sizes: Mapping[str, int]) -> str:
    bound = bind_known(count, sizes)
    if not isinstance(bound, Expr):
        return count_text(bound)
    text = str(bound)
    return text if len(text) <= LONGEST else f"depends on {', '.join(symbols(bound))}"


def _magnitude(count: Dim, sizes: Mapping[str, int]) -> int:
    """The count where unknown sizes are 64, to sort by."""
    return integer(count, {**dict.fromkeys(symbols(count), 64), **sizes})


def _described(each: Input | Output) -> dict[str, Any]:
    return {"name": each.name, "dtype": each.dtype.name, "shape": [_number(size, {}) for size in each.shape]}


def _say_tensors(kind: str, tensors: Sequence[Input | Output]) -> None:
    for each in tensors:
        say(f"{kind:<8} {printable(each.name)}: {each.dtype.name}[{', '.join(map(str, each.shape))}]")
