"""Generated kernels on a device: their code, and the nodes of graphs that launch them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from graphc.backends.generated import DeviceError
from graphc.backends.launches import Counters, Kernel, Module, Place, Scratch, Value, Work
from graphc.backends.launches import Launch as DeviceLaunch
from graphc.backends.precision import is_exact
from graphc.cache import warn_once
from graphc.errors import BuildError
from graphc.ggml_library import ggml
from graphc.kernels.gpu.code import best_target
from graphc.kernels.gpu.dialect import Divisor
from graphc.kernels.gpu.forms import Rendered, Text
from graphc.kernels.gpu.launch import arguments, grid
from graphc.kernels.gpu.schedule import Schedule
from graphc.shapes import integer
from graphc.targets.ggml.generate.folder import read_kernels
from graphc.targets.ggml.generate.generate import Generated
from graphc.targets.ggml.generate.kept import kept_or_generated
from graphc.targets.ggml.generate.schedules import form_for, scheduling_for
from graphc.targets.ggml.program.device_code import DeviceCode, checksum
from graphc.targets.ggml.program.launch import COUNTERS_TENSOR, SCRATCH_TENSOR, Choice, Launch, Launches
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.run.device.devices import default_threads

OWN: Mapping[int, Scratch | Counters] = {SCRATCH_TENSOR: Scratch(), COUNTERS_TENSOR: Counters()}
"""What is no tensor, by what stands for it."""


def launched(program: Program, backend: Any, folder: Path | None, trust: bool) -> LaunchedKernels:
    """The kernels of a program, which are generated for a device; see `LaunchedKernels`. Raises GraphcError."""
    # code in an engine is of fixed rules' schedules
    scheduling = None if trust and program.device_code is not None else scheduling_for(backend)
    form = form_for(ggml.ggml_backend_get_device(backend))
    return LaunchedKernels(kept_or_generated(program, not is_exact(), scheduling, form), backend, folder, trust)


class LaunchedKernels:
    """The kernels of a program on a device of generated kernels: those that are `changed` from the files of a folder, the others
    from the program's code, if that may be trusted and is theirs. `forced` are schedules that calls have while they are measured.
    Raises GraphcError if they cannot be compiled or loaded."""

    def __init__(self, generated: Generated, backend: Any, folder: Path | None = None, trust: bool = False) -> None:
        self.backend, self.generated = backend, generated
        self.device = ggml.ggml_backend_get_device(backend)
        self.forced: dict[Call, Schedule] = {}
        self.changed = read_kernels(folder, generated) if folder is not None else {}
        self.kernels = self._loaded(generated.kernels, trust) | {name: self._changed(name) for name in self.changed}

    def _loaded(self, kernels: Mapping[str, Rendered], trust: bool = False) -> dict[str, Kernel]:
        """Kernels as they are generated."""
        images = self._images(kernels, trust)
        with ThreadPoolExecutor() as pool:  # drivers compile them, which takes longer than making them
            modules = list(pool.map(self._module, [each for each, _ in images]))
        return {
            name: module.kernel(name, kernels[name].kernel.shared_bytes)
            for module, (_, names) in zip(modules, images, strict=True)
            for name in names
        }

    def _module(self, images: Sequence[bytes]) -> Module:
        """The first of some forms of the same code that the device takes. Raises DeviceError."""
        for each in images[:-1]:
            try:
                return Module(self.device, each)
            except DeviceError as error:
                warn_once(f"the driver does not take what ptxas made, and compiles PTX itself: {error}")
        return Module(self.device, images[-1])

    def _images(self, kernels: Mapping[str, Rendered], trust: bool) -> list[tuple[list[bytes], list[str]]]:
        """The code of kernels as they are generated, with the names of those in it."""
        form, carried = self.generated.form, self.generated.program.device_code
        hint = ""
        if carried is not None and isinstance(form, Text):
            # code that is not trusted is not used, and this program's schedules may be others
            text = self.generated.text if trust else None
            misfit = misfit_of(carried, self.generated.fast, form.architecture, text)
            if trust and not misfit:
                target = best_target(form.architecture, carried.code)
                return [([carried.code[target].encode() + b"\0"], list(kernels))]
            if trust:
                warn_once(f"the kernels in the engine are not used: {misfit}")
            if not misfit:
                hint = "; or use the kernels in the engine, if you trust who made it: --trust-kernels"
        files = form.files(list(kernels.values()), default_threads())
        try:
            with ThreadPoolExecutor() as pool:
                images = list(pool.map(form.images, [content for content, _ in files]))
        except BuildError as error:
            raise BuildError(f"{error}{hint}") from error
        return [(each, names) for each, (_, names) in zip(images, files, strict=True)]

    def free(self) -> None:
        """Give the kernels' code back; nothing can be launched afterwards."""
        for each in self.kernels.values():
            each.module.free()

    def _changed(self, name: str) -> Kernel:
        path, content = self.changed[name].path, self.changed[name].content
        try:
            module = self._module(self.generated.form.images(content))
            return module.kernel(name, self.generated.kernels[name].kernel.shared_bytes)
        except BuildError as error:
            raise BuildError(f"{path}: {error}") from error

    def launches_for(self, call: Call, binding: Mapping[str, int]) -> Launches:
        """What a call launches for these sizes: what is forced, else the fastest way that is known."""
        if call not in self.forced:
            return self.generated.launches_for(call, binding)
        assert call.launches is not None
        assert call.launches.choice is not None
        return call.launches.choice.ways[self.forced[call]]

    def prepare(self, wanted: Iterable[tuple[Choice, Iterable[Schedule]]]) -> None:
        """Have calls be able to be launched in other ways too, which are compiled together. Raises GraphcError if they cannot
        be compiled or loaded."""
        ways = [
            (choice, each, choice.make(each)) for choice, every in wanted for each in every if each not in choice.ways
        ]
        rendered = [each.rendered for _, _, way in ways for each in way.each]
        new = {each.kernel.name: each for each in rendered if each.kernel.name not in self.kernels}
        if new:
            self.kernels |= self._loaded(new)
        for choice, schedule, way in ways:
            choice.ways[schedule] = way

    def work(self, call: Call, binding: Mapping[str, int]) -> Work:
        """What a call's node does, for these sizes."""
        launches = self.launches_for(call, binding)
        room = integer(launches.scratch, binding), integer(launches.counters, binding)
        return Work([self._launch(each, binding, room) for each in launches.each])

    def node(self, context: Any, work: Work, call: Call, args: Sequence[Any], binding: Mapping[str, int]) -> Any:
        """The tensor that a call's kernels make of others."""
        ne = [integer(size, binding) for size in call.result.ne]
        return work.node(context, getattr(ggml, f"GGML_TYPE_{call.result.type}"), ne, args)

    def _launch(self, launch: Launch, binding: Mapping[str, int], room: tuple[int, int]) -> DeviceLaunch:
        rendered = launch.rendered
        kernel = rendered.kernel
        places = [OWN.get(number, Place(number)) for number in launch.tensors]
        given = [_value(each) for each in arguments(rendered, places, binding)]
        found = self.kernels[kernel.name]
        return DeviceLaunch(found, grid(rendered, binding), kernel.threads, given, kernel.shared_bytes, *room)


def misfit_of(carried: DeviceCode, fast: bool, architecture: str, text: str | None = None) -> str:
    """Why code is not that of kernels on a device of an architecture, of this text if it is given; empty if it is."""
    if not best_target(architecture, carried.code):
        return f"they are for {', '.join(carried.code) or 'nothing'}, and the device is {architecture}"
    if carried.fast != fast:
        return "they multiply float16, as with --fast" if carried.fast else "they multiply float32, as without --fast"
    if text is not None and carried.text != checksum(text):
        return "they are of another program, or another graphc made them"
    return ""


def _value(argument: Place | Scratch | Counters | int | Divisor) -> Place | Scratch | Counters | Value:
    if isinstance(argument, Divisor):
        return np.array(argument, np.uint32)
    return np.int32(argument) if isinstance(argument, int) else argument
