"""A kernel's text to PTX, which every driver of NVIDIA's compiles for the GPU at hand: by CUDA's nvcc where there is one, else by
the clang of the `ziglang` package, which needs nothing of CUDA's."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphc.cache import checked_name, keep, kept
from graphc.errors import BuildError
from graphc.kernels.gpu.dialect import complete
from graphc.zig import find_zig

KEPT_IN = "ptx"
"""The folder of the cache."""

TIME_LIMIT = 300
"""Seconds after which a compiler is given up."""

TOOLKITS = ("/usr/local/cuda", "/opt/cuda")
"""Where CUDA's toolkit is, if neither the path nor `CUDA_PATH` says so."""

HELP = "install a CUDA toolkit, or `pip install ziglang`"


@dataclass(frozen=True)
class Target:
    """What PTX is made for: `architecture` is 80 for sm_80, `version` that of the oldest PTX that can say all that the dialect
    needs there. A driver refuses PTX that is newer than itself, and takes any that is older."""

    name: str
    architecture: int
    version: str

    @property
    def portable(self) -> bool:
        """True if later GPUs run its code too."""
        return self.name == f"sm_{self.architecture}"


TARGETS = {
    target.name: target
    for target in (
        Target("sm_75", 75, "7.0"), Target("sm_80", 80, "7.4"), Target("sm_86", 86, "7.4"), Target("sm_89", 89, "7.8"),
        Target("sm_90", 90, "7.8"), Target("sm_90a", 90, "8.0"), Target("sm_100", 100, "8.6"), Target("sm_120", 120, "8.7"),
    )
}  # fmt: skip
"""PTX for one runs on every later GPU, but for sm_90a's, which runs on Hopper alone."""


def compile_ptx(text: str, target: str, toolchain: str | None = None) -> str:
    """The PTX of a text's kernels, from the cache if it is there; `toolchain` is `nvcc` or `clang`, by default the first that is
    installed and knows the target. Raises BuildError with what the compiler says, and where there is none."""
    check_target(target)
    refused = ""
    for name, find in TOOLCHAINS.items():
        program = find() if toolchain in (None, name) else None
        if program is None:
            continue
        try:
            return _compiled(name, program, text, TARGETS[target])
        except _UnknownTargetError as error:
            refused = str(error)
    raise BuildError(refused or f"there is no {toolchain or 'compiler'} for GPU kernels: {HELP}")


def parse_targets(text: str) -> list[str]:
    """Targets that a person named, with commas between. Raises BuildError for one that there is not."""
    names = list(dict.fromkeys(each.strip() for each in text.split(",")))
    for each in names:
        check_target(each)
    return names


def check_target(name: str) -> None:
    """Raises BuildError for a target that there is not."""
    if name == "vulkan":
        raise BuildError("vulkan is no target: its devices take SPIR-V, which graphc writes itself where it runs")
    if name not in TARGETS:
        raise BuildError(f"there is no target {name}: it is one of {', '.join(TARGETS)}")


def find_toolchain() -> str:
    """The name of what compiles kernels here; empty if there is nothing."""
    return next((name for name, find in TOOLCHAINS.items() if find() is not None), "")


def find_tool(name: str) -> Path | None:
    """A program of CUDA's toolkit: on the path, or in a toolkit's folder; None if it is nowhere."""
    found = shutil.which(name)
    if found:
        return Path(found)
    folders = [*filter(None, (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"))), *TOOLKITS]
    ending = ".exe" if os.name == "nt" else ""
    paths = (Path(folder) / "bin" / f"{name}{ending}" for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def _nvcc(program: Path, target: Target, source: Path, made: Path) -> Sequence[str]:
    architecture = f"-arch={target.name.replace('sm', 'compute')}"
    return [str(program), "-ptx", architecture, "-std=c++17", "-fmad=false", "-O3", "-w", str(source), "-o", str(made)]


def _clang(program: Path, target: Target, source: Path, made: Path) -> Sequence[str]:
    version = f"+ptx{target.version.replace('.', '')}"
    return [
        str(program), "clang", "-cc1", "-triple", "nvptx64-nvidia-cuda", "-target-cpu", target.name, "-target-feature", version,
        "-x", "cuda", "-fcuda-is-device", "-std=c++17", "-ffp-contract=off", f"-DGRAPHC_ARCHITECTURE={target.architecture}",
        "-O3", "-w", "-S", str(source), "-o", str(made),
    ]  # fmt: skip


TOOLCHAINS: Mapping[str, Callable[[], Path | None]] = {"nvcc": lambda: find_tool("nvcc"), "clang": find_zig}
"""What compiles kernels, the first that is there, and how it is found."""

COMMANDS: Mapping[str, Callable[[Path, Target, Path, Path], Sequence[str]]] = {"nvcc": _nvcc, "clang": _clang}
"""How it is called: by its program, the target, the text's file and that of the PTX."""


class _UnknownTargetError(BuildError):
    """The compiler is older than the target."""


def _compiled(toolchain: str, program: Path, text: str, target: Target) -> str:
    source = complete(toolchain, text)
    status = program.stat()
    command = COMMANDS[toolchain](program, target, Path("kernel.cu"), Path("kernel.ptx"))
    depends_on = "\0".join([source, *command, target.version, str(status.st_size), str(status.st_mtime_ns)])
    key = hashlib.sha256(depends_on.encode()).hexdigest()[:32]
    found = next(kept(KEPT_IN, key, ".ptx"), None)
    if found is not None:
        return found.decode()
    with tempfile.TemporaryDirectory(prefix="graphc-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        ptx = _run(toolchain, command, source, folder)
    # What nvcc writes has the toolkit's own version, though it says nothing that needs it.
    ptx = re.sub(r"^\.version .*$", f".version {target.version}", ptx, count=1, flags=re.MULTILINE)
    keep(KEPT_IN, checked_name(key, ptx.encode(), ".ptx"), ptx.encode())
    return ptx


def _run(toolchain: str, command: Sequence[str], source: str, folder: Path) -> str:
    (folder / "kernel.cu").write_text(source, encoding="utf-8")
    environment = {**os.environ, "TMPDIR": str(folder), "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT, check=False, env=environment,
            cwd=folder,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the compiler for GPU kernels could not be run: {error}") from error
    made = folder / "kernel.ptx"
    if done.returncode == 0 and made.is_file():
        return made.read_text(encoding="utf-8")
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()[:8]
    if any(re.search(r"nvcc fatal|[Uu]nsupported gpu arch|unknown target CPU", line) for line in said):
        raise _UnknownTargetError(f"{toolchain} does not compile for the target: {said[0]}")
    raise BuildError("\n".join([f"{toolchain} failed on a kernel's text:", *said]))
