"""What compiling costs: seconds and memory for the engine, the C++ project, its build, and loading.

    python examples/export.py sd15_unet --exporter dynamo --output models
    python benchmarks/compiling.py models/sd15_unet/dynamo/model.onnx

Memory is the peak of the process's anonymous resident memory (Linux), so pages of mapped files do not count. Each stage runs
in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

STAGES = ("compile", "load", "load and run", "build C++")


def anonymous_mib() -> float:
    """Anonymous resident memory of this process, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Peak:
    """The largest anonymous memory while the block runs, sampled every 5 ms."""

    def __enter__(self) -> Peak:
        self.mib, self.done = 0.0, threading.Event()
        self.thread = threading.Thread(target=self.sample)
        self.thread.start()
        return self

    def sample(self) -> None:
        while not self.done.wait(0.005):
            self.mib = max(self.mib, anonymous_mib())

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.thread.join()


def run_stage(stage: str, model: Path, folder: Path) -> dict[str, float]:
    """One stage in this process."""
    import numpy as np

    import graphc
    from graphc.build import build

    engine, project = folder / "model.gguf", folder / "cpp"
    with Peak() as peak:
        start = time.perf_counter()
        if stage == "compile":
            graphc.compile(model, engine, cpp=project).close()
        elif stage == "build C++":
            build(project)
        else:
            loaded = graphc.load(engine)
            if stage == "load and run":
                loaded.run(dict(np.load(model.parent / "inputs.npz")))
        seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 2), "peak_mib": round(peak.mib)}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="where to leave the engine and the project")
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(run_stage(options.stage, options.model, options.folder)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print("| stage | seconds | peak anonymous MiB |\n| --- | --- | --- |")
        for stage in STAGES:
            command = [sys.executable, __file__, str(options.model), "--stage", stage, "--folder", str(folder)]
            finished = subprocess.run(command, capture_output=True, text=True, check=False)
            if finished.returncode:
                print(f"| {stage} | {finished.stderr.strip().splitlines()[-1]} |")
                continue
            row = json.loads(finished.stdout.splitlines()[-1])
            print(f"| {stage} | {row['seconds']} | {row['peak_mib']} |", flush=True)
        print(f"\nengine: {(folder / 'model.gguf').stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
