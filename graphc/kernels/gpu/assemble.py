"""PTX to the code of one GPU, by NVIDIA's assembler where it is installed. Drivers have the same assembler, perhaps an older one,
and run it in one process of theirs; here as many run as there are processors, and what they make is kept."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import tempfile
from pathlib import Path

from graphc.cache import checked_name, keep, kept, warn_once
from graphc.kernels.gpu.compile import TIME_LIMIT, find_tool

KEPT_IN = "cubin"
"""The folder of the cache."""

PACKAGES = "nvidia"
"""The namespace in which the package `nvidia-cuda-nvcc` has its programs, in folders like `cu13/bin`."""


def find_assembler() -> Path | None:
    """`ptxas`: of CUDA's toolkit, or of the package `nvidia-cuda-nvcc`; None if neither is installed."""
    found = find_tool("ptxas")
    if found is not None:
        return found
    package = importlib.util.find_spec(PACKAGES)
    folders = package.submodule_search_locations if package is not None else None
    programs = (path for folder in folders or () for path in sorted(Path(folder).glob("cu*/bin/ptxas*")))
    return next(programs, None)


def assembled(ptx: str, architecture: str) -> bytes | None:
    """The code of a PTX text for exactly one architecture (sm_90), from the cache if it is there; None where there is no
    assembler, and where it fails, which is said: then the driver can have the PTX."""
    assembler = find_assembler()
    if assembler is None:
        return None
    status = assembler.stat()
    depends_on = "\0".join([ptx, architecture, str(status.st_size), str(status.st_mtime_ns)])
    key = hashlib.sha256(depends_on.encode()).hexdigest()[:32]
    found = next(kept(KEPT_IN, key, ".cubin"), None)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(prefix="graphc-", ignore_cleanup_errors=True) as name:
        made = Path(name, "kernel.cubin")
        command = [str(assembler), f"-arch={architecture}", "-o", str(made), "-"]
        try:
            done = subprocess.run(command, input=ptx.encode(), capture_output=True, timeout=TIME_LIMIT, check=False)
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            found = made.read_bytes() if done.returncode == 0 else None
        except (OSError, subprocess.TimeoutExpired) as error:
            said, found = str(error), None
    if found is None:
        why = said.splitlines()[0] if said else "it ended with an error"
        warn_once(f"{assembler} cannot be used for {architecture}, and the driver compiles PTX itself: {why}")
        return None
    keep(KEPT_IN, checked_name(key, found, ".cubin"), found)
    return found
