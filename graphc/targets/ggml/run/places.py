"""What a section's calls may be given, each at its place in a list: numbers, sizes, tensors. What is the same for all sizes is
looked up once: a graph is built for each new size, and where a model writes tokens one by one, that is for each of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from graphc.ggml_library import ggml
from graphc.shapes import Expr
from graphc.targets.ggml.program.composites import COMPOSITES, ActivationOrNone
from graphc.targets.ggml.program.composites.activations import told
from graphc.targets.ggml.program.program import Call
from graphc.targets.ggml.program.tensor import Activation, Arg, Constant, Tensor


class Places:
    """The places. `fixed` is the list with what is always the same; the others have places with what belongs there: numbers of
    `weights`, of `inputs`, of calls of other sections whose results are `reads`, `sizes` and `activations`."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.fixed: list[Any] = []
        self.weights: list[tuple[int, int]] = []
        self.inputs: list[tuple[int, int]] = []
        self.reads: list[tuple[int, int]] = []
        self.sizes: list[tuple[int, Expr]] = []
        self.activations: list[tuple[int, Activation]] = []
        self._found: dict[Hashable, int] = {}
        self._own = {call.result.call for call in calls}

    def new(self, value: Any) -> int:
        """One more place, for this."""
        self.fixed.append(value)
        return len(self.fixed) - 1

    def of(self, arg: Arg) -> int:
        """The place of an argument."""
        key: Hashable = (arg.weight, arg.input, arg.call) if isinstance(arg, Tensor) else (type(arg), arg)
        if key in self._found:
            return self._found[key]
        place = self._found[key] = self.new(getattr(ggml, arg.name) if isinstance(arg, Constant) else arg)
        match arg:
            case Tensor() if arg.weight >= 0:
                self.weights.append((place, arg.weight))
            case Tensor() if arg.input >= 0:
                self.inputs.append((place, arg.input))
            case Tensor() if arg.call not in self._own:
                self.reads.append((place, arg.call))
            case Expr():
                self.sizes.append((place, arg))
            case Activation():
                self.activations.append((place, arg))
        return place


def told_args(call: Call) -> Sequence[Arg]:
    """What C is given for a call's arguments."""
    if call.function not in COMPOSITES:
        return call.args
    kinds = [*COMPOSITES[call.function].parameters.values()]
    kinds += [Tensor] * (len(call.args) - len(kinds))
    return [told(arg) if kind == ActivationOrNone else arg for kind, arg in zip(kinds, call.args, strict=True)]  # type: ignore[arg-type]
