"""A compiled model that runs in this process: arrays in, arrays out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.backends.precision import given_up
from graphc.errors import InputError
from graphc.records import dataclass
from graphc.runtime.lent import lent
from graphc.runtime.turns import Turns
from graphc.shapes import Dim, Expr, bind, integer, only_symbol, symbols
from graphc.shapes.ranges import SizeRange, range_of
from graphc.targets.ggml.program.program import Input, Program
from graphc.targets.ggml.run.device.options import CPU, Place, memory_limits
from graphc.targets.ggml.run.executor import Executor
from graphc.targets.ggml.run.rows import from_start

if TYPE_CHECKING:
    from graphc.runtime.added import Added
    from graphc.weights.checkpoint import Source
    from graphc.weights.embeddings import Vectors
    from graphc.weights.formats.tensors import Tensors
    from graphc.weights.lora.apply import Lora, Strength


@dataclass(frozen=True)
class TensorInfo:
    """Name, element type and sizes of an input or output; a size that is chosen when running is a symbol."""

    name: str
    dtype: np.dtype
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"

    def sizes(self, symbols: Mapping[str, int]) -> tuple[int, ...]:
        """Its sizes where symbols have these values. Raises InputError if one has none."""
        try:
            return tuple(integer(size, symbols) for size in self.shape)
        except KeyError as error:
            raise InputError(f"{self}: {error.args[0]} is not given") from None


class Model:
    """A program with its weights, ready to run, by several threads at once. Runs share the weights and the threads of the CPU: a
    graph that is begun while there are n runs is computed by an nth of the threads. There are at most as many runs at once as
    `graphc.load` says of `contexts`; others wait for their turn. A change of the weights waits for the runs before it, and later
    runs wait for it.

    Made by `graphc.compile` or `graphc.load`. `weights` holds an array for each of the program's weights, and `given` the
    parameters that they are made of, if they are known.
    """

    def __init__(
        self,
        program: Program,
        weights: Iterable[np.ndarray],
        *,
        given: Tensors | None = None,
        place: Place = CPU,
    ) -> None:
        self.program = program
        self.inputs = [TensorInfo(each.name, each.dtype, each.shape) for each in program.inputs]
        self.outputs = [TensorInfo(each.name, each.dtype, each.shape) for each in program.outputs]
        self._place = place
        self.executor = self._executor(program, weights)
        self._turns = Turns(self.executor.most_runs(place.contexts))
        self._changes = Turns(1)
        self._fitting: tuple[Program | None, list[Any], dict[str, int]] = None, [], {}
        self._given = given
        self._added: Added | None = None

    def _executor(self, program: Program, weights: Iterable[np.ndarray]) -> Executor:
        place, memory = self._place, memory_limits(self._place.memory)
        return Executor(
            program, weights, place.device, place.threads, memory, place.folder, place.trust_kernels, place.steady
        )

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, each)) or "nothing" for each in (self.inputs, self.outputs))
        weights = f"{len(self.program.weights)} weights, {self.weight_bytes / (1 << 20):.1f} MiB"
        return f"<graphc.Model {self.program.name}: {inputs} -> {outputs}; {weights}; on {self._place.device}>"

    def run(self, feed: Mapping[str, Any] | None = None, /, **arrays: Any) -> dict[str, np.ndarray]:
        """Outputs by name, for inputs by name, given as keywords or as one mapping: NumPy's arrays, or tensors of other libraries
        on the CPU, which are read where they lie (DLPack). Several threads may call it at once; what an array holds must not
        change before the run is over.

        Raises InputError that lists every missing or unknown name, wrong dtype, rank and size, and GraphcError once the model is
        closed.
        """
        return self.run_into({}, feed, **arrays)

    __call__ = run

    def run_into(
        self, targets: Mapping[str, Any], feed: Mapping[str, Any] | None = None, /, **arrays: Any
    ) -> dict[str, np.ndarray]:
        """The same as `run`, with the outputs that `targets` names written there: into arrays, or tensors of other libraries, of
        the output's type and sizes. One that lies in one piece gets the numbers without a copy between. Returned are all outputs,
        those of `targets` as arrays over the same memory. What is there after an error is not said.

        Raises InputError also for an output that there is not, and for a target that does not fit or cannot be written.
        """
        return self.run_unless(None, targets, feed, **arrays)

    def run_unless(
        self,
        stopped: Callable[[], bool] | None,
        targets: Mapping[str, Any],
        feed: Mapping[str, Any] | None = None,
        /,
        **arrays: Any,
    ) -> dict[str, np.ndarray]:
        """The same as `run_into`, but once `stopped()` is true the run ends soon, with a GraphcError. It is asked after each
        operation that the CPU computes, in whatever thread that is."""
        given = as_arrays(feed, arrays)
        into = self._targets(targets)
        with self._turns.one:
            inputs, binding = self._prepared(given)
            whole = {
                index: array
                for index, array in into.items()
                if array.flags.c_contiguous and not any(np.may_share_memory(array, each) for each in inputs.values())
            }
            self._check_targets(into, binding)
            results = self.executor.run(inputs, binding, whole, stopped)
        for index, array in into.items():
            _write(self.outputs[index], array, results[index])
            results[index] = array
        return {info.name: array for info, array in zip(self.outputs, results, strict=True)}

    def _prepared(self, given: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """See `prepared`. Of arrays like those of the run before it is known that they fit, and what sizes they imply."""
        alike = [(name, array.dtype, array.shape) for name, array in given.items()]
        program, before, binding = self._fitting
        if program is not self.program or before != alike:
            binding = check_inputs(self.program, given)
            self._fitting = self.program, alike, binding
        return from_start(self.program, given), dict(binding)

    def _targets(self, targets: Mapping[str, Any]) -> dict[int, np.ndarray]:
        """What outputs are written into, by their numbers. Raises InputError."""
        if not targets:
            return {}
        numbers = {info.name: index for index, info in enumerate(self.outputs)}
        if unknown := [name for name in targets if name not in numbers]:
            raise InputError(f"the model has no output {', '.join(unknown)}; it has {_list(numbers)}")
        found = {numbers[name]: array for name, array in as_arrays(targets, {}).items()}
        for index, array in found.items():
            name = self.outputs[index].name
            copied = array.size and not np.may_share_memory(array, lent(targets[name]))
            if copied or not array.flags.writeable:
                raise InputError(f"{name}: what it goes into cannot be written")
        return found

    def _check_targets(self, into: Mapping[int, np.ndarray], binding: Mapping[str, int]) -> None:
        """Raises InputError for those whose sizes are known before the run and do not fit."""
        for index, array in into.items():
            info = self.outputs[index]
            if symbols(*info.shape).keys() <= binding.keys():
                _check_target(info, array, info.sizes(binding))

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights, wherever they lie."""
        return sum(weight.nbytes for weight in self.program.weights)

    @property
    def reserved_bytes(self) -> int:
        """Bytes that are reserved for intermediate results, on all devices together: what the largest run so far needed, for
        each of the runs that happened at once."""
        return self.executor.compute_bytes

    def bytes_for(self, shapes: Mapping[str, Sequence[int]]) -> int:
        """Bytes that a run with inputs of these shapes needs for intermediate results, on all devices together and whatever they
        are allowed; nothing is computed or reserved. What only a run can tell is not counted.

        Raises InputError for shapes that the model does not take.
        """
        types = {each.name: each.dtype for each in self.inputs}
        given = {
            name: np.broadcast_to(np.zeros((), types.get(name, np.float32)), tuple(shape))
            for name, shape in shapes.items()
        }
        binding = check_inputs(self.program, given)
        with self._turns.one:
            return self.executor.bytes_for(binding)

    def release(self) -> None:
        """Give back the memory of intermediate results now; a later run reserves it anew. Waits for what other threads run."""
        with self.alone() as executor:
            executor.release()

    def page_out(self) -> None:
        """Let the system have the memory of intermediate results on the CPU, and of weights that lie in mapped files: a run
        reserves the former anew, and reads the latter again, as a rule from the system's cache. Weights that were copied stay;
        graphs too, unless weights stay rounded for them."""
        with self._turns.one:
            self.executor.page_out()

    def load_weights(self, source: Source, *, strict: bool = True, component: str | None = None) -> None:
        """Take the weights of another checkpoint of the same architecture.

        `source` is a file (safetensors, GGUF, or of `torch.save`), an index of shards, a folder, or arrays by name. It may have
        the names of another layout, and hold more than this model: the component that fits is taken, or else `component`
        ("unet", "text_encoder_2"; see `graphc inspect`). Where the checkpoint has a weight as it is stored, aligned, it is used
        where it lies in the file, and so is a part of each row that products read. If not `strict`, tensors that the model
        lacks are passed over, and weights stay as they are if the checkpoint has none of their parameters.

        Raises CheckpointError with all that does not fit, and EngineError if the engine does not say how its weights are
        made; the model is as before then.
        """
        from graphc.weights.refit import Refit

        with self._changes.all:
            added = self._begun()
            base = added.loras.base
            stored = [base.weight(index) for index in range(len(base.program.weights))]
            found = Refit(base.program, stored, source, strict=strict, component=component)
            arrays = self.executor.placed(map(found.array, range(len(stored))))
            self._use(replace(added, loras=added.loras.on(base.refitted(arrays.__getitem__, found.given))))

    @property
    def loras(self) -> dict[str, Lora]:
        """The LoRAs that are loaded, by name."""
        return {} if self._added is None else dict(self._added.loras.loaded)

    def load_lora(self, source: Source, strength: Strength = 1.0, name: str | None = None) -> Lora:
        """Add a LoRA (or LoHa, LoKr, LoCon, DoRA, …) to the weights; it stays when other weights are loaded.

        `source` is a file, a folder that PEFT wrote, or tensors by name; `name` is what it is called from now on, else it is
        called as the file is. `strength` is a number, or one for each component: `{"denoiser": 0.8, "text_encoder": 0.5}`. What
        the model does not have is in the result's `unmatched`, and a warning says it; what is for other components is not.

        Raises CheckpointError if the file is damaged, of another base, or changes weights that the engine does not tell exactly,
        InputError for a name that is taken or a strength that is not a number; the model is as before then.
        """
        with self._changes.all:
            added = self._begun()
            lora, after = added.loras.load(source, strength, name)
            self._use(replace(added, loras=after))
        return lora

    def set_lora(self, strengths: Mapping[str, Strength]) -> None:
        """Change strengths of LoRAs that are loaded, by name; 0 leaves one out. Raises InputError."""
        with self._changes.all:
            added = self._begun()
            self._use(replace(added, loras=added.loras.set(strengths)))

    def unload_lora(self, name: str | None = None) -> None:
        """Take off a LoRA, or all: the weights are what they were, bit for bit. Raises InputError for a name there is not."""
        with self._changes.all:
            added = self._begun()
            self._use(replace(added, loras=added.loras.unload(name)))

    @property
    def embeddings(self) -> dict[str, list[int]]:
        """The tokens of textual inversion that are loaded, and the ids of each."""
        return {} if self._added is None else self._added.embeddings.ids

    def load_embeddings(self, given: Mapping[str, Vectors]) -> dict[str, list[int]]:
        """Add tokens of textual inversion to a text encoder, each with as many vectors as its file has; their ids are returned.

        A file is AUTOMATIC1111's or diffusers', and may have vectors for several encoders: those as wide as this one's are
        taken. Vectors may also be an array [count, width]. The ids follow those that the model knows, and the table of tokens is
        in memory with them; they stay when other weights are loaded, and are in what `save` writes.

        Raises CheckpointError for a file that does not fit, InputError for a token that is loaded, and EngineError if the model
        has no table of tokens that can grow; the model is as before then.
        """
        with self._changes.all:
            added = self._begun()
            self._use(replace(added, embeddings=added.embeddings.load(given)))
            return {token: self.embeddings[token] for token in given}

    def unload_embeddings(self) -> None:
        """Take the tokens of textual inversion off again: the table is what it was."""
        with self._changes.all:
            added = self._begun()
            if added.embeddings.rows:
                self._use(replace(added, embeddings=added.embeddings.none()))

    def _begun(self) -> Added:
        """What is added to the weights. Only what changes them asks, in its turn."""
        if self._added is None:
            from graphc.runtime.added import nothing

            self._added = nothing(self.program, self.executor.arrays.__getitem__, self._given)
            self._given = None
        return self._added

    def _use(self, after: Added) -> None:
        """Have the weights that this makes, in another program if it takes one; what stays the same is not computed. The executor
        that is there stays if the other cannot be made. Runs go on until all is computed."""
        before, arrays = self._begun(), self.executor.arrays
        made = (after.weight(index, before, arrays) for index in range(len(after.loras.base.program.weights)))
        if not after.is_other_program(before):
            placed = self.executor.placed(chain(made, after.loras.factors))
            with self._turns.all:
                self.executor.replace_weights(placed)
                self._added = after
            return
        program = after.program()
        self.executor.check()
        executor = self._executor(program, chain(made, after.loras.factors))
        with self._turns.all:
            self.executor.close()
            self.executor, self.program, self._added = executor, program, after

    @contextmanager
    def alone(self) -> Iterator[Executor]:
        """The executor, while there is no other run and no change."""
        with self._changes.all, self._turns.all:
            yield self.executor

    @property
    def given_up(self) -> str:
        """What the device's products lack for float32's precision; empty if nothing. See `set_float32_matmul_precision`."""
        launched = self.executor.launched
        if launched is not None and not launched.generated.form.is_narrow:
            return ""
        names = [name for name in self.executor.backend_names if name != "CPU" or self.executor.rounds]
        return "; ".join(filter(None, dict.fromkeys(map(given_up, names))))

    def close(self) -> None:
        """Free the device's memory now, instead of when the model is collected. Waits for what other threads run; what they run
        later raises GraphcError."""
        with self.alone() as executor:
            executor.close()

    def save(self, path: str | os.PathLike[str], *, cpp: str | os.PathLike[str] | None = None) -> None:
        """Write the engine file, and with `cpp` the C++ project that runs it, whose class is called as the file is.

        Raises OSError, and GraphcError for what C++ cannot say.
        """
        from graphc.targets.ggml.engine import write_engine

        with self._changes.all:
            if cpp is not None:
                from graphc.targets.ggml.cpp import write_project

                write_project(self.program, cpp, Path(path).stem)
            write_engine(path, self.program, lambda index: self.executor.arrays[index])


