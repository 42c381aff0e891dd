"""What an installed wheel takes for whole models where there is no C compiler, and where there is one.

    python examples/export.py --output models sd15_clip resnet50 sd15_vae_decoder sd15_unet
    python benchmarks/without_compiler.py models --python VENV/bin/python --rounds 5

The Python is one into which a wheel was installed (`python -m graphc_build wheel`); this checkout compiles the models, and no
time of that is counted. Each round is a new process of each kind in turn, which runs the model once and then `--runs` times;
what is shown is the median over the rounds of the processes' medians. With a compiler, kernels are compiled; without one,
where `PATH` leads nowhere, they are interpreted. Run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import graphc

CHILD = """
import statistics, sys, time
import numpy as np
import graphc
engine, inputs, threads, runs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
model = graphc.load(engine, threads=threads)
with np.load(inputs) as stored:
    feed = dict(stored)
model(feed)
times = []
for _ in range(runs):
    start = time.perf_counter()
    model(feed)
    times.append(time.perf_counter() - start)
print(statistics.median(times))
"""

USUAL = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
NOWHERE = {"PATH": os.devnull, "CC": ""}


def once(python: Path, engine: Path, inputs: Path, options: argparse.Namespace, changed: dict[str, str]) -> float:
    """Seconds of a run, in a new process. Raises CalledProcessError."""
    command = [python, "-c", CHILD, engine, inputs, options.threads, options.runs]
    with tempfile.TemporaryDirectory() as away:  # from this checkout, which Python would find here
        said = subprocess.run(
            [*map(str, command)], check=True, capture_output=True, text=True, cwd=away, env={**USUAL, **changed}
        )
    return float(said.stdout)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="the folder into which examples/export.py wrote")
    parser.add_argument("names", nargs="*", help="models of it; all if not given")
    parser.add_argument("--python", type=Path, required=True, help="the interpreter of an environment with a wheel")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    python = options.python.absolute()
    names = options.names or sorted(path.parent.parent.name for path in options.models.glob("*/dynamo/model.onnx"))
    kinds = {"with a compiler": {"XDG_CACHE_HOME": "with"}, "without one": {"XDG_CACHE_HOME": "without", **NOWHERE}}
    print(f"| model | {' | '.join(kinds)} | ratio |\n| --- |{' --- |' * (len(kinds) + 1)}")
    with tempfile.TemporaryDirectory() as folder:
        for changed in kinds.values():  # kernels that were compiled are kept
            changed["XDG_CACHE_HOME"] = str(Path(folder) / changed["XDG_CACHE_HOME"])
        for name in names:
            exported, engine = (options.models / name / "dynamo").absolute(), Path(folder) / "engine.gguf"
            graphc.compile(exported / "model.onnx", engine).close()
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(options.rounds):
                for kind, changed in kinds.items():
                    times[kind].append(once(python, engine, exported / "inputs.npz", options, changed))
            medians = [statistics.median(each) for each in times.values()]
            ratio = statistics.median(b / a for a, b in zip(*times.values(), strict=True))
            shown = " | ".join(f"{1e3 * each:.1f} ms" for each in medians)
            print(f"| {name} | {shown} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
