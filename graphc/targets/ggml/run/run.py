"""One run of a program: what a backend computes as a graph, and what the host does between two of them (`host.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from graphc.shapes import Dim, integer
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.sections import Section
from graphc.targets.ggml.program.tensor import Tensor
from graphc.targets.ggml.run.context import Context
from graphc.targets.ggml.run.steady import Results


class Run:
    """One run of a program, in a context: the sections one after the other, and what the host does between them. Outputs go
    `into` arrays, where there are some that fit."""

    def __init__(
        self,
        context: Context,
        program: Program,
        inputs: Sequence[np.ndarray],
        binding: dict[str, int],
        into: Mapping[int, np.ndarray] = MappingProxyType({}),
    ) -> None:
        self.into = into
        self.context, self.program, self.inputs, self.binding = context, program, inputs, binding
        self.steps = context.executor.sections(program)
        self.made: dict[int, np.ndarray] = {}

    def results(self) -> list[np.ndarray]:
        """The program's outputs. Raises InputError for what does not fit."""
        outputs: dict[int, np.ndarray] = {}
        for step in self.steps:
            if isinstance(step, Call):
                self._host(step)
                continue
            made, found = self._steady(step) if step.steady else self._computed(step, self.into)
            self.made.update(made)
            outputs.update(found)
        return [
            outputs[index] if index in outputs else self._array(output.tensor, output.dtype, output.shape)
            for index, output in enumerate(self.program.outputs)
        ]

    def _computed(self, section: Section, into: Mapping[int, np.ndarray]) -> Results:
        return self.context.graph(self.program, section, self.binding).run(self.inputs, self.made, into)

    def _steady(self, section: Section) -> Results:
        """What is kept of earlier runs, or is from now on; outputs are copied, since whoever gets them may write into them."""
        sizes = {name: self.binding[name] for name in section.symbols}
        inputs = [self.inputs[index] for index in section.inputs]
        made, outputs = self.context.steady.of(sizes, inputs, lambda: self._computed(section, {}))
        return made, {index: array.copy() for index, array in outputs.items()}

    def _host(self, call: Call) -> None:
        from graphc.targets.ggml.run.host import perform  # with it come the operators of branches and loops

        assert call.host is not None
        args = [
            self._array(tensor, type.dtype, type.shape)
            for tensor, type in zip(call.args, call.host.inputs, strict=True)
            if isinstance(tensor, Tensor)
        ]
        results = perform(call.host, args, self, self.binding)
        for number, array in enumerate(results):
            self.made[call.result.call + 1 + number] = array

    def block(self, block: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What a program inside this one gives. Raises InputError for what does not fit."""
        return Run(self.context, block, arrays, self._inside(block, arrays)).results()

    def repeated(self, block: Program, args: Sequence[np.ndarray], carried: int) -> list[np.ndarray] | None:
        """What a loop gives that makes a step, if C can make all of them: see `repeated.py`."""
        from graphc.targets.ggml.run.repeated import Repetition, keeps_sizes, only_section

        executor, state = self.context.executor, args[2 : 2 + carried]
        section = only_section(block, executor.sections(block), carried)
        if section is None or not executor.repeats:
            return None
        graph = self.context.graph(block, section, self._inside(block, args))
        most = int(args[0].item())
        return Repetition(graph, state, args[2 + carried :]).run(most) if keeps_sizes(graph, state) else None

    def _inside(self, block: Program, arrays: Sequence[np.ndarray]) -> dict[str, int]:
        """The values of sizes inside a block that is given arrays."""
        from graphc.ops.control import settle

        binding = dict(self.binding)
        for declared, array in zip(block.inputs, arrays, strict=True):
            settle(binding, declared.shape, array, declared.name)
        return binding

    def _array(self, tensor: Tensor, dtype: np.dtype, shape: Sequence[Dim]) -> np.ndarray:
        """A tensor that is an input, or the result of an earlier call, in the model's terms."""
        array = self.inputs[tensor.input] if tensor.input >= 0 else self.made[tensor.call]
        binding = self.binding
        sizes = tuple([size if isinstance(size, int) else integer(size, binding) for size in shape])
        if array.shape == sizes and array.dtype == dtype and array.flags.c_contiguous:
            return array
        return np.ascontiguousarray(array).reshape(-1).view(dtype).reshape(sizes)