def prepared(program: Program, given: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """What an executor is given to run: the arrays as the program reads them, and the values of its size symbols. Raises
    InputError."""
    binding = check_inputs(program, given)
    return from_start(program, given), binding


def as_arrays(feed: Any, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What was given by names and as keywords, in this machine's order of bytes. Raises InputError for what is not an array."""
    if feed is not None and not isinstance(feed, Mapping):
        raise InputError(f"arrays are given by name, as keywords or in one mapping, not as {type(feed).__name__}")
    found = {}
    for name, given in {**(feed or {}), **arrays}.items():
        if type(given) is np.ndarray and given.dtype.isnative:
            found[name] = given
            continue
        try:
            array = lent(given)
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
        found[name] = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return found


def _check_target(info: TensorInfo, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raises InputError if an output of these sizes cannot go there."""
    if array.dtype != info.dtype or array.shape != shape:
        there = f"{array.dtype.name}{list(array.shape)}"
        raise InputError(f"output {info.name} is {info.dtype.name}{list(shape)}, and where it goes there is {there}")


def _write(info: TensorInfo, array: np.ndarray, result: np.ndarray) -> None:
    """Put an output where it goes, unless it is there. Raises InputError."""
    if result is not array:
        _check_target(info, array, result.shape)
        array[...] = result


def check_inputs(program: Program, given: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The values of the size symbols that the arrays imply. Raises InputError with everything that does not fit."""
    declared = {each.name: each for each in program.inputs}
    problems = [f"{name}: missing" for name in declared if name not in given]
    problems += [
        f"{name}: the model has no such input (it has {_list(declared)})" for name in given if name not in declared
    ]
    binding: dict[str, int] = {}
    fitting = [each for each in program.inputs if each.name in given]
    for each in fitting:
        problems += _check_declaration(each, given[each.name], binding)
    if not problems:
        problems = [problem for each in fitting for problem in _check_sizes(each, given[each.name], binding)]
    if not problems:
        problems = [
            check.message for check in program.checks if bind(check.left, binding) != bind(check.right, binding)
        ]
    if problems:
        raise InputError("\n  ".join(["the inputs do not fit the model:", *problems]))
    return binding


def _check_declaration(declared: Input, array: np.ndarray, binding: dict[str, int]) -> Iterable[str]:
    """Dtype and rank; binds the symbols that stand alone as a size."""
    if array.dtype != declared.dtype:
        yield f"{declared.name}: dtype {array.dtype.name}, must be {declared.dtype.name}"
    if array.ndim != len(declared.shape):
        expected = f"[{', '.join(map(str, declared.shape))}]"
        yield f"{declared.name}: {array.ndim} axes {list(array.shape)}, must be {len(declared.shape)} {expected}"
        return
    for size, dim in zip(array.shape, declared.shape, strict=True):
        if (own := _symbol(dim)) is not None:
            binding.setdefault(own[0], int(size))


@lru_cache(maxsize=1024)
def _symbol(dim: Dim) -> tuple[str, SizeRange] | None:
    """The name and the range of the symbol that a size is, if it is nothing else."""
    atom = only_symbol(dim)
    return None if atom is None else (atom.name, range_of(atom))


def _check_sizes(declared: Input, array: np.ndarray, binding: Mapping[str, int]) -> Iterable[str]:
    for axis, (size, dim) in enumerate(zip(array.shape, declared.shape, strict=True)):
        own = _symbol(dim)
        if own is not None and (misfit := own[1].misfit(size)):
            hint = f"; one compiled with --dim {dim}=0.. may take it" if size == 0 and own[1].low == 1 else ""
            yield f"{declared.name}: axis {axis} has size {size}, must be {misfit} ({dim}){hint}"
        elif size != (expected := bind(dim, binding) if own is None else binding[own[0]]):
            size_text = f"{expected} ({dim})" if isinstance(dim, Expr) else f"{expected}"
            yield f"{declared.name}: axis {axis} has size {size}, must be {size_text}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
