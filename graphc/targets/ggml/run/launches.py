"""Generated kernels on a device: their code, and the nodes of graphs that launch them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.backends.launches import Launch as DeviceLaunch
from graphc.backends.launches import Module, Place, Scratch, Value, Work
from graphc.ggml_library import ggml
from graphc.kernels.gpu.code import code_for
from graphc.kernels.gpu.dialect import Divisor
from graphc.kernels.gpu.launch import arguments, grid
from graphc.shapes import integer
from graphc.targets.ggml.generate.generate import Generated
from graphc.targets.ggml.program.launch import SCRATCH_TENSOR, Launch
from graphc.targets.ggml.program.program import Call
from graphc.targets.ggml.run.device.devices import features


class LaunchedKernels:
    """The kernels of a program on a device of generated kernels. Raises GraphcError if they cannot be compiled or loaded."""

    def __init__(self, generated: Generated, backend: Any) -> None:
        self.backend, self.generated = backend, generated
        device = ggml.ggml_backend_get_device(backend)
        name = ggml.ggml_backend_dev_name(device).decode()
        architecture = features(ggml.ggml_backend_dev_backend_reg(device)).get("ARCHITECTURE", "")
        self.module = Module(device, code_for(name, architecture, generated.text)) if generated.kernels else None
        self.kernels = {
            name: self.module.kernel(name, each.kernel.shared_bytes)
            for name, each in generated.kernels.items()
            if self.module is not None
        }

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
