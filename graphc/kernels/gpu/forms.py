"""The forms in which devices take kernels, with what must be known of a device to write one: text of the dialect, or SPIR-V."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from graphc.ir.types import F16, F32
from graphc.kernels.gpu.candidates import shared_of
from graphc.kernels.gpu.code import code_for
from graphc.kernels.gpu.devices import GPUS, VULKAN, Gpu
from graphc.kernels.gpu.evaluate import KernelFault
from graphc.kernels.gpu.instructions import INSTRUCTIONS, SHAPES, UNTRIED, MatrixInstruction
from graphc.kernels.gpu.render import cuda, spirv
from graphc.kernels.gpu.schedule import Schedule, parsed
from graphc.kernels.gpu.tile import TileKernel
from graphc.shapes import Dim

Rendered: TypeAlias = "cuda.Rendered | spirv.Binary"


class Form(ABC):
    """How kernels are written for a device."""

    lanes: int
    """Of a warp."""

    @abstractmethod
    def render(self, kernel: TileKernel) -> Rendered:
        """A kernel, written. Raises KernelFault for what the device cannot do."""

    ending: str
    """Of files of kernels."""

    @abstractmethod
    def files(self, kernels: Sequence[Any], compilers: int) -> list[tuple[str | bytes, list[str]]]:
        """What is loaded at once, with the names of the kernels in it, for so many compilers that run at once."""

    @abstractmethod
    def images(self, content: str | bytes) -> list[bytes]:
        """What the device is given; where it refuses that, the next. Raises BuildError."""

    @abstractmethod
    def gpu(self, sheet: Gpu) -> Gpu:
        """What is expected of a device with this data sheet, and what it has for kernels of this form."""

    @abstractmethod
    def block(self, gpu: Gpu | None) -> tuple[int, int]:
        """Bytes of shared memory and threads that a block may have, on a device that is expected to be so, or on any."""

    @property
    @abstractmethod
    def guesses(self) -> bool:
        """True if schedules are guessed and measured, false if they follow fixed rules."""

    @abstractmethod
    def schedule(self, columns: Dim, dtype: np.dtype) -> Schedule:
        """How products of numbers of a type are shared out, by fixed rules."""

    @property
    @abstractmethod
    def is_narrow(self) -> bool:
        """True if it multiplies matrices of float16."""

    @abstractmethod
    def has(self, instruction: MatrixInstruction) -> bool:
        """True if a kernel that multiplies by this instruction can be written."""


WORTH_A_COMPILER = 4
"""Kernels in a text: the headers of the dialect, which each text has, take as long as some kernels."""


@dataclass(frozen=True)
class Text(Form):
    """Text of the dialect, for a device of a name and an architecture (sm_90)."""

    device: str = "cuda0"
    architecture: str = "sm_80"
    lanes = 32
    is_narrow = True
    ending = ".cu"

    def render(self, kernel: TileKernel) -> cuda.Rendered:
        """See `Form`."""
        return cuda.render(kernel)

    def files(self, kernels: Sequence[Any], compilers: int) -> list[tuple[str | bytes, list[str]]]:
        """See `Form`: one for each compiler, unless there is little for it to do."""
        count = min(compilers, -(-len(kernels) // WORTH_A_COMPILER))
        parts = [kernels[first::count] for first in range(count)]
        return [(cuda.file_of(part), [each.kernel.name for each in part]) for part in parts]

    def images(self, content: str | bytes) -> list[bytes]:
        """See `Form`."""
        assert isinstance(content, str)
        return code_for(self.device, self.architecture, content)

    def gpu(self, sheet: Gpu) -> Gpu:
        """See `Form`."""
        return replace(sheet, architecture=self.architecture)

    def block(self, gpu: Gpu | None) -> tuple[int, int]:
        """See `Form`."""
        gpu = gpu or GPUS["t4"]
        return gpu.block_shared, gpu.block_threads

    @property
    def guesses(self) -> bool:
        """See `Form`."""
        return True

    def schedule(self, columns: Dim, dtype: np.dtype) -> Schedule:
        """See `Form`."""
        most = columns if isinstance(columns, int) else 64
        if dtype == F16:
            if most >= 128:
                return parsed("m128n128k32 w64x32 s3 z1 m16n8k16_half")
            return parsed(f"m64n{64 if most > 32 else 32}k32 w{'32x32' if most > 32 else '16x32'} s3 z1 m16n8k16_half")
        return parsed("m64n32k32 w16x32 s2 z1 fma_4x4" if most <= 32 else "m64n64k32 w32x32 s2 z1 fma_4x4")

    def has(self, instruction: MatrixInstruction) -> bool:
        """See `Form`."""
        if instruction.together > 1:
            return self.architecture == "sm_90" and instruction.name not in UNTRIED
        return not instruction.total.opaque


FEW_LANES = 32
"""Warps of fewer lanes are those of software, whose compilers take long over what is written out."""

BLOCKS = {False: ((64, 128), (64, 64), (32, 128), (32, 64)), True: ((32, 32),)}
"""Rows that a block of a product may have, and bytes of those of its shared memory, the best first, by whether lanes are few."""


@dataclass(frozen=True)
class Spirv(Form):
    """SPIR-V, for warps of so many lanes, blocks of so many threads and bytes of shared memory, and so many bytes of arguments
    that are given directly. `abilities` are words of the driver's (float64, int64, fused, layout), and `matrices` the shapes
    (rows, columns, depth) of cooperative matrices of float16."""

    lanes: int = 32
    threads: int = 256
    shared: int = 32 << 10
    arguments: int = 128
    abilities: frozenset[str] = frozenset(("fused",))
    matrices: tuple[tuple[int, ...], ...] = ()
    ending = ".spv"

    def render(self, kernel: TileKernel) -> spirv.Binary:
        """See `Form`."""
        fused, explicit = (each in self.abilities for each in ("fused", "layout"))
        found = spirv.render(kernel, self.lanes, fused, self.arguments, explicit)
        for what, needed, there in (
            ("threads", kernel.threads, self.threads),
            ("bytes of shared memory", kernel.shared_bytes, self.shared),
        ):
            if needed > there:
                raise KernelFault(f"{kernel.name} needs {needed} {what}, and the device has {there}")
        for capability in ("Float64", "Int64"):
            if capability in found.capabilities and capability.lower() not in self.abilities:
                raise KernelFault(f"{kernel.name} computes in {capability.lower()}, which the device does not")
        return found

    def files(self, kernels: Sequence[Any], compilers: int) -> list[tuple[str | bytes, list[str]]]:
        """See `Form`: one for each kernel."""
        return [(each.code, [each.kernel.name]) for each in kernels]

    def images(self, content: str | bytes) -> list[bytes]:
        """See `Form`."""
        assert isinstance(content, bytes)
        return [content]

    @property
    def is_narrow(self) -> bool:
        """See `Form`."""
        return self.instruction(F16) is not None

    def has(self, instruction: MatrixInstruction) -> bool:
        """See `Form`."""
        return instruction.total.opaque or not instruction.function

    def instruction(self, dtype: np.dtype) -> MatrixInstruction | None:
        """What multiplies numbers of a type; the largest matrices."""
        lanes = "" if self.lanes == 32 else f"_{self.lanes}lanes"
        if dtype != F16:
            return INSTRUCTIONS[f"fma_4x4{lanes}"]
        shapes = [each for each in SHAPES if each in self.matrices and "layout" in self.abilities]
        names = ["coop_" + "x".join(map(str, each)) + f"_half{lanes}" for each in reversed(shapes)]
        return INSTRUCTIONS[names[0]] if names else None

    def gpu(self, sheet: Gpu) -> Gpu:
        """See `Form`."""
        found = (self.instruction(F16), self.instruction(F32))
        return replace(
            sheet, architecture=f"{VULKAN}{sheet.architecture}", block_shared=self.shared, block_threads=self.threads,
            shared=max(sheet.shared, self.shared), instructions=tuple(each.name for each in found if each is not None),
        )  # fmt: skip

    def block(self, gpu: Gpu | None) -> tuple[int, int]:
        """See `Form`."""
        return self.shared, self.threads

    @property
    def guesses(self) -> bool:
        """See `Form`: not for software, which differs from any data sheet, and whose compilers take long over large blocks."""
        return "fused" in self.abilities

    def schedule(self, columns: Dim, dtype: np.dtype) -> Schedule:
        """See `Form`: the first that fits twice into shared memory, so that two blocks can be there at once."""
        instruction = self.instruction(dtype)
        assert instruction is not None
        few = self.lanes < FEW_LANES
        down, across = (max(1 if few else 32, each) for each in (instruction.m, instruction.n))
        wide = 32 if few or (isinstance(columns, int) and columns <= 32) else 64
        for rows, nbytes in BLOCKS[few]:
            depth = max(nbytes // instruction.operand.itemsize, instruction.k)
            schedule = parsed(f"m{rows}n{wide}k{depth} w{down}x{across} s2 z1 {instruction.name}")
            if schedule.threads <= self.threads and 2 * shared_of(schedule) <= self.shared:
                break
        return schedule


CUDA = Text()


def form_of(device: str, known: Mapping[str, str]) -> Form:
    """How kernels are written for a device, by its name and what is known of it (`device_features`)."""
    architecture = known.get("ARCHITECTURE", "")
    if not architecture.startswith(VULKAN):
        return Text(device, architecture)
    return Spirv(
        lanes=int(known["LANES"]),
        threads=int(known["THREADS"]),
        shared=int(known["SHARED_MEMORY"]),
        arguments=int(known["ARGUMENTS"]),
        abilities=frozenset(known.get("ABILITIES", "").split()),
        matrices=tuple(tuple(map(int, each.split("x"))) for each in known.get("MATRICES", "").split()),
    )
