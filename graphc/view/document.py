"""A program as the data of its page: the steps, what they read, the modules that they are in, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from graphc.errors import GraphcError
from graphc.kernels.gpu.analyse import cost
from graphc.runtime.profile import Timing, is_product, launched_name
from graphc.shapes import Dim, Expr, bind_known
from graphc.targets.ggml.lowering.compose import composed
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.cost import count_of, is_copy, numbered, traffic
from graphc.targets.ggml.program.launch import Launch
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Input, Output, Program
from graphc.targets.ggml.program.tensor import Activation, Arg, Constant, Tensor

Path: TypeAlias = tuple[str, ...]
Reference: TypeAlias = tuple[str, int]

BLOCKS: Mapping[str, Sequence[str]] = {"If": ("then", "else"), "Loop": ("body",)}
"""What the programs inside calls of the host are called."""

NORMS = ("norm", "soft_max", "softmax", "statistics")
"""Parts of the names of steps that normalize."""


def document(
    program: Program,
    sizes: Mapping[str, int],
    timings: Iterable[Timing] = (),
    texts: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What the page shows, as JSON: the calls as they run. Sizes without a value stay expressions; times of a step that ran often
    are summed. `texts` are those of the kernels of a program that was made for a device of generated kernels, by their names."""
    return Document(composed(program) if texts is None else program, sizes, timings, texts or {}).data


class Document:
    """The data while it is collected."""

    def __init__(
        self, program: Program, sizes: Mapping[str, int], timings: Iterable[Timing], texts: Mapping[str, str]
    ) -> None:
        self.sizes = sizes
        self.numbers = numbered(program)
        self.timings: dict[int, list[Timing]] = defaultdict(list)
        for each in timings:
            self.timings[each.number].append(each)
        self.inputs: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = [{} for _ in self.numbers]
        self.outputs: list[dict[str, Any]] = []
        self.collect(program, ())
        self.data = {
            "name": program.name,
            "sizes": dict(sizes),
            "timed": bool(self.timings),
            "inputs": self.inputs,
            "outputs": self.outputs,
            "weights": [
                {
                    "name": each.name,
                    "shape": self.shape(each.shape),
                    "type": each.type_name,
                    "bytes": each.nbytes,
                }
                for each in program.weights
            ],
            "steps": self.steps,
            "kernels": dict(texts),
        }

    def collect(self, program: Program, path: Path) -> None:
        """Add the inputs, steps and outputs of a program, which is in the module `path`."""
        first = len(self.inputs)
        self.inputs += [{**self.described(each), "path": path} for each in program.inputs]
        calls = [self.numbers[call] for call in program.calls]

        def reference(tensor: Tensor) -> Reference:
            if tensor.weight >= 0:
                return "weights", tensor.weight
            return ("steps", calls[tensor.call]) if tensor.call >= 0 else ("inputs", first + tensor.input)

        for call in program.calls:
            number = self.numbers[call]
            inside = (*path, *call.scope)
            if call.host is not None:
                inside = (*inside, f"{call.host.operator} {number}")
                names = BLOCKS.get(call.host.operator) or [block.name for block in call.host.blocks]
                for name, block in zip(names, call.host.blocks, strict=True):
                    self.collect(block, (*inside, name))
            reads = [reference(arg) for arg in call.args if isinstance(arg, Tensor)]
            self.steps[number] = {**self.step(program, call), "path": inside, "reads": reads}
        self.outputs += [
            {**self.described(each), "reads": [reference(each.tensor)], "path": path} for each in program.outputs
        ]

    def step(self, program: Program, call: Call) -> dict[str, Any]:
        """What a call is and costs, as measured where it was."""
        name, operations = count_of(program, call)
        name = launched_name(call) if call.launches is not None else name
        timed = self.timings.get(self.numbers[call], [])
        name = timed[0].step if timed else name
        kind = kind_of(call, name, timed[0].copies if timed else is_copy(program, call))
        return {
            "name": name.removeprefix("ggml_").removeprefix("graphc_"),
            "kind": kind,
            "source": call.source,
            "shape": self.shape(call.result.shape),
            "type": call.result.type.lower(),
            "settings": ", ".join(text for arg in call.args if (text := self.setting(arg))),
            "operations": self.operations(call, operations, timed),
            "bytes": sum(each.nbytes for each in timed) if timed else self.number(traffic(program, call)),
            "held": 0 if kind == "view" else self.number(call.result.nbytes),
            **({"launches": [self.launch(each) for each in call.launches.each]} if call.launches is not None else {}),
            **({"seconds": sum(each.seconds for each in timed), "runs": len(timed)} if timed else {}),
        }

    def operations(self, call: Call, counted: Dim, timed: Sequence[Timing]) -> int | str:
        """Of a call, or of its runs. Kernels of devices compute whole tiles, also where a tensor has ended."""
        if call.launches is None:
            return sum(each.operations for each in timed) if timed else self.number(counted)
        try:
            costs = [cost(each.rendered.kernel, self.sizes) for each in call.launches.each]
        except (GraphcError, KeyError):  # what a kernel reads decides, or a size is not known
            return "depends on sizes"
        return sum(each.blocks * each.arithmetic for each in costs) * (len(timed) or 1)

    def launch(self, launch: Launch) -> dict[str, Any]:
        """A kernel of a call, and how it is launched."""
        kernel = launch.rendered.kernel
        sizes = {"blocks": self.shape(kernel.grid), "threads": kernel.threads, "shared": kernel.shared_bytes}
        return {"kernel": kernel.name, **sizes}

    def described(self, each: Input | Output) -> dict[str, Any]:
        """An input or output in the model's terms."""
        return {"name": each.name, "shape": self.shape(each.shape), "type": each.dtype.name}

    def shape(self, shape: Sequence[Dim]) -> list[int | str]:
        """Sizes, the unknown ones as text."""
        return [self.number(size) for size in shape]

    def number(self, dim: Dim) -> int | str:
        """A count, or its expression."""
        bound = bind_known(dim, self.sizes)
        return str(bound) if isinstance(bound, Expr) else bound

    def setting(self, arg: Arg) -> str:
        """An argument that is not a tensor."""
        if isinstance(arg, Tensor) or arg is None:
            return ""
        if isinstance(arg, Activation):
            return " ".join([arg.name, *(f"{each:g}" for each in arg.numbers)])
        return (
            arg.name if isinstance(arg, Constant) else f"{arg:g}" if isinstance(arg, float) else str(self.number(arg))
        )


def kind_of(call: Call, name: str, copies: bool) -> str:
    """The kind by which the page colours a call that is computed by a step of this name."""
    if call.function in VIEWS or call.function == RESULT:
        return "view"
    if call.function == HOST:
        return "host"
    if copies:
        return "copy"
    if is_product(name):
        return "product"
    if any(part in name.lower() for part in NORMS):
        return "norm"
    return "kernel" if call.kernel >= 0 else "pointwise"
