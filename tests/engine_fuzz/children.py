"""Engines are tried in child processes: where one ends, the seed that it was at is a fault, and another goes on behind it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer

TESTS = Path(__file__).parent.parent
SECONDS = 120
"""How long one engine may take."""

MEMORY = 8 << 30
"""Bytes of addresses that a child may use."""

SANITIZER = ("-fsanitize=address", "-fno-omit-frame-pointer", "-g")


@dataclass
class Found:
    """What became of the engines, and what was said of those that are faults, by seed."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)


def fuzz(first: int, count: int, sanitize: bool = False, most: int = 20) -> Found:
    """Try the engines of so many seeds, until there are so many faults."""
    found = Found()
    seed, end = first, first + count
    while seed < end and len(found.faults) < most:
        seed = child(found, seed, end, sanitize, most)
    return found


def child(found: Found, seed: int, end: int, sanitize: bool, most: int) -> int:
    """Try engines in one process; the seed to go on with."""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        command = [sys.executable, "-m", "engine_fuzz.children", str(seed), str(end), str(int(sanitize))]
        process = subprocess.Popen(
            command, cwd=TESTS, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(sanitize)
        )
        assert process.stdout is not None
        timer = Timer(SECONDS, process.kill)
        timer.start()
        for line in process.stdout:
            timer.cancel()
            timer = Timer(SECONDS, process.kill)
            timer.start()
            what, _, said = line.strip().partition(" | ")
            found.counts[what] += 1
            if what == "raised":
                found.faults[seed] = said
            seed += 1
            if len(found.faults) >= most:
                process.kill()
        timer.cancel()
        status = process.wait()
        if status and seed < end and len(found.faults) < most:
            errors.seek(0)
            lines = [line for line in errors.read().splitlines() if line.strip()]
            telling = [line for line in lines if "ERROR" in line or "ASSERT" in line or "#" in line or "File" in line]
            found.counts["ended"] += 1
            found.faults[seed] = f"status {status}: " + "\n    ".join((telling or lines)[:12])
            seed += 1
    return seed


def environment(sanitize: bool) -> dict[str, str]:
    """What a child is given."""
    given = {**os.environ, "GRAPHC_WAYS": "none", "GGML_NO_BACKTRACE": "1", "PYTHONFAULTHANDLER": "1"}
    if sanitize:
        library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
        given |= {"LD_PRELOAD": library.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}
    return given


def main(first: int, end: int, sanitize: bool) -> None:
    """In the child: a line for each engine."""
    from suite.run import quick_flags

    from graphc.kernels.c import compiled
    from graphc.targets.ggml.run.choose import library

    from .case import check

    more = SANITIZER if sanitize else ()
    compiled.FLAGS = (*quick_flags(), *more)
    library.FAST_FLAGS = (*library.FAST_FLAGS, *more)
    if not sanitize and sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for seed in range(first, end):
        try:
            print(check(seed), flush=True)
        except Exception as error:  # of any kind: it is a fault
            import traceback

            at = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
            print(f"raised | {said} at {Path(at.filename).name}:{at.lineno}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1")
