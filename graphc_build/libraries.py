"""ggml and our own code as libraries for a system, compiled by zig: one library with code for each kind of processor.

ggml's own build would do for systems whose compiler it knows, but zig spells ARM's features otherwise, and none of what cmake
looks for matters here. So the commands are these: the files of ggml's folders, with the definitions that its build gives them.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from graphc.errors import BuildError
from graphc.kernels.c.ready import ready_text
from graphc.targets.ggml.run.choose.library import FAST_FLAGS, ROUTINE_FLAGS, source
from graphc.trace import SILENT, Progress
from graphc.zig import find_zig
from graphc_build.symbols import needs_of
from graphc_build.targets import Target

NATIVE = Path(__file__).parent / "native"

BASE = ("ggml.c", "ggml.cpp", "ggml-alloc.c", "ggml-backend.cpp", "ggml-backend-meta.cpp", "ggml-opt.cpp", "ggml-threading.cpp",
        "ggml-quants.c", "gguf.cpp")  # fmt: skip
REGISTRY = ("ggml-backend-dl.cpp", "ggml-backend-reg.cpp")
CPU = ("ggml-cpu.c", "ggml-cpu.cpp", "repack.cpp", "hbm.cpp", "quants.c", "traits.cpp", "amx/amx.cpp", "amx/mmq.cpp",
       "binary-ops.cpp", "unary-ops.cpp", "vec.cpp", "ops.cpp", "llamafile/sgemm.cpp")  # fmt: skip
ARCH = ("quants.c", "repack.cpp")
FEATURES = "cpu-feats.cpp"
"""What says whether a processor can run the code; itself for every processor."""

COMMON = ("-O3", "-g0", "-DNDEBUG", "-D_XOPEN_SOURCE=600", "-D_GNU_SOURCE", "-DGGML_SCHED_MAX_COPIES=4", "-DGGML_BACKEND_DL",
          "-DGGML_SHARED", "-fPIC", "-fvisibility=hidden", "-fno-sanitize=all", "-Wno-everything")  # fmt: skip
BUILD = ("-DGGML_BUILD",)
BACKEND = ("-DGGML_BACKEND_BUILD", "-DGGML_BACKEND_SHARED")
OPENMP = ("-fopenmp", "-DGGML_USE_OPENMP", f"-I{NATIVE}")

SYSTEMS: dict[str, tuple[str, ...]] = {
    "windows": ("-D_WIN32_WINNT=0x0A00",),
    "macos": ("-D_DARWIN_C_SOURCE",),
}
"""What a system's headers want to be told."""

LINKING: dict[str, tuple[str, ...]] = {
    "linux": (
        "-s",
        "-Wl,-soname,{name}",
        "-Wl,-rpath,$ORIGIN",
        "-Wl,--gc-sections",
        "-Wl,-z,relro",
        "-Wl,-z,now",
        "-Wl,-z,defs",
        "-lm",
    ),
    "windows": ("-s",),
    "macos": ("-s", "-Wl,-install_name,@rpath/{name}", "-Wl,-rpath,@loader_path", "-Wl,-headerpad_max_install_names"),
}
LINKING["musl"] = LINKING["linux"]

EXPORT = '__attribute__((visibility("default")))'
"""What has a name be known outside of a library."""

EXPORTED = re.compile(r"(ggml|gguf|graphc|quantize|dequantize|iq\d)")
"""How the names begin that libraries are linked or looked up by."""

TIME_LIMIT = 1800


