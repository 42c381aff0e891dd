"""The sections of a program: what a backend runs as one graph, between two calls that the host makes itself.

A section reads results of earlier ones where they own their memory; views of them it makes again. What depends on *steady* inputs
alone, which stay the same from run to run, is a section of its own before the others; most runs find it computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from graphc.errors import InputError
from graphc.records import dataclass
from graphc.shapes import Dim, Expr, symbols
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Program
from graphc.targets.ggml.program.prune import with_needed
from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Section:
    """Calls by their indices in the program; `reads` and `writes` are the calls whose results come from earlier sections and
    are read after this one, `inputs` and `outputs` the program's. `symbols` are the sizes that it depends on, `uses` how
    often the result of each call is read, `kernels` the program's that calls may run. One that is `steady` depends on steady
    inputs alone; `kept` are those of the `reads` that come from it."""

    calls: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    symbols: frozenset[str]
    uses: Mapping[int, int]
    kernels: tuple[int, ...]
    steady: bool = False
    kept: tuple[int, ...] = ()


def sections(program: Program, steady: Collection[int] = ()) -> list[Section | Call]:
    """What is to be done, in order; `steady` are indices of inputs. A program without calls of the host, and without calls that
    depend on steady inputs alone, is one section."""
    lasting = steady_calls(program, steady)
    parts: list[list[int] | Call] = [
        part if isinstance(part, Call) else [index for index in part if index not in lasting]
        for part in _parts(program)
    ]
    parts = [sorted(lasting), *parts] if lasting else parts
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
            kernels_run(program, calls),
            steady=bool(lasting) and number == 0,
            kept=tuple(sorted((owners - own) & lasting)),
        )
        if section.calls or outputs:
            steps.append(section)
    return steps


def steady_inputs(program: Program, names: Collection[str]) -> frozenset[int]:
    """The indices of inputs that stay the same from run to run. Raises InputError for names that there are not."""
    known = [each.name for each in program.inputs]
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"steady: the model has no input {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    return frozenset(map(known.index, names))


def steady_calls(program: Program, steady: Collection[int]) -> set[int]:
    """The calls that depend on these inputs and on weights alone, as far as they are worth keeping: those that multiply by a
    matrix of weights, what depends on these, and what these need."""
    if not steady:
        return set()
    from graphc.targets.ggml.program.cost import MOVES  # most models start without it

    fixed, given, worth = set[int](), set[int](), set[int]()
    for index, call in enumerate(program.calls):
        args = [arg for arg in call.args if isinstance(arg, Tensor)]
        known = [arg for arg in args if arg.weight >= 0 or arg.call in fixed]
        told = [arg for arg in args if arg.input in steady or arg.call in given]
        if call.function in (HOST, RESULT) or len(known) + len(told) < len(args):
            continue
        (given if told else fixed).add(index)
        multiplies = told and call.function not in MOVES and any(_is_matrix(program, arg) for arg in known)
        if multiplies or any(arg.call in worth for arg in args):
            worth.add(index)
    return with_needed(program.calls, worth)


def _is_matrix(program: Program, tensor: Tensor) -> bool:
    """True if a weight, or a part of one, has more than one axis; where kernels read it packed, its tensor may have only one."""
    shape = program.weights[tensor.weight].shape if tensor.weight >= 0 else tensor.ne
    return sum(size != 1 for size in shape) > 1


def kernels_run(program: Program, calls: Iterable[int]) -> tuple[int, ...]:
    """The program's kernels that calls run, or may run."""
    return tuple(sorted({kernel for index in calls for kernel in program.calls[index].kernels}))


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
    calls = [*calls]
    names = set(symbols(*sizes_of_tensors(program, calls, inputs, outputs)))
    return names.union(*(program.kernels[kernel].sizes() for kernel in _kernels_called(program, calls)))


def sizes_of_tensors(
    program: Program, calls: Iterable[int], inputs: Iterable[int], outputs: Iterable[int]
) -> dict[Expr, None]:
    """The sizes that are no numbers, none twice: of tensors and other arguments of calls, of inputs and outputs. What kernels
    read besides changes nothing of a graph."""
    sizes: list[Dim] = []
    for index in calls:
        call = program.calls[index]
        sizes += [arg for arg in call.args if isinstance(arg, Expr)]
        for tensor in (call.result, *(arg for arg in call.args if isinstance(arg, Tensor))):
            sizes += (*tensor.ne, *tensor.nb)
    for index in inputs:
        sizes += program.inputs[index].shape
    for index in outputs:
        sizes += (*program.outputs[index].shape, *program.outputs[index].tensor.ne)
    return dict.fromkeys(size for size in sizes if isinstance(size, Expr))


def _kernels_called(program: Program, calls: Iterable[int]) -> list[int]:
    return [program.calls[index].kernel for index in calls if program.calls[index].kernel >= 0]
