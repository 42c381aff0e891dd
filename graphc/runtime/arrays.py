"""Arrays in and out of files: `.npy` and `.npz` files, and random inputs."""

from __future__ import annotations

import errno
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import InputError
from graphc.files import check_target, open_regular, replacing
from graphc.shapes import Expr, integer, symbols
from graphc.shapes.dim import Atom
from graphc.targets.ggml.program.program import Input, Program


def read_inputs(files: Sequence[str] | None, archive: Path | None) -> dict[str, np.ndarray]:
    """The arrays that `--inputs` and `--input` name; the latter win. Raises InputError for a file that is none."""
    found: dict[str, np.ndarray] = {}
    if archive is not None:
        loaded = _load(archive)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise InputError(f"{archive}: is not an .npz file")
        for name in loaded.files:
            found[name] = _member(loaded, name, archive)
    for text in files or ():
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise InputError(f"--input {text}: must be NAME=FILE.npy")
        array = _load(Path(path))
        if not isinstance(array, np.ndarray):
            raise InputError(f"{path}: is not an .npy file")
        found[name] = array
    return found


_DAMAGE = (ValueError, EOFError, zipfile.BadZipFile, KeyError, MemoryError, SyntaxError, NotImplementedError)


def _load(path: Path) -> Any:
    try:
        open_regular(path).close()
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except _DAMAGE as error:
        raise InputError(f"{path}: is not an array file, or is damaged") from error


def _member(archive: Any, name: str, path: Path) -> np.ndarray:
    try:
        return np.asarray(archive[name])
    except (OSError, *_DAMAGE) as error:
        raise InputError(f"{path}: array {name} is damaged") from error