@dataclass(frozen=True)
class Library:
    """A library: its name without the system's ending, what is compiled into it, and which of the others it is linked with."""

    name: str
    objects: Sequence[tuple[Path, tuple[str, ...]]]
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Recipe:
    """How the libraries of a system are made of ggml's source, in a folder, which must be there."""

    target: Target
    ggml: Path
    folder: Path

    def libraries(self) -> Iterator[Library]:
        """Each behind those that it needs."""
        sources = self.ggml / "src"
        about = (f'-DGGML_VERSION="{ggml_version(self.ggml)}"', '-DGGML_COMMIT="unknown"')
        yield Library("ggml-base", [(sources / name, (*BUILD, *about)) for name in BASE])
        yield Library("ggml", [(sources / name, BUILD) for name in REGISTRY], ("ggml-base",))
        own = self.folder / "own.c"
        own.write_text(source(export=EXPORT), encoding="utf-8")
        routines = self.folder / "routines.c"
        routines.write_text(ready_text(EXPORT), encoding="utf-8")
        for variant in self.target.variants:
            yield Library(f"ggml-cpu-{variant}", [*self._variant(variant, own, routines)], ("ggml-base",))

    def _variant(self, variant: str, own: Path, routines: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
        folder = self.ggml / "src" / "ggml-cpu"
        arch = folder / "arch" / self.target.processor
        arm = self.target.processor == "arm"
        defined = tuple(f"-DGGML_{'USE_' if arm else ''}{feature}" for feature in self.target.variants[variant])
        machine = (f"-mcpu={self.target.cpu(variant)}",)
        for path in (*(folder / name for name in CPU), *(arch / name for name in ARCH)):
            yield (
                path,
                (*BACKEND, *OPENMP, *defined, *machine, "-DGGML_USE_LLAMAFILE", "-DGGML_USE_CPU_REPACK", f"-I{folder}"),
            )
        if len(self.target.variants) > 1:
            yield arch / FEATURES, (*BACKEND, *defined)
        yield NATIVE / "openmp.cpp", ()
        yield own, (*FAST_FLAGS, *machine)
        yield routines, (*ROUTINE_FLAGS, *machine)

    def file_name(self, library: str) -> str:
        """How the system calls a library."""
        return self.target.library.format(library)

    def compiled(self, file: Path, options: Sequence[str], output: Path) -> list[str]:
        """The command that compiles a file."""
        compiler = ("cc", "-std=gnu11") if file.suffix == ".c" else ("c++", "-std=gnu++17")
        folders = {self.ggml: "ggml", NATIVE: "graphc", self.folder: "graphc"}
        places = [
            f"-ffile-prefix-map={folder}={name}" for folder, name in folders.items()
        ]  # none of this machine in the code
        if not any(each.startswith("-mcpu=") for each in options):
            options = (*options, f"-mcpu={self.target.least}")
        system = SYSTEMS.get(self.target.system, ())
        included = (f"-I{self.ggml / 'include'}", f"-I{self.ggml / 'src'}")
        command = (
            zig_program(),
            *compiler,
            "-target",
            self.target.triple,
            *COMMON,
            *system,
            *included,
            *places,
            *options,
        )
        return [*map(str, command), "-c", str(file), "-o", str(output)]

    def linked(self, library: Library, objects: Sequence[Path]) -> list[str]:
        """The command that links a library."""
        name = self.file_name(library.name)
        options = [each.format(name=name) for each in LINKING[self.target.system]]
        needed = [self.folder / self.file_name(each) for each in library.needs]
        if self.target.system == "windows":
            needed = [self.folder / f"{each}.lib" for each in library.needs]
            options.append(f"-Wl,--out-implib,{self.folder / library.name}.lib")
        command = (zig_program(), "c++", "-target", self.target.triple, f"-mcpu={self.target.least}", "-shared")
        return [*map(str, (*command, *objects, *needed, *options)), "-o", str(self.folder / name)]


def build_libraries(
    target: Target,
    ggml: Path,
    folder: Path,
    jobs: int | None = None,
    progress: Progress = SILENT,
    also: Sequence[Library] = (),
) -> list[Path]:
    """Compile all libraries for a system, and others, into a folder; returns them. Raises BuildError with what the compiler
    says."""
    recipe = Recipe(target, ggml, folder)
    libraries = [*recipe.libraries(), *also]
    made: dict[str, list[Path]] = {}
    commands = []
    for library in libraries:
        place = folder / "objects" / library.name
        place.mkdir(parents=True, exist_ok=True)
        for number, (file, options) in enumerate(library.objects):
            output = place / f"{number}-{file.stem}.o"
            made.setdefault(library.name, []).append(output)
            commands.append(recipe.compiled(file, options, output))
    pool = ThreadPoolExecutor(jobs or os.cpu_count() or 1)
    with pool, progress.stage(f"compile for {target.name}", len(commands)) as step:
        for _ in pool.map(run, commands):
            step(1)
    for library in libraries:
        run(recipe.linked(library, made[library.name]))
        if target.system == "windows":
            # Everything was exported, C's own functions too, which others must not take from there.
            path = folder / recipe.file_name(library.name)
            names = filter(EXPORTED.match, needs_of(path).exports)
            exports = path.with_suffix(".def")
            exports.write_text("EXPORTS\n" + "".join(f"{name}\n" for name in names), encoding="utf-8")
            run(recipe.linked(library, [*made[library.name], exports]))
    return [folder / recipe.file_name(library.name) for library in libraries]


def run(command: Sequence[str]) -> None:
    """Run a command to its end. Raises BuildError with what it says if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT, check=False)
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[:20])
        raise BuildError(f"{' '.join(command)}\n{said}")


def zig_program() -> Path:
    """zig. Raises BuildError if it is not installed."""
    found = find_zig()
    if found is None:
        raise BuildError("wheels are compiled by the package ziglang: `pip install ziglang`")
    return found


def ggml_version(ggml: Path) -> str:
    """The version that ggml's build says."""
    text = (ggml / "CMakeLists.txt").read_text(encoding="utf-8")
    parts = [text.split(f"set(GGML_VERSION_{part} ")[1].split(")")[0] for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(parts)
