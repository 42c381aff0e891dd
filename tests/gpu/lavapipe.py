"""Vulkan for tests: the system's, or a newer Mesa in a folder of its own, whose software device has cooperative matrices.

The newer one is Debian's (73 MB to fetch, 370 MB on the disk, ten seconds), of a release whose C library is newer than that of
the interpreter: so a worker is started by that release's dynamic loader. `GRAPHC_LAVAPIPE` is a folder that keeps it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from library_file import library_file

from graphc.kernels.c.compiled import library_bytes
from graphc.kernels.c.compiler import find_compiler
from graphc.kernels.c.joined import joined
from graphc.kernels.gpu.launch import arguments, grid

HERE = Path(__file__).parent
SOURCES = Path(__file__).parents[2] / "graphc/targets/ggml/project/gpu"
FILES = ("vulkan.c", "vulkan_memory.c", "vulkan_queues.c", "vulkan_kernels.c", "vulkan_calls.c")
DEBIAN = "https://deb.debian.org/debian"
PACKAGES = ("mesa-vulkan-drivers/trixie-backports", "libvulkan1", "vulkan-validationlayers", "spirv-tools")
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Missing(Exception):
    """Why there is no such Vulkan here."""


@functools.cache
def newer() -> Path:
    """The folder of the newer Mesa's libraries. Raises Missing."""
    if platform.machine() != "x86_64" or not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise Missing("a newer Mesa comes from Debian's packages for x86_64")
    folder = Path(os.environ.get("GRAPHC_LAVAPIPE") or Path(tempfile.gettempdir(), "graphc-lavapipe-26.1"))
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            fetch(Path(name, "root"))
            with contextlib.suppress(OSError):  # another process was faster
                Path(name, "root").rename(folder)
    return folder / "usr/lib/x86_64-linux-gnu"


def fetch(folder: Path) -> None:
    """Fetch packages with all that they need, and take them apart. Raises Missing if that cannot be done."""
    folder.mkdir()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for each in ("lists/partial", "cache/archives/partial"):
            (work / each).mkdir(parents=True)
        (work / "status").touch()
        (work / "sources").write_text(
            "".join(f"deb [signed-by={KEYS}] {site()} {suite} main\n" for suite in ("trixie", "trixie-backports"))
        )
        settings = {
            "Dir::Etc::sourcelist": work / "sources", "Dir::Etc::sourceparts": "-", "Dir::State::lists": work / "lists",
            "Dir::State::status": work / "status", "Dir::Cache": work / "cache", "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root", "Debug::NoLocking": "1",
        }  # fmt: skip
        apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
        try:
            subprocess.run([*apt, "update"], check=True, capture_output=True, timeout=120)
            subprocess.run(
                [*apt, "install", "-y", "--download-only", *PACKAGES], check=True, capture_output=True, timeout=300
            )
            for package in (work / "cache/archives").glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, folder], check=True, capture_output=True, timeout=120)
        except (subprocess.SubprocessError, OSError) as error:
            said = getattr(error, "stderr", b"") or b""
            raise Missing(f"Debian's packages cannot be had: {said.decode(errors='replace')[:300] or error}") from error


def site() -> str:
    """Where this system's packages come from."""
    found = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", "Origin: Debian"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    lines = [line for line in found.stdout.splitlines() if "security" not in line]
    return lines[0] if lines else DEBIAN


