"""What a compiled kernel needs of a multiprocessor, as NVIDIA's assembler says: registers, spills, stack, shared memory."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from graphc.errors import BuildError
from graphc.kernels.gpu.assemble import find_assembler
from graphc.kernels.gpu.compile import TIME_LIMIT


@dataclass(frozen=True)
class Resources:
    """Of one kernel: 32-bit registers a thread; bytes a thread that are spilled to memory and read back, and of its stack; bytes
    a block of shared memory that the kernel itself declares (what a launch asks for is not among them)."""

    registers: int
    spilled: int
    reloaded: int
    stack: int
    shared: int


def resources(ptx: str, target: str) -> dict[str, Resources]:
    """What each kernel of a PTX text needs on a target, by its name. Raises BuildError where PTX is wrong for the target, and
    where no assembler is installed."""
    assembler = find_assembler()
    if assembler is None:
        raise BuildError("there is no ptxas: install a CUDA toolkit, or `pip install nvidia-cuda-nvcc`")
    command = [str(assembler), "-v", f"-arch={target}", "-o", os.devnull, "-"]
    try:
        done = subprocess.run(command, input=ptx.encode(), capture_output=True, timeout=TIME_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"ptxas could not be run: {error}") from error
    said = done.stderr.decode(errors="replace") + ("" if done.returncode == 0 else done.stdout.decode(errors="replace"))
    if done.returncode:
        raise BuildError("\n".join(["ptxas failed on a kernel's PTX:", *said.strip().splitlines()[:8]]))
    return parsed(said)


def parsed(said: str) -> dict[str, Resources]:
    """What `ptxas -v` says, by kernel."""
    found = {}
    for part in re.split(r"Compiling entry function '", said)[1:]:
        name = part.split("'", 1)[0]

        def number(pattern: str, part: str = part) -> int:
            match = re.search(pattern, part)
            return int(match[1]) if match else 0

        found[name] = Resources(
            registers=number(r"Used (\d+) registers"),
            spilled=number(r"(\d+) bytes spill stores"),
            reloaded=number(r"(\d+) bytes spill loads"),
            stack=number(r"(\d+) bytes stack frame"),
            shared=number(r"(\d+) bytes smem"),
        )
    return found
