"""The parts of Stable Diffusion 1.5 beside stable-diffusion.cpp: same seeded weights, same inputs, one run of each in turn.

    python examples/export.py --output models sd15_clip sd15_unet sd15_vae_decoder
    python benchmarks/stable_diffusion_cpp.py models --work sdcpp

Builds stable-diffusion.cpp from the source that its Python package holds, with the switches that make it fastest on a CPU,
and writes the weights as one file in the original layout. Both stay in the folder that --work names. What is timed is what its
pipeline calls for a prompt, a step and a decoding, "direct" with its direct convolutions. Its convolutions keep their kernels
in float16, whatever the file holds: the error, which is against PyTorch, says what that costs. All runtimes hold the model at
the same time: the U-Net needs 16 GB. OpenMP's threads spin for microseconds when they wait, as graphc sets it where the
environment does not: OMP_WAIT_POLICY=active in front of the command makes them spin for good, in all runtimes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphc.commands.bench import machine_name, say_results, versions
from graphc.runtime.bench import SPAWN, bench
from graphc.runtime.peers import PEERS, Peer, Run, Task
from graphc.weights.layouts import Flat, Source, Table
from graphc.weights.layouts.text import CLIP
from graphc.weights.layouts.unet import UNET, VAE

ROOT = Path(__file__).parent.parent
PACKAGE = "stable-diffusion-cpp-python==0.4.7"
SWITCHES = ("-DCMAKE_BUILD_TYPE=Release", "-DGGML_LLAMAFILE=ON", "-DGGML_NATIVE=ON")

PARTS: Mapping[str, tuple[str, str]] = {
    "sd15_clip": ("text", "cond_stage_model.transformer."),
    "sd15_unet": ("unet", "model.diffusion_model."),
    "sd15_vae_decoder": ("decoder", "first_stage_model."),
}
"""Models of the zoo: what the part is called in `parts.cpp`, and what is before its names in a checkpoint."""

TABLES: Mapping[str, tuple[Table, str]] = {"text": (CLIP, "text_model."), "unet": (UNET, ""), "decoder": (VAE, "")}
"""Where a part's names in the original layout are, and what is put before its own names to be found there."""


def original(part: str, name: str) -> Source:
    """The name in the original layout of a parameter, and what is done to what it has there."""
    table, module = TABLES[part]
    (found,) = table.theirs([module + name.removeprefix(module)]).values()
    return found


def parameters(model: str) -> Iterator[tuple[str, np.ndarray]]:
    """The seeded weights of a model of the zoo under their original names."""
    sys.path.insert(0, str(ROOT / "examples"))
    from zoo import EXAMPLES

    part, prefix = PARTS[model]
    module, _ = EXAMPLES[model].build()
    for name, tensor in module.named_parameters():
        array, source = tensor.detach().numpy(), original(part, name)
        convolution = Flat() in source.steps and array.ndim == 2
        yield prefix + source.name, array[:, :, None, None] if convolution else array


def write_weights(path: str) -> None:
    """One file with everything, as checkpoints of Stable Diffusion are."""
    from safetensors.numpy import save_file

    tensors = {name: np.ascontiguousarray(array) for model in PARTS for name, array in parameters(model)}
    save_file(tensors, f"{path}.unfinished")
    Path(f"{path}.unfinished").rename(path)