def as_declared(inputs: Iterable[Input], given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays, where one of a dtype that `.npy` files have no name for (bfloat16) is given it back."""
    result = dict(given)
    for declared in inputs:
        array = result.get(declared.name)
        if array is not None and array.dtype.kind == "V" and array.dtype.itemsize == declared.dtype.itemsize:
            result[declared.name] = array.view(declared.dtype)
    return result


def check_sizes(inputs: Iterable[Input], sizes: Iterable[str]) -> None:
    """Raises InputError for a name that no size of the inputs has."""
    there = symbols(*(size for declared in inputs for size in declared.shape))
    if unknown := [name for name in sizes if name not in there]:
        raise InputError(f"no size is called {', '.join(unknown)}; there is {', '.join(there) or 'none'}")


def smallest(atom: Atom) -> int:
    """The least size above 0 that a symbol may be."""
    return max(-(-max(atom.low, 1) // atom.multiple) * atom.multiple, 1)


def random_inputs(inputs: Sequence[Input], dims: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """Arrays that fit the declarations: normally distributed numbers, whole ones in the declared range (else 0 to 9).

    A size without a value in `dims` is the smallest that it may be. Raises InputError for a name that no size has.
    """
    check_sizes(inputs, dims)
    atoms = symbols(*(size for declared in inputs for size in declared.shape))
    sizes = {name: smallest(atom) for name, atom in atoms.items()}
    generator = np.random.default_rng(seed)
    return {declared.name: _random(declared, {**sizes, **dims}, generator) for declared in inputs}


@dataclass(frozen=True)
class Completed:
    """The arrays of all inputs; names of those that were made up; and what named sizes they have."""

    arrays: dict[str, np.ndarray]
    made: list[str]
    sizes: dict[str, int]
    from_example: bool

    @property
    def note(self) -> str:
        """Which sizes were taken, in words; empty if nothing was made up, or nothing is free."""
        if not self.made or not self.sizes:
            return ""
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"sizes: {sizes}" + (
            " (those of the exporter's example; --dim gives others)" if self.from_example else ""
        )


def completed(program: Program, given: Mapping[str, np.ndarray], dims: Mapping[str, int], seed: int) -> Completed:
    """The given inputs, and random ones for the others, of the same numbers for the same seed.

    A named size is that of the inputs that are given, or what `dims` says, or that of the example with which the model was
    exported. Raises InputError for a name that no size has, and where nothing says what a size is to be.
    """
    check_sizes(program.inputs, dims)
    given = as_declared(program.inputs, given)
    missing = [each for each in program.inputs if each.name not in given]
    known = {**sizes_of(program.inputs, given), **dims}
    wanted = symbols(*(size for declared in missing for size in declared.shape))
    sizes = {name: known.get(name, program.example.get(name, 0)) for name in wanted}
    if open_sizes := [name for name, size in sizes.items() if not size]:
        proposal = " ".join(f"--dim {name}={smallest(wanted[name])}" for name in open_sizes)
        raise InputError(
            f"random inputs need sizes that the model leaves open; give them, with these numbers or larger ones: {proposal}"
        )
    made = random_inputs(missing, sizes, seed)
    return Completed({**made, **given}, list(made), sizes, bool(sizes.keys() - known.keys()))


def sizes_of(inputs: Iterable[Input], given: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The named sizes that arrays have where the name alone is the size of an axis; whether they fit is not looked at."""
    found: dict[str, int] = {}
    for declared in inputs:
        for size, dim in zip(getattr(given.get(declared.name), "shape", ()), declared.shape, strict=False):
            if isinstance(dim, Expr) and str(dim) in symbols(dim):
                found.setdefault(str(dim), int(size))
    return found


def _random(declared: Input, sizes: Mapping[str, int], generator: np.random.Generator) -> np.ndarray:
    shape = tuple(integer(size, sizes) for size in declared.shape)
    if declared.dtype.kind in "iu":
        low = 0 if declared.low is None else declared.low
        high = 10 if declared.high is None else declared.high
        return generator.integers(low, high, shape).astype(declared.dtype)
    if declared.dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(declared.dtype)
    return generator.standard_normal(shape).astype(declared.dtype)


def check_outputs(target: Path) -> None:
    """Raises OSError if outputs certainly cannot be written there. Asked before a model is run in vain."""
    if target.suffix == ".npz" or not target.exists():
        check_target(target)
    elif not target.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is not a folder; an archive ends with .npz", str(target))


def write_outputs(outputs: Mapping[str, np.ndarray], target: Path) -> list[Path]:
    """Write an `.npz` file, or a folder with an `.npy` file for each output; the paths, in order.

    A name that cannot be a file's is made one. Each file is whole or not there. Raises OSError.
    """
    names = file_names(outputs)
    if target.suffix == ".npz":
        with replacing(target) as unfinished, zipfile.ZipFile(unfinished, "w") as archive:
            for name, array in outputs.items():
                with archive.open(f"{names[name]}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        return [target]
    target.mkdir(exist_ok=True)
    paths = []
    for name, array in outputs.items():
        path = target / f"{names[name]}.npy"
        with replacing(path) as unfinished:
            np.save(unfinished, array, allow_pickle=False)
        paths.append(path)
    return paths


DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Names that Windows takes for devices, whatever their ending."""


def file_names(names: Iterable[str]) -> dict[str, str]:
    """A name for a file, different for each, that contains nothing a path or a shell gives a meaning."""
    used: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^\w.+-]", "_", name)[:100].lstrip(".-") or "output"
        plain = f"_{plain}" if DEVICES.match(plain) else plain
        candidate, count = plain, 1
        while candidate.lower() in (other.lower() for other in used.values()):
            count += 1
            candidate = f"{plain}_{count}"
        used[name] = candidate
    return used


def summary(array: np.ndarray) -> str:
    """Dtype, shape, and what a glance at the numbers tells."""
    text = f"{array.dtype.name}{list(array.shape)}"
    if not array.size:
        return f"{text}, empty"
    numbers = array.astype(np.float64) if array.dtype.kind != "c" else np.abs(array)
    bad = int(np.size(numbers) - np.count_nonzero(np.isfinite(numbers)))
    with np.errstate(all="ignore"):
        text += f", min {numbers.min():.6g}, max {numbers.max():.6g}, mean {numbers.mean():.6g}"
    return text + (f", {bad} not finite" if bad else "")
