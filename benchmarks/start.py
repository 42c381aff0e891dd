"""How long it takes until a model is there: processes that import graphc, start an engine, or print help.

    python benchmarks/start.py model.gguf --rounds 11

Times are medians of new processes, one of each kind in turn, the first of each left out. Those of the processor are what counts
where other programs run too. Python itself and NumPy are lines of their own: nothing starts faster. How long it takes to take a
process down is not in the first four lines.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

END = "; import os; os._exit(0)"
"""Ends a process at once."""

ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
"""NumPy's other threads would spin for a while beside the one that starts, and their time is the processor's too."""


def once(arguments: list[str]) -> tuple[float, float]:
    """Seconds of the processor and of the clock that a Python process takes."""
    start, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - start


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    kinds = {
        "Python": ["-c", "pass" + END],
        "import numpy": ["-c", "import numpy" + END],
        "import graphc": ["-c", "import graphc" + END],
        "graphc.load": ["-c", f"import graphc; model = graphc.load({str(arguments.engine)!r})" + END],
        "graphc run --help": ["-c", "from graphc.cli import main; main(['run', '--help'])"],
        "graphc --help": ["-c", "from graphc.cli import main; main(['--help'])"],
    }
    found = defaultdict(list)
    for _ in range(arguments.rounds + 1):
        for kind, given in kinds.items():
            found[kind].append(once(given))
    print("| what | seconds of the processor | of the clock |\n| --- | --- | --- |")
    for kind, times in found.items():
        spent, passed = (statistics.median(each) for each in zip(*times[1:], strict=True))
        print(f"| {kind} | {spent:.3f} | {passed:.3f} |")


if __name__ == "__main__":
    main()
