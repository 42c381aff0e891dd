"""The sections of a program: what a backend runs as one graph, between two calls that the host makes itself.

A section reads results of earlier ones where they own their memory; views of them it makes again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from graphc.records import dataclass
from graphc.shapes import Expr, symbols
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Program
from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Section:
    """Calls by their indices in the program; `reads` and `writes` are the calls whose results come from earlier sections and
    are read after this one, `inputs` and `outputs` the program's. `symbols` are the sizes that it depends on, `uses` how
    often the result of each call is read."""

    calls: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    symbols: frozenset[str]
    uses: Mapping[int, int]


def sections(program: Program) -> list[Section | Call]:
    """What is to be done, in order. A program without calls of the host is one section."""
    parts = list(_parts(program))
    read = [_read(program, part) for part in parts]
    steps: list[Section | Call] = []
    for number, part in enumerate(parts):
        if isinstance(part, Call):
            steps.append(part)
            continue
        calls, owners, inputs = read[number]
        own = set(part)
        later = set().union(*(read[after][1] for after in range(number + 1, len(parts))))
        outputs = [
            index
            for index, output in enumerate(program.outputs)
            if output.tensor.call in own or (output.tensor.call < 0 and number == len(parts) - 1)
        ]
        if len(parts) == 1:
            inputs = set(range(len(program.inputs)))
        names = sizes_read(program, calls, inputs, outputs)
        section = Section(
            tuple(sorted(calls)),
            tuple(sorted(owners - own)),
            tuple(sorted(own & later)),
            tuple(sorted(inputs)),
            tuple(outputs),
            frozenset(names),
            _uses(program, calls, [*(own & later), *(program.outputs[index].tensor.call for index in outputs)]),
        )
        if section.calls or outputs:
            steps.append(section)
    return steps


def _uses(program: Program, calls: Iterable[int], outside: Iterable[int]) -> Mapping[int, int]:
    """How often the result of each call is read: by these calls, and outside of them."""
    read = Counter(outside)
    for index in calls:
        read.update(arg.call for arg in program.calls[index].args if isinstance(arg, Tensor))
    return read


def _parts(program: Program) -> Iterator[list[int] | Call]:
    """Runs of calls of the backend, and the host's calls between them."""
    part: list[int] = []
    for index, call in enumerate(program.calls):
        if call.function == HOST:
            yield part
            yield call
            part = []
        elif call.function != RESULT:
            part.append(index)
    yield part


def _read(program: Program, part: Sequence[int] | Call) -> tuple[set[int], set[int], set[int]]:
    """The calls of a part with the earlier views that it needs, the calls whose memory it reads, and the inputs."""
    if isinstance(part, Call):
        args = [arg for arg in part.args if isinstance(arg, Tensor)]
        return set(), {arg.call for arg in args if arg.call >= 0}, {arg.input for arg in args if arg.input >= 0}
    calls, owners, inputs = set(part), set[int](), set[int]()
    waiting = list(part)
    while waiting:
        for arg in program.calls[waiting.pop()].args:
            if not isinstance(arg, Tensor):
                continue
            if arg.input >= 0:
                inputs.add(arg.input)
            elif arg.call >= 0 and arg.call not in calls:
                if program.is_view(arg):
                    calls.add(arg.call)
                    waiting.append(arg.call)
                else:
                    owners.add(arg.call)
            elif arg.call >= 0 and not program.is_view(arg):
                owners.add(arg.call)
    return calls, owners, inputs


def sizes_read(program: Program, calls: Iterable[int], inputs: Iterable[int], outputs: Iterable[int]) -> set[str]:
    """The names of the sizes that calls, inputs and outputs depend on: of tensors, arguments and kernels."""
    names: set[str] = set()
    for index in calls:
        call = program.calls[index]
        sizes = [arg for arg in call.args if isinstance(arg, Expr)]
        for tensor in (call.result, *(arg for arg in call.args if isinstance(arg, Tensor))):
            sizes += [size for size in (*tensor.ne, *tensor.nb) if isinstance(size, Expr)]
        names |= set(symbols(*sizes))
        if call.kernel >= 0:
            names |= program.kernels[call.kernel].sizes()
    for index in inputs:
        names |= set(symbols(*program.inputs[index].shape))
    for index in outputs:
        names |= set(symbols(*program.outputs[index].shape, *program.outputs[index].tensor.ne))
    return names
