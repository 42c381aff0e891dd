"""Generated kernels on a device: their code, and the nodes of graphs that launch them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.backends.launches import Kernel, Module, Place, Scratch, Value, Work
from graphc.backends.launches import Launch as DeviceLaunch
from graphc.errors import BuildError
from graphc.ggml_library import ggml
from graphc.kernels.gpu.code import code_for
from graphc.kernels.gpu.dialect import Divisor
from graphc.kernels.gpu.launch import arguments, grid
from graphc.shapes import integer
from graphc.targets.ggml.generate.folder import read_kernels
from graphc.targets.ggml.generate.generate import Generated
from graphc.targets.ggml.program.launch import SCRATCH_TENSOR, Launch
from graphc.targets.ggml.program.program import Call
from graphc.targets.ggml.run.device.devices import features


class LaunchedKernels:
    """The kernels of a program on a device of generated kernels, those that are `changed` by the texts of a folder. Raises
    GraphcError if they cannot be compiled or loaded."""

    def __init__(self, generated: Generated, backend: Any, folder: Path | None = None) -> None:
        self.backend, self.generated = backend, generated
        self.device = ggml.ggml_backend_get_device(backend)
        self.architecture = features(ggml.ggml_backend_dev_backend_reg(self.device)).get("ARCHITECTURE", "")
        self.changed = read_kernels(folder, generated.kernels) if folder is not None else {}
        module = self._module(generated.text) if generated.kernels else None
        self.kernels = {
            name: self._changed(name) if name in self.changed else module.kernel(name, each.kernel.shared_bytes)
            for name, each in generated.kernels.items()
            if module is not None
        }

    def _module(self, text: str) -> Module:
        name = ggml.ggml_backend_dev_name(self.device).decode()
        return Module(self.device, code_for(name, self.architecture, text))

    def _changed(self, name: str) -> Kernel:
        path, text = self.changed[name].path, self.changed[name].text
        try:
            return self._module(text).kernel(name, self.generated.kernels[name].kernel.shared_bytes)
        except BuildError as error:
            raise BuildError(f"{path}: {error}") from error

    def work(self, call: Call, binding: Mapping[str, int]) -> Work:
        """What a call's node does, for these sizes."""
        assert call.launches is not None
        scratch = integer(call.launches.scratch, binding)
        return Work([self._launch(each, binding, scratch) for each in call.launches.each])

    def node(self, context: Any, work: Work, call: Call, args: Sequence[Any], binding: Mapping[str, int]) -> Any:
        """The tensor that a call's kernels make of others."""
        ne = [integer(size, binding) for size in call.result.ne]
        return work.node(context, getattr(ggml, f"GGML_TYPE_{call.result.type}"), ne, args)

    def _launch(self, launch: Launch, binding: Mapping[str, int], scratch: int) -> DeviceLaunch:
        rendered = launch.rendered
        kernel = rendered.kernel
        places = [Scratch() if number == SCRATCH_TENSOR else Place(number) for number in launch.tensors]
        given = [_value(each) for each in arguments(rendered, places, binding)]
        found = self.kernels[kernel.name]
        return DeviceLaunch(found, grid(rendered, binding), kernel.threads, given, kernel.shared_bytes, scratch)


def _value(argument: Place | Scratch | int | Divisor) -> Place | Scratch | Value:
    if isinstance(argument, Divisor):
        return np.array(argument, np.uint32)
    return np.int32(argument) if isinstance(argument, int) else argument
