"""Size and error of models whose weights are stored in each type, against PyTorch's float32 outputs.

    python examples/export.py --output models sd15_clip sd15_unet sd15_vae_decoder bert_base
    python benchmarks/dtypes.py models sd15_clip bert_base --dtype f16 --dtype q8_0
    python benchmarks/dtypes.py models --work sdcpp

For each type: the bytes of the weights, the largest difference of an output over its largest element, and the root of the mean
square of the difference over that of the output; once as it runs here, and once by ggml's products alone, as on other devices
than the CPU. --work names the folder in which benchmarks/stable_diffusion_cpp.py built stable-diffusion.cpp and wrote the
weights: then the same is measured of it, for the models that it has. Engines are written to a temporary folder and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import graphc
from graphc.commands.bench import machine_name
from graphc.commands.output import bytes_text
from graphc.ggml_types import TYPES
from graphc.runtime.bench import SPAWN
from graphc.runtime.peers import Task
from graphc.targets.ggml.lowering.dtypes import Dtypes
from graphc.targets.ggml.program.cost import weight_bytes

MODELS = ("sd15_clip", "bert_base", "sd15_vae_decoder", "sd15_unet")
DTYPES = ("f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q4_k", "q5_0", "q4_0", "iq4_nl", "q3_k", "q2_k")


@dataclass(frozen=True)
class Row:
    """What was measured of a model in a type."""

    model: str
    runtime: str
    dtype: str
    bytes: int
    largest: float
    mean: float


def errors(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Of the output that differs most: the largest difference and the mean one (the root of the mean square), relative."""
    pairs = [(found[name].astype(np.float64), array.astype(np.float64)) for name, array in expected.items()]
    largest = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
    return largest, max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def stored(folder: Path, name: str) -> dict[str, np.ndarray]:
    """Arrays that were written when the model was exported."""
    with np.load(folder / name) as arrays:
        return dict(arrays)


def ours(folder: Path, dtype: str, threads: int) -> list[Row]:
    """A model in a type: with code of our own on the CPU, and by ggml alone."""
    inputs, expected = stored(folder, "inputs.npz"), stored(folder, "outputs.npz")
    rows, name = [], folder.parent.name
    with tempfile.TemporaryDirectory() as scratch:
        graphc.compile(folder / "model.onnx", Path(scratch) / "m.gguf", dtype=Dtypes.parsed(dtype)).close()
        for runtime in ("graphc", "graphc by ggml's products"):
            model = graphc.load(Path(scratch) / "m.gguf", threads=threads)
            if runtime != "graphc":
                model.executor.uses_own = False
            rows.append(Row(name, runtime, dtype, weight_bytes(model.program), *errors(model.run(inputs), expected)))
            model.close()
    return rows


def theirs(folder: Path, dtype: str, threads: int, work: Path) -> list[Row]:
    """The same of stable-diffusion.cpp."""
    from stable_diffusion_cpp import PARTS, open_part, run_of

    name, expected = folder.parent.name, stored(folder, "outputs.npz")
    if name not in PARTS:
        return []
    ((output, array),) = list(expected.items())[:1]
    task = Task(folder / "model.onnx", stored(folder, "inputs.npz"), (output,), threads)
    part = PARTS[name][0]
    opened = open_part(
        work / "build/libparts.so", work / "sd15.safetensors", part, False, threads, TYPES[dtype.upper()].code
    )
    found = run_of(*opened, part, array.shape, task)()
    size = opened[0].parts_bytes(opened[1])
    return [Row(name, "stable-diffusion.cpp", dtype, size, *errors(found, {output: array}))]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="the folder into which examples/export.py wrote")
    parser.add_argument("names", nargs="*", help=f"models; {', '.join(MODELS)} if not given")
    parser.add_argument("--dtype", action="append", help=f"types; {', '.join(DTYPES)} if not given")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, help="where stable-diffusion.cpp was built")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    print(f"{machine_name()}\n\n| model | runtime | type | weights | largest error | mean error |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    found: list[Row] = []
    for name in arguments.names or MODELS:
        folder = arguments.models / name / "dynamo"
        for dtype in arguments.dtype or DTYPES:
            tasks = [(ours, (folder, dtype, arguments.threads))]
            if arguments.work is not None:
                tasks.append((theirs, (folder, dtype, arguments.threads, arguments.work.absolute())))
            for measure, given in tasks:
                with ProcessPoolExecutor(1, mp_context=SPAWN) as alone:
                    rows = alone.submit(measure, *given).result()
                for row in rows:
                    errors_text = f"{row.largest:.1e} | {row.mean:.1e}"
                    print(
                        f"| {row.model} | {row.runtime} | {row.dtype} | {bytes_text(row.bytes)} | {errors_text} |",
                        flush=True,
                    )
                found += rows
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"machine": machine_name(), "rows": [asdict(row) for row in found]}, indent=2)
        )


if __name__ == "__main__":
    main()
