"""From models to one program that needs nothing else where it runs: engines, ggml and kernels in one file, or in a folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from graphc.build import EVERY_CPU, build
from graphc.cache import alone, make_cache_folder
from graphc.cross import Target, find_target
from graphc.errors import InputError
from graphc.files import check_folder, check_target, replacing, replacing_folder
from graphc.runtime.arrays import file_names
from graphc.targets.ggml.cpp.bundle import Written, render_bundle
from graphc.targets.ggml.engine import is_engine
from graphc.targets.ggml.program.program import Program
from graphc.trace import SILENT, Progress

ALIGNMENT = 1 << 16
"""Where engines may begin in a program's file: at pages of every system, and at what Windows maps. `bundle.h` has it too."""

MARK = b"\ngraphc's bundle"
"""Before the 8 bytes at the end of the file that say where the first engine begins."""

LARGEST = {"Windows": (1 << 32) - 1}
"""Bytes of the largest program that a system starts, where it has a limit that engines reach."""

PROGRAM = 16 << 20
"""More bytes than a program has without engines."""

SIGNED = {"Darwin"}
"""Systems whose programs carry a signature that nothing may follow."""

OPTIONS = ("-DGGML_OPENMP=OFF", "-DGGML_CCACHE=OFF")
"""Of ggml's build here, as `cross.OPTIONS` for other systems: nothing that a program would have to find where it runs."""

COMPILERS = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS")
"""What of the environment decides how cmake compiles: each choice has a folder of its own."""


def bundle(
    models: Mapping[str, str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    target: str | None = None,
    cpu: str | None = None,
    folder: bool = False,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Path:
    """Make one program of models, ONNX or engine files, each under a name; returns where it was written.

    The program is `output` (with the ending .exe for Windows), and the engines lie behind it in the same file. With `folder`,
    that is a folder with the program and the engines. `target` is another system (`cross.TARGETS`), `cpu` the least processor
    that it may assume (see `build.build`), any of its kind if not given. Raises GraphcError for a model that cannot be had,
    InputError for what the system could not start, BuildError where the program cannot be built, and OSError.
    """
    system = _system(find_target(target) if target is not None else None)
    program = Path(os.path.abspath(output))
    if system == "Windows" and program.suffix.lower() != ".exe" and not folder:
        program = program.with_name(f"{program.name}.exe")
    if system in SIGNED and not folder:
        raise InputError("a program for macOS is signed, and nothing may follow the signature: give --folder")
    for path in models.values():
        if program.exists() and os.path.exists(path) and program.samefile(path):
            raise InputError(f"{program}: the program would overwrite the model; give another name")
    (check_folder if folder else check_target)(program)
    names = file_names(models)
    with _place(program, folder) as place:
        engines = place if folder else place.with_name(f"{place.name}.engines")
        engines.mkdir(exist_ok=True)
        files = {names[name]: engines / f"{names[name]}.gguf" for name in models}
        programs = {
            name: _write_engine(path, file, name, progress)
            for (name, file), path in zip(files.items(), models.values(), strict=True)
        }
        written = [_written(file) for file in files.values()]
        whole = sum(each.size + ALIGNMENT for each in written) + PROGRAM
        if not folder and whole > LARGEST.get(system, whole):
            raise InputError(f"{system} starts no program of 4 GiB and more: give --folder")
        with _built(render_bundle(programs, written, folder), target, cpu, jobs, progress) as built:
            if folder and (place / f"{program.name}{built.suffix}") in files.values():
                raise InputError(f"{program}: the program would be called as an engine; give the folder another name")
            shutil.copy(built, place / f"{program.name}{built.suffix}" if folder else place)
        if not folder:
            _append(place, list(files.values()))
            mode = place.stat().st_mode
    if not folder and program.is_file():  # another file may have been there, which nobody could run
        program.chmod(mode)
    return program


def _system(target: Target | None) -> str:
    """cmake's name of the system for which a program is made."""
    if target is not None:
        return target.system
    return "Windows" if os.name == "nt" else os.uname().sysname


@contextmanager
def _place(output: Path, folder: bool) -> Iterator[Path]:
    """Where to write what takes the place of the output."""
    with replacing_folder(output) if folder else replacing(output) as place:
        yield place


def _write_engine(path: str | os.PathLike[str], engine: Path, name: str, progress: Progress) -> Program:
    """Write the engine of a model; returns its program."""
    if is_engine(path):
        from graphc.targets.ggml.engine import read_engine, write_engine

        program, arrays = read_engine(path)
        write_engine(engine, program, arrays.__getitem__, progress)
        return program
    from graphc.compiler import Settings, compile_weights, write

    program, _ = compile_weights(path, Settings(name=name), progress=progress)
    write(program, engine, progress)
    return program


def _written(engine: Path) -> Written:
    with engine.open("rb") as file:
        return Written(engine.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


@contextmanager
def _built(
    texts: Mapping[str, str], target: str | None, cpu: str | None, jobs: int | None, progress: Progress
) -> Iterator[Path]:
    """The program of a project, built where earlier ones were, so that ggml need not be compiled again. No other process builds
    there meanwhile."""
    chosen = json.dumps({name: os.environ.get(name) for name in COMPILERS})
    key = f"bundle-{hashlib.sha256(chosen.encode()).hexdigest()[:12]}"
    with alone(key):
        project = make_cache_folder(key) / "project"
        with replacing_folder(project) as files:
            for path, text in texts.items():
                (files / path).parent.mkdir(parents=True, exist_ok=True)
                (files / path).write_bytes(text.encode())
        options = () if target is not None else OPTIONS
        yield build(project, None, options, jobs, progress, target=target, cpu=cpu or EVERY_CPU)


def _append(program: Path, engines: list[Path]) -> None:
    """Put engines behind a program, as `bundle.h` describes it."""
    with program.open("r+b") as file:
        start = _align(file.seek(0, os.SEEK_END))
        for engine in engines:
            file.truncate(_align(file.tell()))
            file.seek(0, os.SEEK_END)
            with engine.open("rb") as content:
                shutil.copyfileobj(content, file, 1 << 20)
        file.write(MARK + start.to_bytes(8, "little"))


def _align(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
