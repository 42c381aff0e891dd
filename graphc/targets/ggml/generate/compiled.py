"""The code of a program's kernels for GPUs that need not be here."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from graphc.kernels.gpu.compile import compile_ptx
from graphc.targets.ggml.generate.generate import Generated
from graphc.targets.ggml.program.device_code import DeviceCode, checksum


def compiled(generated: Generated, targets: Sequence[str]) -> DeviceCode:
    """The kernels, compiled for each of the targets. Raises BuildError."""
    text = generated.text
    with ThreadPoolExecutor() as pool:
        made = [pool.submit(compile_ptx, text, target) for target in targets]
        code = {target: each.result() for target, each in zip(targets, made, strict=True)}
    return DeviceCode(checksum(text), generated.fast, code)