def build(work: Path) -> Path:
    """The library of the parts, built with stable-diffusion.cpp's own source."""
    (library,) = [*work.glob("build/libparts.so")] or [None]
    if library is not None:
        return library
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE.split("==")[0]]
    subprocess.run([*pip, PACKAGE, "--dest", work], check=True)
    (archive,) = work.glob("stable_diffusion_cpp_python-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(work, filter="data")
    (source,) = work.glob("stable_diffusion_cpp_python-*/vendor/stable-diffusion.cpp")
    recipe = Path(__file__).with_suffix("")
    subprocess.run(["cmake", "-S", recipe, "-B", work / "build", f"-DSD_SOURCE={source}", *SWITCHES], check=True)
    subprocess.run(["cmake", "--build", work / "build", "--target", "parts", "-j2"], check=True)
    return work / "build" / "libparts.so"


class Array(ctypes.Structure):
    """As in `parts.cpp`."""

    _fields_ = (("axes", ctypes.c_int64), ("sizes", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p))


def described(array: np.ndarray) -> Array:
    """An array for `parts.cpp`; it must outlive what is made of it."""
    sizes = (ctypes.c_int64 * array.ndim)(*reversed(array.shape))
    return Array(array.ndim, sizes, array.ctypes.data)


def open_part(library: Path, weights: Path, part: str, direct: bool, threads: int, type: int = -1) -> tuple[Any, Any]:
    """The library, and a part of stable-diffusion.cpp with its weights, in one of ggml's types if it is given by its number."""
    loaded = ctypes.CDLL(str(library))
    loaded.parts_open.restype = ctypes.c_void_p
    loaded.parts_run.restype = ctypes.c_bool
    loaded.parts_bytes.restype = ctypes.c_int64
    handle = loaded.parts_open(str(weights).encode(), part.encode(), ctypes.c_bool(direct), threads, type)
    if not handle:
        raise RuntimeError("the weights do not fit")
    return loaded, ctypes.c_void_p(handle)


def part_of(library: Path, weights: Path, part: str, shape: tuple[int, ...], direct: bool, task: Task) -> Run:
    """A part of stable-diffusion.cpp, ready to run in this process."""
    return run_of(*open_part(library, weights, part, direct, task.threads), part, shape, task)


def run_of(loaded: Any, handle: Any, part: str, shape: tuple[int, ...], task: Task) -> Run:
    """What runs an open part."""
    types = {"i": np.int32 if part == "text" else np.float32, "f": np.float32}
    inputs = [np.ascontiguousarray(array, types[array.dtype.kind]) for array in task.inputs.values()]
    output = np.empty(shape, np.float32)
    given = (Array * len(inputs))(*map(described, inputs))

    def run() -> Mapping[str, np.ndarray]:
        if not loaded.parts_run(handle, given, ctypes.byref(described(output))):
            raise RuntimeError("the result has another size")
        return {task.outputs[0]: output}

    return run


def stored_outputs(path: Path, task: Task) -> Run:
    """What PyTorch gave when the model was exported."""
    with np.load(path) as stored:
        outputs = dict(stored)
    return lambda: outputs


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="the folder into which examples/export.py wrote")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PARTS)}; all if not given")
    parser.add_argument("--work", type=Path, required=True, help="a folder for the build and the weights, 7 GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--runtime", action="append", choices=list(PEERS), help="beside it; graphc and onnxruntime if not given"
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    names = arguments.names or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"no such model: {', '.join(unknown)}")
    work = arguments.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    library, weights = build(work), work / "sd15.safetensors"
    if not weights.exists():
        writer = SPAWN.Process(target=write_weights, args=(str(weights),))
        writer.start()
        writer.join()
    print(
        f"{arguments.rounds} rounds, {arguments.threads} threads, {machine_name()}, {PACKAGE}, {' '.join(SWITCHES[1:])}"
    )
    found = {}
    for name in names:
        folder = arguments.models / name / "dynamo"
        with np.load(folder / "inputs.npz") as inputs, np.load(folder / "outputs.npz") as outputs:
            task = Task(folder / "model.onnx", dict(inputs), tuple(outputs), arguments.threads)
            shape = outputs[task.outputs[0]].shape
        ours = {each: PEERS[each] for each in arguments.runtime or ("graphc", "onnxruntime")}
        theirs = {
            f"stable-diffusion.cpp{', direct' if direct else ''}": Peer(
                "graphc", partial(part_of, library, weights, PARTS[name][0], shape, direct)
            )
            for direct in ((False, True) if name != "sd15_clip" else (False,))
        }
        print(f"\n{name}")
        reference = {"PyTorch's outputs": Peer("graphc", partial(stored_outputs, folder / "outputs.npz"))}
        found[name] = bench(task, arguments.rounds, {**ours, **theirs, **reference}, reference="PyTorch's outputs")[:-1]
        say_results(found[name])
    if arguments.json:
        results = {name: [asdict(each) for each in results] for name, results in found.items()}
        arguments.json.write_text(
            json.dumps({"machine": machine_name(), "versions": versions(), "results": results}, indent=2)
        )


if __name__ == "__main__":
    main()
