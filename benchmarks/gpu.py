"""What is to be known of a GPU, in stages: generated kernels, whole models and pictures, beside PyTorch and ggml's own backends.

    python benchmarks/gpu.py --device "cuda0 (generated)" --work DIR --output gpu.jsonl --seconds 540
    python benchmarks/gpu.py --device cuda0 --stages models pictures …        # ggml's own backend
    python benchmarks/gpu.py --device "vulkan0 (generated)" --stages …
    python benchmarks/gpu.py --tiny …                                        # whether all of it runs, on any such device

Each stage is a process of its own: one that fails, hangs or takes too long ends alone, and the next begins. A measurement is at
once a line of the output, and all are printed at the end. With --compile PyTorch is also measured by torch.compile with
max-autotune, which takes minutes. --fast lets products and attention be float16, as PyTorch's are here. With --untried kernels
may have instructions, and begin early, as no device has done yet: look at the errors first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gpu_stages.stage import Stage, line_text


@dataclass(frozen=True)
class Planned:
    """A stage: the function of a module that it is, the seconds that it may take, and a program under which it runs."""

    module: str
    function: str
    limit: float
    under: tuple[str, ...] = ()


SANITIZER = ("compute-sanitizer", "--error-exitcode", "9", "--tool")
PLAN = {
    "ceilings": Planned("ceilings", "ceilings", 60),
    "models": Planned("models", "models", 240),
    "attention": Planned("attention", "attention", 180),
    "contractions": Planned("contractions", "contractions", 240),
    "pictures": Planned("models", "pictures", 120),
    "torch": Planned("models", "torch_models", 300),
    "memory checked": Planned("contractions", "contractions", 120, (*SANITIZER, "memcheck")),
    "races checked": Planned("contractions", "contractions", 120, (*SANITIZER, "racecheck")),
}
"""In the order of what is wanted most."""

KILLED = 124


def carry_out(name: str, given: argparse.Namespace, left: float) -> str:
    """Run a stage in a process of its own; how it ended."""
    planned = PLAN[name]
    if planned.under and not shutil.which(planned.under[0]):
        return f"there is no {planned.under[0]}"
    command = [*planned.under, sys.executable, __file__, "--stage", name, "--device", given.device]
    command += ["--work", str(given.work), "--output", str(given.output)]
    chosen = {
        "--tiny": given.tiny or bool(planned.under),
        "--compile": given.compile,
        "--fast": given.fast,
        "--untried": given.untried,
    }
    command += [option for option, on in chosen.items() if on]
    log = given.output.with_suffix(f".{name.replace(' ', '_')}.log")
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(min(left, planned.limit))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            status = KILLED
    if status == 0:
        return "done"
    last = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""])[-1]
    return "out of time" if status == KILLED else f"ended with {status}: {last}"


def lines_of(path: Path) -> list[dict[str, object]]:
    """What was measured so far."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda0 (generated)")
    parser.add_argument("--stages", nargs="+", choices=PLAN, default=list(PLAN))
    parser.add_argument("--output", type=Path, default=Path("gpu.jsonl"), help="lines are added to this file")
    parser.add_argument("--work", type=Path, default=Path("gpu-work"), help="a folder for weights, which stay there")
    parser.add_argument("--seconds", type=float, default=1500, help="for all stages together")
    parser.add_argument("--tiny", action="store_true", help="small shapes and the small model, to see that it works")
    parser.add_argument("--compile", action="store_true", help="PyTorch also by torch.compile with max-autotune")
    parser.add_argument("--fast", action="store_true", help="products and attention in float16")
    parser.add_argument("--untried", action="store_true", help="also what no device has done yet")
    parser.add_argument("--stage", choices=PLAN, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    if given.stage:
        import graphc
        from graphc.kernels.gpu.instructions import UNTRIED

        if given.untried:
            UNTRIED.clear()
            os.environ["GRAPHC_EARLY_KERNELS"] = "1"
        graphc.set_float32_matmul_precision("high" if given.fast else "highest")
        stage = Stage(given.stage, given.device, given.output, given.work, given.tiny, given.compile)
        planned = PLAN[given.stage]
        getattr(importlib.import_module(f"gpu_stages.{planned.module}"), planned.function)(stage)
        return
    began, before = time.monotonic(), len(lines_of(given.output))
    ends = {}
    for name in given.stages:
        left, start = given.seconds - (time.monotonic() - began), time.monotonic()
        ends[name] = carry_out(name, given, left) if left > 0 else "not begun: out of time"
        print(f"{name}: {ends[name]}, {time.monotonic() - start:.0f} s", flush=True)
    lines = lines_of(given.output)[before:]
    for name in given.stages:
        print(f"\n{name}: {ends[name]}")
        for line in lines:
            if line["stage"] == name:
                print("  " + line_text(line))


if __name__ == "__main__":
    main()