def loader(libraries: Path) -> list[str]:
    """The beginning of a command that has these libraries, and this system's where they lack something."""
    return [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", f"{libraries}:/usr/lib/x86_64-linux-gnu"]


def settings(libraries: Path, folder: Path, validate: bool) -> dict[str, str]:
    """The environment in which Vulkan is these libraries' software device, with the validation layer if wanted; a folder keeps
    what they read."""
    driver = {"api_version": "1.4.0", "library_path": str(libraries / "libvulkan_lvp.so")}
    (folder / "lavapipe.json").write_text(json.dumps({"ICD": driver, "file_format_version": "1.0.1"}))
    found = {"VK_DRIVER_FILES": str(folder / "lavapipe.json")}
    if validate:
        layers = libraries.parents[1] / "share/vulkan/explicit_layer.d"
        layer = json.loads((layers / "VkLayer_khronos_validation.json").read_text())
        layer["layer"]["library_path"] = str(libraries / "libVkLayer_khronos_validation.so")
        (folder / "validation.json").write_text(json.dumps(layer))
        found |= {"VK_LAYER_PATH": str(folder), "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation"}
    return found


@functools.cache
def library() -> str:
    """The driver by Vulkan, compiled."""
    compiler = find_compiler()
    if compiler is None:
        raise Missing("the tests need a C compiler")

    def read(name: str) -> str:
        own = HERE / name
        return (own if name.endswith(".c") and not (SOURCES / name).exists() else SOURCES / name).read_text()

    flags = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread")
    return library_file(library_bytes(joined(FILES, read), compiler, flags=flags))


class Vulkan:
    """A worker with a device. `width` are the bits of lavapipe's vectors: 32 for each lane of a subgroup."""

    def __init__(self, libraries: Path | None = None, width: int = 256, validate: bool = False) -> None:
        environment = {
            **os.environ,
            "LP_NATIVE_VECTOR_WIDTH": str(width),
            "LP_NUM_THREADS": "2",
            "GALLIVM_PERF": "nopt",
            "GGML_VK_VISIBLE_DEVICES": "0",
        }
        command = [os.path.realpath(sys.executable), str(HERE / "vulkan_worker.py"), library()]
        self.folder = tempfile.TemporaryDirectory()
        if libraries is not None:
            environment |= settings(libraries, Path(self.folder.name), validate)
            command = [*loader(libraries), *command]
        self.errors = Path(self.folder.name, "errors")
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        facts = self("describe")
        self.description: str = facts["description"]
        self.lanes = int(facts["architecture"].removeprefix("vulkan_"))

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Have the worker do something. Raises RuntimeError with what it says."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump((name, arguments), self.process.stdin)
            self.process.stdin.flush()
            fine, answer = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError) as error:
            raise RuntimeError(f"the worker ended: {self.said()}") from error
        if not fine:
            raise RuntimeError(answer)
        return answer

    def said(self) -> str:
        """What the worker, its driver and its layers wrote."""
        return self.errors.read_text()

    def run(
        self,
        steps: Sequence[tuple[Any, Sequence[np.ndarray]]],
        symbols: Mapping[str, int],
        recorded: int = 0,
        fault: np.ndarray | None = None,
    ) -> float:
        """Run rendered kernels, each with its arrays, which change; returns the seconds on the device. Raises RuntimeError."""
        fault = np.zeros(1, np.int32) if fault is None else fault
        arrays: dict[int, np.ndarray] = {id(fault): fault}
        works = []
        for binary, given in steps:
            arrays |= {id(each): each for each in given}
            own = [Reference(list(arrays).index(id(each))) for each in given]
            values = [argument(each) for each in arguments(binary, own, symbols, Reference(0))]
            works.append(
                {
                    "code": binary.code, "name": binary.kernel.name, "grid": grid(binary, symbols),
                    "shared": binary.kernel.shared_bytes, "arguments": values,
                }
            )  # fmt: skip
        found, seconds = self("run", works, [each.tobytes() for each in arrays.values()], recorded)
        for array, data in zip(arrays.values(), found, strict=True):
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
        return float(seconds)

    def close(self) -> None:
        """End the worker."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.folder.cleanup()


@dataclass(frozen=True)
class Reference:
    """An array, by its number."""

    number: int


def argument(each: Any) -> int | bytes:
    """An argument as the worker takes it: a size as its bytes, an array by its number."""
    if isinstance(each, Reference):
        return each.number
    numbers = each if isinstance(each, tuple) else (each,)
    return b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers)
